#include "bench/doctor/diagnose.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "bench/monitor/monitor_sources.h"
#include "comm/layout/gpu_profiles.h"
#include "comm/layout/peer_rules.h"
#include "models/errors.h"
#include "reports/conditions/exchange_conditions.h"
#include "reports/conditions/gpu_conditions.h"
#include "reports/conditions/gpu_direct_conditions.h"
#include "reports/conditions/host_conditions.h"
#include "reports/conditions/nic_conditions.h"
#include "reports/text/pattern.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

// "a VM (vmware)"
std::string kind_of(const Checkup& checkup) {
  const Virtualisation& found = checkup.environment.virtualisation;
  if (is_bare_metal(checkup.environment)) return "bare metal";
  if (is_vm(checkup.environment))
    return "a VM (" + found.hypervisor.value.value_or("unknown hypervisor") + ")";
  return "VM or bare metal, which is not known (" + found.machine.reason + ")";
}

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
  return {Urgency::ok, "machine", seen, "", ""};
}

void add_driver(const Checkup& checkup, std::vector<Finding>& findings) {
  if (!checkup.gpu_device_files) {
    findings.push_back({Urgency::note, "no_gpu", "no NVIDIA device files in /dev",
                        "runs train on the CPU, which says nothing about GPUs",
                        "install the driver, or give the container or VM its GPUs (docker: --gpus "
                        "all)"});
    return;
  }
  if (!checkup.nvml) {
    findings.push_back({Urgency::blocker, "no_nvml", checkup.nvml.reason,
                        "the driver and its library do not work together, and clocks, power and "
                        "links stay unknown",
                        "install libnvidia-ml of the driver's version; in a container: "
                        "NVIDIA_DRIVER_CAPABILITIES=compute,utility"});
    return;
  }
  if (checkup.environment.gpus.empty()) {
    findings.push_back({Urgency::blocker, "no_gpu_listed", "the driver lists no GPU",
                        "runs on a GPU cannot start", "see dmesg for lines of NVRM"});
  }
  const Maybe<std::string>& loaded = checkup.environment.virtualisation.nvidia_kernel_module;
  if (loaded && *loaded != *checkup.nvml) {
    findings.push_back({Urgency::blocker, "driver_mismatch",
                        "the kernel's module is " + *loaded + ", the library " + *checkup.nvml,
                        "they must be of the same version, or CUDA does not start",
                        "restart the machine after an update of the driver, or reload the module"});
  } else {
    findings.push_back({Urgency::ok, "driver", "driver " + *checkup.nvml, "", ""});
  }
}

std::string fix_of(const BackendCheck& backend) {
  switch (backend.obstacle) {
    case Obstacle::none:
      return "";
    case Obstacle::not_built:
      return "build with this backend (scripts/setup.sh)";
    case Obstacle::not_loaded:
      return "install the library that is named, or add its folder to LD_LIBRARY_PATH";
    case Obstacle::old_driver:
      return backend.fix;
    case Obstacle::no_device:
      return "install the driver of the GPU, or a newer one, or give the container or VM its GPU";
  }
  throw std::logic_error("unnamed Obstacle");
}

void add_backends(const Checkup& checkup, std::vector<Finding>& findings) {
  const bool any = std::ranges::any_of(checkup.backends, [](const auto& backend) {
    return backend.second.obstacle == Obstacle::none;
  });
  for (const auto& [name, backend] : checkup.backends) {
    if (backend.obstacle == Obstacle::none) {
      findings.push_back({Urgency::ok, "backend", "the " + name + " backend works", "", ""});
      continue;
    }
    const bool needed = !any || (name == "cuda" && checkup.gpu_device_files);
    const bool old = backend.obstacle == Obstacle::old_driver;
    findings.push_back({needed ? Urgency::blocker : Urgency::note,
                        old ? "driver_too_old" : "backend_unusable", name + ": " + backend.reason,
                        "runs with --device " + name + " cannot start", fix_of(backend)});
  }
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

void add_mpi(const Checkup& checkup, std::vector<Finding>& findings) {
  const std::optional<MpiLaunch>& mpi = checkup.mpi;
  if (!mpi) {
    findings.push_back(
        {may_sweep(checkup) ? Urgency::blocker : Urgency::note, "no_mpi", "mpirun is not on PATH",
         "sweeps, and jobs of several ranks, cannot be started from here", "install Open MPI"});
  } else if (mpi->status == 0 && mpi->ranks == 2) {
    findings.push_back({Urgency::ok, "mpi", "mpirun started two ranks", "", ""});
  } else {
    findings.push_back({Urgency::blocker, "mpi_launch",
                        "mpirun of two ranks, of which " + std::to_string(mpi->ranks) +
                            " answered: " + outcome(*mpi),
                        "jobs of several ranks cannot start",
                        "try `mpirun -n 2 hostname`; on hosts with several networks name one: "
                        "OMPI_MCA_btl_tcp_if_include and OMPI_MCA_oob_tcp_if_include"});
  }
}

void add_nccl(const std::optional<MpiLaunch>& nccl, std::vector<Finding>& findings) {
  if (!nccl) return;
  if (nccl->status == 0) {
    findings.push_back({Urgency::ok, "nccl", "NCCL summed over two GPUs", "", ""});
    return;
  }
  const bool missing = nccl->status == static_cast<int>(ExitCode::not_supported);
  findings.push_back(
      {missing ? Urgency::warning : Urgency::blocker, "nccl_start",
       "a sum over two GPUs: " + outcome(*nccl), "several GPUs cannot train one network",
       "run `mpirun -n 2 nearmetal micro nccl/allreduce/8B` with NCCL_DEBUG=INFO; in "
       "a container, give it a larger /dev/shm (docker: --shm-size 1g)"});
}

void add_hosts(const Checkup& checkup, std::vector<Finding>& findings) {
  if (checkup.host_names.empty()) return;
  const std::string what = "a sum over ranks on " + shortened(joined(checkup.host_names));
  if (!checkup.hosts) {
    findings.push_back({Urgency::blocker, "hosts_untried", what + " was not tried: no mpirun",
                        "jobs over these hosts cannot start", "install Open MPI here and there"});
    return;
  }
  if (checkup.hosts->status == 0) {
    findings.push_back({Urgency::ok, "hosts", what + " arrives", "", ""});
    return;
  }
  findings.push_back(
      {Urgency::blocker, "hosts_exchange", what + ": " + outcome(*checkup.hosts),
       "jobs over these hosts cannot start",
       "each must let this one in by ssh without a password (or launcher.remote_shell)"
       ", have this program at the same path and the same Open MPI, and its firewall "
       "must let all TCP ports of the others pass; launcher.network names the network "
       "that they share"});
}

void add_gnuplot(bool found, std::vector<Finding>& findings) {
  if (found) {
    findings.push_back({Urgency::ok, "gnuplot", "gnuplot draws the charts of pages", "", ""});
    return;
  }
  findings.push_back({Urgency::note, "no_gnuplot", "gnuplot is not on PATH",
                      "pages written by --html hold tables and no charts",
                      "install gnuplot-nox here, or where the page is written"});
}

// Processes and clocks of a GPU at this moment.
void add_gpu_now(const Checkup& checkup, size_t index, std::vector<Finding>& findings) {
  if (index >= checkup.gpus_now.size()) return;
  const GpuNow& now = checkup.gpus_now[index];
  const std::string gpu = "GPU " + std::to_string(index) + ": ";
  if (now.processes.value.value_or(0) > 0) {
    findings.push_back(
        {Urgency::warning, "gpu_in_use", gpu + std::to_string(*now.processes) + " processes use it",
         "they take time and memory from the measurement", "end them; nvidia-smi lists them"});
  }
  constexpr int64_t slowed_by_hardware_or_heat = 0x8 | 0x20 | 0x40 | 0x80;
  if ((now.throttle_bits.value.value_or(0) & slowed_by_hardware_or_heat) != 0) {
    findings.push_back(finding_of(condition_of(gpu_conditions(), "throttled_now"),
                                  checkup.environment,
                                  {gpu + "its clocks are held down by heat or power now"}));
  }
}

void add_gpus(const Checkup& checkup, std::vector<Finding>& findings) {
  const Environment& machine = checkup.environment;
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    const size_t before = findings.size();
    add_gpu_now(checkup, i, findings);
    for (const Condition& condition : gpu_conditions()) {
      if (!condition.here) continue;
      for (const Sign& sign : condition.here(machine)) {
        if (sign.gpu == i) findings.push_back(finding_of(condition, machine, sign));
      }
    }
    if (findings.size() > before) continue;
    findings.push_back({Urgency::ok, "gpu",
                        "GPU " + std::to_string(i) + ": " + machine.gpus[i].name + ", no findings",
                        "", ""});
  }
}

// The findings of a table; where there are none, that it was looked at.
void add_table(const Conditions& conditions, const Environment& machine, Finding if_none,
               std::vector<Finding>& findings) {
  std::vector<Finding> found = findings_of(conditions, machine);
  if (found.empty() && !if_none.seen.empty()) found.push_back(std::move(if_none));
  findings.insert(findings.end(), found.begin(), found.end());
}

// NVIDIA's boards with NVSwitches are SXM, also where the name does not say so (H200, B200); NVL
// are cards, which have NVLinks only where they are bridged. vGPUs of such boards have an X in the
// name of the board (A100DX-80C, H100XM-80C).
bool is_named_for_nvlinks(const std::string& name) {
  static const Pattern boards(R"(SXM|HBM3|\b(H20|G?B200|G?B300|H200)\b(?! NVL))");
  static const Pattern of_vgpus(R"([VAHB]\d+D?X[A-Z]?-.*)");
  const std::string profile = vgpu_profile_in(name);
  if (profile.empty()) return boards.is_in(name);
  return is_whole_gpu(profile) && of_vgpus.matches(profile);
}

// NVLinks that are told of, or names of GPUs on boards that have them.
bool has_nvlinks(const Gpu& gpu) {
  return gpu.active_nvlinks.value.value_or(0) + gpu.inactive_nvlinks.value.value_or(0) > 0 ||
         is_named_for_nvlinks(gpu.name);
}

// The ways between GPUs.
void add_peers(const Environment& machine, std::vector<Finding>& findings) {
  int64_t paths = 0;
  for (const Gpu& gpu : machine.gpus) paths += std::ssize(gpu.peers);
  const std::string all = "all " + std::to_string(paths) + " paths between GPUs by NVLink";
  const size_t before = findings.size();
  add_table(peer_conditions(), machine, {Urgency::ok, "peers", paths > 0 ? all : "", "", ""},
            findings);
  if (!is_vm(machine) || std::ranges::none_of(machine.gpus, has_nvlinks)) return;
  for (size_t i = before; i < findings.size(); ++i) {
    if (findings[i].code != "peers_without_nvlink") continue;
    findings[i] = finding_of(condition_of(peer_conditions(), "nvlink_lost"), machine,
                             {findings[i].seen + " of this VM, though the GPUs have NVLinks"});
  }
}

// NICs with RDMA, and the ways between them and GPUs.
void add_nics(const Environment& machine, std::vector<Finding>& findings) {
  if (machine.rdma.empty()) return;
  const size_t before = findings.size();
  add_table(nic_conditions(), machine, {}, findings);
  add_table(gpu_direct_conditions(), machine, {}, findings);
  if (findings.size() > before) return;
  findings.push_back({Urgency::ok, "nics",
                      counted(std::ssize(machine.rdma), "RDMA device") + ", no findings", "", ""});
}

PeerDevice device_of(const Gpu& gpu) {
  PeerDevice device{.host = this_host, .node = this_host, .mig = gpu.mig_profile.value.has_value()};
  device.vgpu_profile = gpu.vgpu_profile.value.value_or("");
  device.without_nvlink = std::ranges::any_of(
      gpu.peers, [](const GpuPeer& peer) { return peer.nvlink.value == false; });
  return device;
}

// The vGPUs and MIG devices that are no peers: of the layout's jobs, else of all GPUs here.
void add_peer_rules(const Checkup& checkup, std::vector<Finding>& findings) {
  std::vector<Finding> found;
  if (checkup.layout) {
    found = checkup.layout->peers;
  } else {
    std::vector<PeerDevice> devices;
    for (const Gpu& gpu : checkup.environment.gpus) devices.push_back(device_of(gpu));
    found = peer_findings("a job on all GPUs of this machine", devices);
  }
  findings.insert(findings.end(), found.begin(), found.end());
}

// Whether MIG is as a configuration says, where one was named.
void add_mig(const Checkup& checkup, std::vector<Finding>& findings) {
  if (!checkup.mig_config) return;
  const MigConfig& wanted = *checkup.mig_config;
  const std::string name = "'" + wanted.label + "' of " + wanted.file;
  constexpr const char* why = "jobs would have other parts of the GPUs, or none";
  if (checkup.environment.gpus.empty()) {
    const std::string reason = checkup.nvml ? "the driver lists no GPU" : checkup.nvml.reason;
    findings.push_back({Urgency::blocker, "mig_config", "no GPU to check against " + name, why,
                        "fix the driver first: " + reason});
    return;
  }
  const std::vector<std::string> differences = mig_differences(wanted, checkup.environment.gpus);
  for (const std::string& difference : differences) {
    findings.push_back({Urgency::blocker, "mig_config", difference, why, apply_command(wanted)});
  }
  if (!differences.empty()) return;
  findings.push_back({Urgency::ok, "mig_config", "MIG is as " + name + " says", "", ""});
}

// Whether a sweep of a layout file could start, where one was named.
void add_layout(const Checkup& checkup, std::vector<Finding>& findings) {
  if (!checkup.layout) return;
  const LayoutCheck& layout = *checkup.layout;
  for (const std::string& problem : layout.problems) {
    findings.push_back({Urgency::blocker, "layout", problem,
                        "a sweep of this file would refuse it, or its jobs would fail",
                        "change the file, or the machine as it says"});
  }
  if (layout.problems.empty()) {
    const std::string layouts = " (" + counted(layout.layouts, "layout") + ")";
    findings.push_back(
        {Urgency::ok, "layout",
         layout.file + (layout.names_this_machine
                            ? ": this machine has all that a sweep of it" + layouts + " needs"
                            : layouts + ": its hosts are other machines, whose "
                                        "GPUs are not looked at from here"),
         "", ""});
  }
  for (const UnsupportedArm& arm : layout.left_out) {
    findings.push_back({Urgency::note, "layout_left_out",
                        layout.file + ": " + arm.name + " is left out: " + arm.reason,
                        "a sweep reports it as unsupported and runs the others",
                        "nothing to do, unless it is to run: use a machine that has it"});
  }
  if (!checkup.host_names.empty()) return;
  findings.push_back({Urgency::note, "network_untried",
                      layout.file + " names no other host, so that no network was tried",
                      "its jobs stay on this machine",
                      "nothing to do, unless jobs are to run on others: name these in \"hosts\""});
}

constexpr int64_t mebibyte = int64_t{1} << 20;
constexpr int64_t little_disk = 256 * mebibyte;

void add_files(const Checkup& checkup, std::vector<Finding>& findings) {
  if (checkup.plan_cache_writable && !*checkup.plan_cache_writable) {
    findings.push_back({Urgency::warning, "plan_cache_read_only",
                        checkup.plan_cache_folder + " cannot be written",
                        "every run chooses its kernels anew, perhaps others",
                        "make it writable, or give --plan-cache another place"});
  }
  if (checkup.free_disk_bytes && *checkup.free_disk_bytes < little_disk) {
    findings.push_back(
        {Urgency::warning, "little_disk",
         std::to_string(*checkup.free_disk_bytes / mebibyte) + " MiB are free in this folder",
         "reports may not fit", "make room, or give --output another place"});
  }
}

// What of the system changes from moment to moment.
void add_system_now(const Checkup& checkup, std::vector<Finding>& findings) {
  if (const Maybe<double>& busy = checkup.cpus_busy_with_others; busy && *busy > others_may_use) {
    findings.push_back(
        finding_of(condition_of(system_conditions(), "cpus_in_use"), checkup.environment,
                   {"other processes keep " + significant(*busy, 2) + " CPUs busy"}));
  }
  if (checkup.clock_synchronised && !*checkup.clock_synchronised) {
    findings.push_back({Urgency::note, "clock_not_synchronised",
                        "the kernel says that its clock is not synchronised",
                        "times in reports of several hosts may not agree",
                        "run chrony or systemd-timesyncd; in a VM, take the host's clock"});
  }
}

}  // namespace

std::vector<Finding> diagnose(const Checkup& checkup) {
  const Environment& machine = checkup.environment;
  std::vector<Finding> findings = {machine_of(checkup)};
  add_driver(checkup, findings);
  add_backends(checkup, findings);
  add_mpi(checkup, findings);
  add_nccl(checkup.nccl, findings);
  add_hosts(checkup, findings);
  add_gnuplot(checkup.gnuplot, findings);
  add_gpus(checkup, findings);
  add_peers(machine, findings);
  add_table(exchange_conditions(), machine, {}, findings);
  add_nics(machine, findings);
  add_peer_rules(checkup, findings);
  add_mig(checkup, findings);
  add_layout(checkup, findings);
  add_table(limit_conditions(), machine,
            {Urgency::ok, "limits", "/dev/shm, memlock and nofile suffice", "", ""}, findings);
  add_table(system_conditions(), machine, {}, findings);
  add_files(checkup, findings);
  add_system_now(checkup, findings);
  return findings;
}

}  // namespace nearmetal
