#include "bench/doctor/diagnose.h"

#include <algorithm>

#include "base/errors.h"
#include "base/pattern.h"
#include "base/text.h"
#include "comm/layout/gpu_profiles.h"
#include "comm/layout/peer_rules.h"
#include "reports/conditions/machine_conditions.h"
#include "reports/conditions/network_conditions.h"
#include "reports/conditions/path_conditions.h"
#include "reports/json/archive.h"
#include "reports/json/json_writer.h"
#include "reports/json/report_fields.h"

namespace nearmetal {
namespace {

using Findings = std::vector<Finding>;

// "a VM (vmware)"
std::string kind_of(const Checkup& checkup) {
  const Virtualisation& found = checkup.environment.virtualisation;
  if (is_bare_metal(checkup.environment)) return "bare metal";
  if (is_vm(checkup.environment)) {
    const Maybe<std::string>& version = found.hypervisor_version;
    return "a VM (" + found.hypervisor.value.value_or("unknown hypervisor") +
           (version ? " " + *version : "") + ")";
  }
  return "VM or bare metal, which is not known (" + found.machine.reason + ")";
}

Finding ok(const char* code, const std::string& seen) { return {Urgency::ok, code, seen, "", ""}; }

// The machine that fixes are meant for.
Finding machine_of(const Checkup& checkup) {
  const Virtualisation& found = checkup.environment.virtualisation;
  std::vector<std::string> signs;
  for (const Maybe<std::string>* sign : {&found.dmi_vendor, &found.dmi_product}) {
    if (*sign) signs.push_back(**sign);
  }
  if (found.bios_version) signs.push_back("BIOS " + *found.bios_version);
  std::string seen = "this machine: " + kind_of(checkup);
  if (!signs.empty()) seen += " (" + joined(signs) + ")";
  if (found.container && *found.container != "none")
    seen += ", in a container (" + *found.container + ")";
  const Maybe<std::string>& file = checkup.environment.nccl_topology_file;
  seen += "; NCCL topology file: " + (file ? *file : "none (" + file.reason + ")");
  const Storage& storage = checkup.environment.storage;
  if (storage.file_system && storage.free_bytes) {
    seen += "; working folder: " + *storage.file_system + ", " +
            significant(1e-9 * static_cast<double>(*storage.free_bytes), 3) + " GB free";
  }
  return ok("machine", seen);
}

Findings of_driver(const Checkup& checkup) {
  if (!checkup.gpu_device_files) {
    return {{Urgency::note, "no_gpu", "no NVIDIA device files in /dev",
             "runs train on the CPU, which says nothing about GPUs",
             "install the driver, or give the container or VM its GPUs (docker: --gpus all)"}};
  }
  const Maybe<std::string>& loaded = checkup.environment.virtualisation.nvidia_kernel_module;
  if (!checkup.nvml) {
    const bool mismatch = checkup.nvml_status == nvml_versions_differ;
    return {{Urgency::blocker, mismatch ? "driver_mismatch" : "no_nvml",
             checkup.nvml.reason + (loaded ? "; the kernel's module is " + *loaded : ""),
             "the driver and its library do not work together, and clocks, power and links stay "
             "unknown",
             advice_for(checkup.environment, advice_on_nvml(checkup.nvml_status))}};
  }
  Findings findings;
  if (checkup.environment.gpus.empty()) {
    findings.push_back({Urgency::blocker, "no_gpu_listed", "the driver lists no GPU",
                        "runs on a GPU cannot start", "see dmesg for lines of NVRM"});
  }
  if (loaded && *loaded != *checkup.nvml) {
    findings.push_back({Urgency::blocker, "driver_mismatch",
                        "the kernel's module is " + *loaded + ", the library " + *checkup.nvml,
                        "they must be of the same version, or CUDA does not start",
                        advice_for(checkup.environment, advice_on_nvml(nvml_versions_differ))});
  } else {
    findings.push_back(ok("driver", "driver " + *checkup.nvml));
  }
  return findings;
}

std::string fix_of(const BackendCheck& backend) {
  if (backend.obstacle == Obstacle::old_driver) return backend.fix;
  if (backend.obstacle == Obstacle::not_built) return "build with this backend (scripts/setup.sh)";
  return backend.obstacle == Obstacle::not_loaded
             ? "install the library that is named, or add its folder to LD_LIBRARY_PATH"
             : "install the driver of the GPU, or a newer one, or give the container or VM its GPU";
}

Findings of_backends(const Checkup& checkup) {
  const auto works = [](const auto& backend) { return backend.second.obstacle == Obstacle::none; };
  const bool any = std::ranges::any_of(checkup.backends, works);
  Findings findings;
  for (const auto& [name, backend] : checkup.backends) {
    if (backend.obstacle == Obstacle::none) {
      findings.push_back(ok("backend", "the " + name + " backend works"));
      continue;
    }
    const bool needed = !any || (name == "cuda" && checkup.gpu_device_files);
    const bool old = backend.obstacle == Obstacle::old_driver;
    findings.push_back({needed ? Urgency::blocker : Urgency::note,
                        old ? "driver_too_old" : "backend_unusable", name + ": " + backend.reason,
                        "runs with --device " + name + " cannot start", fix_of(backend)});
  }
  return findings;
}

std::string outcome(const MpiLaunch& launch) {
  const std::string how =
      launch.status ? "exit status " + std::to_string(*launch.status) : "did not end in time";
  return how + (launch.text.empty() ? "" : ": " + launch.text);
}

// A sweep is what a layout file, or several GPUs, are for.
bool may_sweep(const Checkup& checkup) {
  return checkup.layout || checkup.environment.gpus.size() > 1;
}

Findings of_mpi(const Checkup& checkup) {
  const std::optional<MpiLaunch>& mpi = checkup.mpi;
  if (!mpi) {
    return {{may_sweep(checkup) ? Urgency::blocker : Urgency::note, "no_mpi",
             "mpirun is not on PATH",
             "sweeps, and jobs of several ranks, cannot be started from here", "install Open MPI"}};
  }
  if (mpi->status == 0 && mpi->ranks == 2) return {ok("mpi", "mpirun started two ranks")};
  return {{Urgency::blocker, "mpi_launch",
           "mpirun of two ranks, of which " + std::to_string(mpi->ranks) +
               " answered: " + outcome(*mpi),
           "jobs of several ranks cannot start",
           "try `mpirun -n 2 hostname`; on hosts with several networks name one: "
           "OMPI_MCA_btl_tcp_if_include and OMPI_MCA_oob_tcp_if_include"}};
}

Findings of_nccl(const Checkup& checkup) {
  const std::optional<MpiLaunch>& nccl = checkup.nccl;
  if (!nccl) return {};
  if (nccl->status == 0) return {ok("nccl", "NCCL summed over two GPUs")};
  const bool missing = nccl->status == static_cast<int>(ExitCode::not_supported);
  return {{missing ? Urgency::warning : Urgency::blocker, "nccl_start",
           "a sum over two GPUs: " + outcome(*nccl), "several GPUs cannot train one network",
           "run `mpirun -n 2 nearmetal micro nccl/allreduce/8B` with NCCL_DEBUG=INFO; in a "
           "container, give it a larger /dev/shm (docker: --shm-size 1g)"}};
}

Findings of_hosts(const Checkup& checkup) {
  if (checkup.host_names.empty()) return {};
  const std::string what = "a sum over ranks on " + shortened(joined(checkup.host_names));
  constexpr const char* why = "jobs over these hosts cannot start";
  if (!checkup.hosts) {
    return {{Urgency::blocker, "hosts_untried", what + " was not tried: no mpirun", why,
             "install Open MPI here and there"}};
  }
  Findings findings;
  if (!checkup.one_machine.empty()) {
    findings.push_back({Urgency::blocker, "hosts_one_machine", checkup.one_machine,
                        "a layout of several hosts would be measured on one",
                        "correct the addresses in the layout file"});
  }
  for (const SharedAddress& shared : checkup.shared_addresses) {
    findings.push_back({Urgency::note, "hosts_shared_address", text_of(shared),
                        "there each host reaches itself; a sweep leaves this network out",
                        "name the network that joins the hosts: launcher.network, which scripts "
                        "of `nearmetal plan` need"});
  }
  for (const std::string& unlike : checkup.unlike_variables) {
    findings.push_back({Urgency::warning, "hosts_variables", unlike,
                        "ranks of one job would exchange in different ways",
                        "set it for all ranks: launcher.variables"});
  }
  if (checkup.hosts->status == 0) {
    findings.push_back(ok("hosts", what + " arrives"));
    return findings;
  }
  findings.push_back(
      {Urgency::blocker, "hosts_exchange", what + ": " + outcome(*checkup.hosts), why,
       "each must let this one in by ssh without a password (or launcher.remote_shell), have "
       "this program at the same path and the same Open MPI, and its firewall must let all TCP "
       "ports of the others pass; launcher.network names the network that they share"});
  return findings;
}

// The finding of a row whose sign the facts of the machine do not show.
Finding seen_now(const Conditions& table, const char* code, const Checkup& checkup,
                 const std::string& seen) {
  return finding_of(condition_of(table, code), checkup.environment, {seen});
}

Findings of_gpu_now(const Checkup& checkup, size_t index, const std::string& gpu) {
  Findings findings;
  if (index >= checkup.gpus_now.size()) return findings;
  const GpuNow& now = checkup.gpus_now[index];
  if (now.processes.value.value_or(0) > 0) {
    findings.push_back(
        {Urgency::warning, "gpu_in_use", gpu + std::to_string(*now.processes) + " processes use it",
         "they take time and memory from the measurement", "end them; nvidia-smi lists them"});
  }
  if (now.link_is_slow) {
    const Gpu& one = checkup.environment.gpus[index];
    findings.push_back(seen_now(gpu_conditions(), "link_slow", checkup,
                                gpu + "its PCIe link stays at generation " +
                                    std::to_string(*one.link_generation) + " of " +
                                    std::to_string(*one.largest_link_generation) + " under load"));
  }
  constexpr int64_t slowed_by_hardware_or_heat = 0x8 | 0x20 | 0x40 | 0x80;
  if ((now.throttle_bits.value.value_or(0) & slowed_by_hardware_or_heat) != 0) {
    findings.push_back(seen_now(gpu_conditions(), "throttled_now", checkup,
                                gpu + "its clocks are held down by heat or power now"));
  }
  return findings;
}

Findings of_gpus(const Checkup& checkup) {
  const Environment& machine = checkup.environment;
  Findings findings;
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    const std::string name = "GPU " + std::to_string(i) + ": ";
    Findings found = of_gpu_now(checkup, i, name);
    for (const Condition& condition : gpu_conditions()) {
      for (const Sign& sign : signs_of(condition, machine)) {
        if (sign.gpu == i) found.push_back(finding_of(condition, machine, sign));
      }
    }
    if (found.empty()) found.push_back(ok("gpu", name + machine.gpus[i].name + ", no findings"));
    append(findings, found);
  }
  return findings;
}

// NVIDIA's boards with NVSwitches are SXM, also where the name does not say so (H200, B200); NVL
// are cards, which have NVLinks only where they are bridged. vGPUs of such boards have an X in the
// name of the board (A100DX-80C, H100XM-80C).
bool is_named_for_nvlinks(const std::string& name) {
  static const Pattern boards(R"(SXM|HBM3|\b(H20|G?B200|G?B300|H200)\b(?! NVL))");
  static const Pattern of_vgpus(R"([VAHB]\d+D?X[A-Z]?-.*)");
  const auto profile = vgpu_profile_in(name);
  return profile ? is_whole_gpu(*profile) && of_vgpus.matches(*profile) : boards.is_in(name);
}

// NVLinks that are told of, or names of GPUs on boards that have them.
bool has_nvlinks(const Gpu& gpu) {
  return gpu.active_nvlinks.value.value_or(0) + gpu.inactive_nvlinks.value.value_or(0) > 0 ||
         is_named_for_nvlinks(gpu.name);
}

Findings of_peers(const Checkup& checkup) {
  const std::vector<Gpu>& gpus = checkup.environment.gpus;
  Findings findings = findings_of(peer_conditions(), checkup.environment);
  int64_t paths = 0;
  for (const Gpu& gpu : gpus) paths += std::ssize(gpu.peers);
  if (findings.empty() && paths > 0) {
    return {ok("peers", "all " + std::to_string(paths) + " paths between GPUs by NVLink")};
  }
  const bool should_have = is_vm(checkup.environment) && std::ranges::any_of(gpus, has_nvlinks);
  for (Finding& finding : findings) {
    if (!should_have || finding.code != "peers_without_nvlink") continue;
    finding = seen_now(peer_conditions(), "nvlink_lost", checkup,
                       finding.seen + " of this VM, though the GPUs have NVLinks");
  }
  return findings;
}

Findings of_exchange(const Checkup& checkup) {
  return findings_of(exchange_conditions(), checkup.environment);
}

// NICs with RDMA, and the ways between them and GPUs.
Findings of_nics(const Checkup& checkup) {
  const std::vector<RdmaDevice>& nics = checkup.environment.rdma;
  Findings findings = findings_of(nic_conditions(), checkup.environment);
  append(findings, findings_of(gpu_direct_conditions(), checkup.environment));
  if (!findings.empty() || nics.empty()) return findings;
  return {ok("nics", counted(std::ssize(nics), "RDMA device") + ", no findings")};
}

PeerDevice device_of(const Gpu& gpu) {
  PeerDevice device{.host = this_host, .node = this_host, .mig = gpu.mig_profile.value.has_value()};
  device.vgpu_profile = gpu.vgpu_profile.value;
  device.without_nvlink = std::ranges::any_of(
      gpu.peers, [](const GpuPeer& peer) { return peer.nvlink.value == false; });
  return device;
}

// The vGPUs and MIG devices that are no peers: of the layout's jobs, else of all GPUs here.
Findings of_peer_rules(const Checkup& checkup) {
  if (checkup.layout) return checkup.layout->peers;
  return peer_findings("a job on all GPUs of this machine",
                       transformed(checkup.environment.gpus, device_of));
}

// Whether MIG is as a configuration says, where one was named.
Findings of_mig(const Checkup& checkup) {
  if (!checkup.mig_config) return {};
  const MigConfig& wanted = *checkup.mig_config;
  const std::string name = "'" + wanted.label + "' of " + wanted.file;
  constexpr const char* why = "jobs would have other parts of the GPUs, or none";
  if (checkup.environment.gpus.empty()) {
    const std::string reason = checkup.nvml ? "the driver lists no GPU" : checkup.nvml.reason;
    return {{Urgency::blocker, "mig_config", "no GPU to check against " + name, why,
             "fix the driver first: " + reason}};
  }
  Findings findings;
  for (const std::string& difference : mig_differences(wanted, checkup.environment.gpus)) {
    findings.push_back({Urgency::blocker, "mig_config", difference, why, apply_command(wanted)});
  }
  if (findings.empty()) return {ok("mig_config", "MIG is as " + name + " says")};
  return findings;
}

// Whether a sweep of a layout file could start, where one was named.
Findings of_layout(const Checkup& checkup) {
  if (!checkup.layout) return {};
  const LayoutCheck& layout = *checkup.layout;
  Findings findings;
  for (const std::string& problem : layout.problems) {
    findings.push_back({Urgency::blocker, "layout", problem,
                        "a sweep of this file would refuse it, or its jobs would fail",
                        "change the file, or the machine as it says"});
  }
  if (layout.problems.empty()) {
    const std::string layouts = " (" + counted(layout.layouts, "layout") + ")";
    findings.push_back(
        ok("layout",
           layout.file + (layout.names_this_machine
                              ? ": this machine has all that a sweep of it" + layouts + " needs"
                              : layouts + ": its hosts are other machines, whose GPUs "
                                          "are not looked at from here")));
  }
  for (const UnsupportedArm& arm : layout.left_out) {
    findings.push_back({Urgency::note, "layout_left_out",
                        layout.file + ": " + arm.name + " is left out: " + arm.reason,
                        "a sweep reports it as unsupported and runs the others",
                        "nothing to do, unless it is to run: use a machine that has it"});
  }
  if (checkup.host_names.empty()) {
    findings.push_back({Urgency::note, "network_untried",
                        layout.file + " names no other host, so that no network was tried",
                        "its jobs stay on this machine",
                        "nothing to do, unless jobs are to run on others: name these in "
                        "\"hosts\""});
  }
  return findings;
}

Findings of_system(const Checkup& checkup) {
  Findings findings = findings_of(limit_conditions(), checkup.environment);
  if (findings.empty()) findings = {ok("limits", "/dev/shm, memlock and nofile suffice")};
  append(findings, findings_of(system_conditions(), checkup.environment));
  if (checkup.plan_cache_writable.value == false) {
    findings.push_back({Urgency::warning, "plan_cache_read_only",
                        checkup.plan_cache_folder + " cannot be written",
                        "every run chooses its kernels anew, perhaps others",
                        "make it writable, or give --plan-cache another place"});
  }
  constexpr int64_t mebibyte = int64_t{1} << 20, little_disk = 256 * mebibyte;
  if (checkup.free_disk_bytes && *checkup.free_disk_bytes < little_disk) {
    findings.push_back(
        {Urgency::warning, "little_disk",
         std::to_string(*checkup.free_disk_bytes / mebibyte) + " MiB are free in this folder",
         "reports may not fit", "make room, or give --output another place"});
  }
  const Maybe<double>& busy = checkup.cpus_busy_with_others;
  if (busy && *busy > others_may_use_of(checkup.environment.logical_cpus)) {
    findings.push_back(seen_now(system_conditions(), "cpus_in_use", checkup,
                                "other processes keep " + significant(*busy, 2) + " CPUs busy"));
  }
  if (checkup.clock_synchronised.value == false) {
    findings.push_back({Urgency::note, "clock_not_synchronised",
                        "the kernel says that its clock is not synchronised",
                        "times in reports of several hosts may not agree",
                        "run chrony or systemd-timesyncd; in a VM, take the host's clock"});
  }
  return findings;
}

// What doctor prints as JSON.
struct Diagnosis {
  std::string schema = "nearmetal/doctor";
  std::string schema_version = "1.0";
  int64_t exit_code = 0;
  std::vector<Finding> findings;
  std::vector<Gpu> gpus;
  std::vector<RdmaDevice> rdma;
};

void fields(json::Archive& field, Diagnosis& document) {
  field.type("doctor",
             "What was looked at on this machine. Fields that are not listed here are allowed: "
             "minor versions add them.");
  field("schema", document.schema, json::one_of("nearmetal/doctor"));
  field("schema_version", document.schema_version, json::readable_version);
  field("exit_code", document.exit_code);
  field("findings", document.findings);
  field.added("gpus", document.gpus, "All that the driver lists, with their ways to NICs");
  field.added("rdma", document.rdma, "NICs with RDMA");
}

}  // namespace

std::vector<Finding> diagnose(const Checkup& checkup) {
  Findings findings = {machine_of(checkup)};
  for (const auto look : {of_driver, of_backends, of_mpi, of_nccl, of_hosts, of_gpus, of_peers,
                          of_exchange, of_nics, of_peer_rules, of_mig, of_layout, of_system}) {
    append(findings, look(checkup));
  }
  return findings;
}

std::string doctor_schema() {
  json::Json schema = json::SchemaWriter::document(Diagnosis{}, "Findings of nearmetal doctor");
  schema["properties"]["exit_code"] = {{"description", "8 where there is a blocker"},
                                       {"enum", {0, 8}}};
  return json::schema_text(schema);
}

std::string findings_to_json(const std::vector<Finding>& findings, const Environment& machine,
                             int exit_code) {
  return json::lines_of(Diagnosis{
      .exit_code = exit_code, .findings = findings, .gpus = machine.gpus, .rdma = machine.rdma});
}

}  // namespace nearmetal
