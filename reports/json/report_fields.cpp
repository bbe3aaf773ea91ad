// The fields of a report, in the order of the document, with what must hold of them. Whatever reads
// reports, writes them or describes them follows these lists: a field is declared here alone.
#include "reports/json/report_fields.h"

#include "reports/document/settings.h"
#include "reports/json/forecast_fields.h"
#include "reports/json/survey_fields.h"

namespace nearmetal::json {

void fields(Archive& field, RdmaGid& gid) {
  field.type("rdma_gid", "An address of an RDMA port");
  field("index", gid.index, at_least(0));
  field("gid", gid.gid);
  field("type", gid.type, "IB/RoCE v1 or RoCE v2");
  field("interface", gid.interface, "Network interface");
}

void fields(Archive& field, RdmaPort& port) {
  field.type("rdma_port", "A port of an RDMA device");
  field("number", port.number, at_least(0));
  field("state", port.state, "active, down, init, armed");
  field("physical_state", port.physical_state, "linkup, disabled, polling, ...");
  field("link_layer", port.link_layer, "InfiniBand; Ethernet: RoCE");
  field("bits_per_second", port.bits_per_second, at_least(0));
  field("gids", port.gids, "GIDs that are set");
}

void fields(Archive& field, RdmaDevice& device) {
  field.type("rdma_device", "A NIC that can read and write memory by itself (RDMA)");
  field("name", device.name);
  field("interfaces", device.interfaces, "Its network interfaces, as ibdev2netdev shows them");
  field("pci_id", device.pci_id);
  field("device_id", device.device_id,
        "Id on the PCI bus, with that of the maker, such as 0x102115B3");
  field("model", device.model, "Name in the list of PCI ids, else as its driver calls it");
  field("board_id", device.board_id);
  field("firmware", device.firmware);
  field("driver", device.driver);
  field("driver_version", device.driver_version,
        "Version of the driver if it has one, as those of OFED do");
  field("device_file", device.device_file,
        "Whether its file in /dev/infiniband is there, by which programs use it");
  field("numa_node", device.numa_node, at_least(-1));
  field("link_generation", device.link_generation, at_least(0), "Generation of PCIe");
  field("link_width", device.link_width, at_least(0));
  field("largest_link_generation", device.largest_link_generation, at_least(0));
  field("largest_link_width", device.largest_link_width, at_least(0));
  field("iommu_group", device.iommu_group, at_least(0));
  field("iommu_type", device.iommu_type, "identity, DMA, DMA-FQ");
  field("virtual_function", device.virtual_function, "Whether it is one of SR-IOV");
  field("ats_capable", device.ats_capable, "It could keep translations of the IOMMU");
  field("ats", device.ats, "Translations of the IOMMU are kept by the NIC");
  field("acs_redirect", device.acs_redirect,
        "Bridges above it send what peers send one another to the root complex");
  field("ports", device.ports);
}

void fields(Archive& field, NicPath& path) {
  field.type("nic_path", "The way from a GPU to a NIC of its host");
  field("rdma_device", path.rdma_device, "Name of the RDMA device");
  field("distance", path.distance,
        "What lies between, as nvidia-smi topo -m calls it. PIX: at most one PCIe switch; PXB: "
        "several; PHB: a host bridge; NODE: the way between host bridges of a NUMA node; SYS: that "
        "between NUMA nodes");
  field("gpu_direct_rdma", path.gpu_direct_rdma,
        "Means by which the NIC may read and write the GPU's memory; none: data go through the "
        "host's");
}

void fields(Archive& field, Virtualisation& virtualisation) {
  field.type("virtualisation", "What tells a virtual machine and a container from bare metal");
  field("machine", virtualisation.machine, before(MachineKind::container));
  field("hypervisor", virtualisation.hypervisor, "kvm, firecracker, vmware, ...; none");
  field.added("hypervisor_version", virtualisation.hypervisor_version,
              "Where a guest sees it: of Xen, Hyper-V, and as the type of the machine of QEMU");
  field("container", virtualisation.container, "docker, podman, gvisor, ...; none");
  field.added("confidential", virtualisation.confidential,
              "Of a guest whose memory is encrypted: sev-snp, tdx, ...; none; since 1.17");
  field.added("interposer", virtualisation.interposer,
              "Library before libcuda in the process, as those that limit shares of a GPU; none; "
              "since 1.17");
  field("cpuid_signature", virtualisation.cpuid_signature, "CPUID leaf 0x40000000");
  field("dmi_vendor", virtualisation.dmi_vendor, "Vendor of the system");
  field("dmi_product", virtualisation.dmi_product, "Name of the system");
  field.added("bios_version", virtualisation.bios_version);
  field("hypervisor_type", virtualisation.hypervisor_type, "/sys/hypervisor/type");
  field("detect_virt_vm", virtualisation.detect_virt_vm, "Answer of systemd-detect-virt --vm");
  field("detect_virt_container", virtualisation.detect_virt_container,
        "Answer of systemd-detect-virt --container");
  field("clock_source", virtualisation.clock_source);
  field("iommu_groups", virtualisation.iommu_groups, at_least(0), "0: no IOMMU is seen from here");
  field("kernel_options", virtualisation.kernel_options,
        "Options of IOMMU, PCI, huge pages and mitigations");
  field("mps_daemon", virtualisation.mps_daemon,
        "Whether there is a control pipe of NVIDIA's multi-process service");
  field("peer_memory_module", virtualisation.peer_memory_module,
        "nvidia_peermem: GPUDirect RDMA without DMA-BUF");
  field("nvidia_kernel_module", virtualisation.nvidia_kernel_module, "Version of the loaded one");
  field.added("nvidia_kernel_flavour", virtualisation.nvidia_kernel_flavour,
              "open or proprietary: only the open one has dma-bufs");
}

void fields(Archive& field, Processor& processor) {
  field.type("processor", "The CPUs of the system");
  field.added("vendor", processor.vendor, "By CPUID, as are the next three");
  field.added("family", processor.family, at_least(0));
  field.added("model", processor.model, at_least(0));
  field.added("stepping", processor.stepping, at_least(0));
  field.added("microcode", processor.microcode);
  field.added("cache", processor.cache, "As /proc/cpuinfo has it");
  field("sockets", processor.sockets, at_least(0));
  field("cores", processor.cores, at_least(0));
  field("numa_nodes", processor.numa_nodes, at_least(0));
  field("governor", processor.governor, "Governor of CPU frequency; distinct ones joined");
  field("largest_hertz", processor.largest_hertz, at_least(0));
}

void fields(Archive& field, Limits& limits) {
  field.type("limits", "Limits of this process, and pages that the system keeps");
  field("locked_memory_bytes", limits.locked_memory_bytes, at_least(0));
  field("open_files", limits.open_files, at_least(0));
  field("shared_memory_bytes", limits.shared_memory_bytes, at_least(0), "Size of /dev/shm");
  field("huge_pages", limits.huge_pages, at_least(0), "Reserved pages");
  field("huge_page_bytes", limits.huge_page_bytes, at_least(0));
  field("transparent_huge_pages", limits.transparent_huge_pages);
  field.added("numa_balancing", limits.numa_balancing,
              "Whether the kernel moves pages to the NUMA node that uses them");
  field.added("cross_memory_attach", limits.cross_memory_attach,
              "Whether process_vm_readv is allowed, as MPI uses it within a host; since 1.16");
}

void fields(Archive& field, Storage& storage) {
  field.type("storage", "The file system of the working folder");
  field("file_system", storage.file_system, "ext4, nfs4, overlay, ...");
  field("device", storage.device, "What is mounted");
  field("free_bytes", storage.free_bytes, at_least(0));
}

void fields(Archive& field, NetworkInterface& network_interface) {
  field.type("network_interface", "A network interface");
  field("name", network_interface.name);
  field("driver", network_interface.driver);
  field("state", network_interface.state);
  field("bits_per_second", network_interface.bits_per_second, at_least(0),
        "By its driver; less where tc limits what leaves by it (tbf)");
  field("mtu_bytes", network_interface.mtu_bytes, at_least(0));
  field("numa_node", network_interface.numa_node, at_least(-1));
  field("rdma_device", network_interface.rdma_device);
  field("virtual_function", network_interface.virtual_function);
}

void fields(Archive& field, GpuPeer& gpu_peer) {
  field.type("gpu_peer", "A path to another GPU of this host");
  field("pci_id", gpu_peer.pci_id);
  field("reads", gpu_peer.reads);
  field("atomics", gpu_peer.atomics);
  field("nvlink", gpu_peer.nvlink);
  field.added("distance", gpu_peer.distance, "Distance by PCIe, whether or not there is an NVLink");
}

void fields(Archive& field, MigInstance& mig_instance) {
  field.type("mig_instance", "A MIG device of the GPU");
  field("uuid", mig_instance.uuid);
  field.added("profile", mig_instance.profile, "Such as 1g.18gb");
  field("multiprocessors", mig_instance.multiprocessors, at_least(1),
        "Equal profiles may have different numbers");
  field("gpu_slices", mig_instance.gpu_slices, at_least(0));
  field("memory_bytes", mig_instance.memory_bytes, at_least(0));
}

void fields(Archive& field, Gpu& gpu) {
  field.type("gpu", "A GPU that was used");
  field("name", gpu.name);
  field("uuid", gpu.uuid);
  field("pci_id", gpu.pci_id);
  field("memory_bytes", gpu.memory_bytes, at_least(0));
  field("multiprocessors", gpu.multiprocessors, at_least(1));
  field("compute_capability", gpu.compute_capability);
  field("driver_version", gpu.driver_version);
  field.added("dma_buf", gpu.dma_buf,
              "Its memory can be shared with NICs as a dma-buf: GPUDirect RDMA");
  field.added("serial", gpu.serial);
  field.added("vbios", gpu.vbios);
  field.added("virtualisation", gpu.virtualisation,
              "none, passthrough, vgpu, host-vgpu, host-vsga");
  field.added("vgpu_profile", gpu.vgpu_profile, "Profile of a vGPU, such as A100-40C");
  field.added("vgpu_licence", gpu.vgpu_licence, "licensed, unlicensed");
  field.added("confidential", gpu.confidential, "off, on, devtools: with debugging; since 1.17");
  field.added("vgpu_scheduler", gpu.vgpu_scheduler, "best effort, equal share or fixed share");
  field.added("link_generation", gpu.link_generation, at_least(0),
              "Generation of PCIe; idle GPUs lower it");
  field.added("link_width", gpu.link_width, at_least(0));
  field.added("largest_link_generation", gpu.largest_link_generation, at_least(0));
  field.added("largest_link_width", gpu.largest_link_width, at_least(0));
  field.added("bar1_bytes", gpu.bar1_bytes, at_least(0));
  field.added("ecc", gpu.ecc);
  field.added("ecc_change_pending", gpu.ecc_change_pending);
  field.added("memory_repair_pending", gpu.memory_repair_pending,
              "Retired pages or remapped rows wait for a reset");
  field.added("persistence", gpu.persistence);
  field.added("compute_mode", gpu.compute_mode);
  field.added("power_limit_watts", gpu.power_limit_watts, at_least(0));
  field.added("default_power_limit_watts", gpu.default_power_limit_watts, at_least(0));
  field.added("largest_sm_hertz", gpu.largest_sm_hertz, at_least(0));
  field.added("largest_memory_hertz", gpu.largest_memory_hertz, at_least(0));
  field.added("application_sm_hertz", gpu.application_sm_hertz, at_least(0),
              "The limit that an administrator set");
  field.added("device_id", gpu.device_id,
              "Id on the PCI bus, with that of the maker, such as 0x233510DE");
  field.added("subsystem_id", gpu.subsystem_id, "The same of its board");
  field.added("mig", gpu.mig);
  field.added("mig_change_pending", gpu.mig_change_pending);
  field.added("mig_profile", gpu.mig_profile,
              "Profile of the MIG device that this is; its UUID is uuid");
  field.added("mig_instances", gpu.mig_instances);
  field.added("active_nvlinks", gpu.active_nvlinks, at_least(0));
  field.added("inactive_nvlinks", gpu.inactive_nvlinks, at_least(0));
  field.added("peers", gpu.peers);
  field.added("numa_node", gpu.numa_node, at_least(-1));
  field.added("cpu_affinity", gpu.cpu_affinity, "CPUs next to it");
  field.added("iommu_group", gpu.iommu_group, at_least(0));
  field.added("iommu_type", gpu.iommu_type, "identity, DMA, DMA-FQ");
  field.added("virtual_function", gpu.virtual_function, "Whether it is one of SR-IOV");
  field.added("own_link_generation", gpu.own_link_generation, at_least(0),
              "Generation of PCIe that the GPU is capable of, whatever its slot is");
  field.added("ats_capable", gpu.ats_capable, "It could keep translations of the IOMMU");
  field.added("ats", gpu.ats, "Translations of the IOMMU are kept by the GPU");
  field.added("acs_redirect", gpu.acs_redirect,
              "Bridges above it send what peers send one another to the root complex");
  field.added("nics", gpu.nics, "To each RDMA device of the host");
}

void fields(Archive& field, Environment& environment) {
  field.type("environment", "One operating-system instance as its ranks found it");
  field("host_name", environment.host_name);
  field.added("boot_id", environment.boot_id, "Another one whenever the kernel starts");
  field.added("machine_id", environment.machine_id, "SHA-256 made of /etc/machine-id");
  field("kernel", environment.kernel);
  field("distribution", environment.distribution);
  field("architecture", environment.architecture);
  field("cpu_model", environment.cpu_model);
  field("logical_cpus", environment.logical_cpus, at_least(1), "CPUs that are online");
  field("usable_cpus", environment.usable_cpus, at_least(1),
        "CPUs that this process may use by its affinity mask");
  field("cpu_quota", environment.cpu_quota, above(0), "Limit of the control group, in CPUs");
  field("memory_bytes", environment.memory_bytes, at_least(0));
  field("memory_limit_bytes", environment.memory_limit_bytes, at_least(0),
        "Limit of the control group");
  field("hypervisor_cpu_flag", environment.hypervisor_cpu_flag, "CPUID leaf 1: ECX bit 31");
  field.added("claim", environment.claim,
              "Kind of machine that the user claims it to be (--environment)");
  field.added("virtualisation", environment.virtualisation);
  field.added("processor", environment.processor);
  field.added("limits", environment.limits);
  field.added("storage", environment.storage);
  field.added("network", environment.network);
  field.added("rdma", environment.rdma, "RDMA devices");
  field.added("nccl_topology_file", environment.nccl_topology_file,
              "Topology file that NCCL would read");
  field("gpus", environment.gpus, "GPUs that were used");
  field("libraries", environment.libraries, "Name to version, as loaded");
  field("variables", environment.variables, "Environment variables by allow-list");
  field.added("host_facts", environment.host_facts, "What the host's operator says of it");
  field("ld_preload", environment.ld_preload, "Whether LD_PRELOAD is set");
  field.added("ld_library_path", environment.ld_library_path,
              "Whether LD_LIBRARY_PATH is set; null: the version does not report it");
  field.added("ld_audit", environment.ld_audit,
              "Whether LD_AUDIT is set; null: the version does not report it");
}

void fields(Archive& field, ImportedSource& source) {
  field.type("imported_source", "A published file that results were read from");
  field("file", source.file, "Its name, without folders");
  field("sha256", source.sha256, hash, "Hash of the whole file");
  field("format", source.format);
  field("origin", source.origin, "Where it was published; null: not stated");
}

void fields(Archive& field, ImportedRun& run) {
  field.type("imported_run",
             "A result from a published file. What the file does not say is null or absent");
  field("source", run.source, at_least(0), "Index into sources");
  field("line", run.line, at_least(1),
        "Line with which the result begins; null: the file has none");
  field("number", run.number, at_least(0), "Its place among the results of the file");
  field("started_at", run.started_at, time_stamp, "RFC 3339, UTC");
  field("world_size", run.world_size, at_least(1), "Number of GPUs");
  field.unit("sample", run.sample);
  field(field.words().throughput_key, run.throughput, above(0), "Of all GPUs");
  field("bus_bandwidth_bytes_per_second", run.bus_bandwidth, above(0), "As nccl-tests defines it");
  field("work", run.work, "What must agree between runs that are compared");
  field("facts", run.facts, "What else the file says, by its own names");
}

void fields(Archive& field, Invocation& invocation) {
  field.type("invocation", "What was asked");
  field("argv", invocation.argv);
  field("started_at", invocation.started_at, time_stamp, "RFC 3339, UTC");
  field.settings("config", invocation.config, invocation.origins,
                 "Every setting as it ran, and who chose it; null: imported or predicted");
  field("config_sha256", invocation.config_sha256, hash,
        "Hash of the settings that decide what is computed; null: imported or predicted");
}

void fields(Archive& field, ArmShare& share) {
  field.type("share", "How the jobs have one GPU, or the same CPUs");
  field("way", share.mode,
        "One job alone; jobs one after another, at once in time slices, through an MPS daemon, or "
        "so on multiprocessors of their own, on MIG devices, or each on the vGPU of its VM");
  field("jobs", share.jobs, at_least(1));
  field("threads_percent", share.threads_percent, within(1, 100),
        "Share of the multiprocessors, by job, those of neighbours last; empty: no limit");
  field("memory_gib", share.memory_gib, at_least(0),
        "Memory of the GPU, by job, 0: no limit; empty: none has one");
  field.added("profiles", share.profiles,
              "Profiles of MIG devices (the UUID where it is not known) or vGPUs, by job, those of "
              "neighbours last; empty: other ways");
  field.added("neighbours", share.neighbours,
              "What each process does that trains nothing: copy, compute or pcie");
}

void fields(Archive& field, ArmSpeedup& speedup) {
  field.type("speedup", "Throughput against that of the arm with the fewest ranks");
  field("against", speedup.against,
        "That arm; itself: it is that one, whose speedup is held to be");
  field("ranks", speedup.ranks, at_least(1));
  field("speedup", speedup.speedup, above(0), "Throughput / that of one rank of that arm");
  field("speedup_lower", speedup.speedup_lower, "95 % interval of the speedup");
  field("speedup_upper", speedup.speedup_upper);
  field("efficiency", speedup.efficiency, above(0), "Speedup / ranks");
  field("efficiency_lower", speedup.efficiency_lower);
  field("efficiency_upper", speedup.efficiency_upper);
}

void fields(Archive& field, Executable& executable) {
  field.type("executable", "A build of the program that an arm ran in place of the one at hand");
  field("path", executable.path);
  field("sha256", executable.sha256, hash, "Hash of the file");
  field("modules_sha256", executable.modules_sha256,
        "Hashes of the modules that it loads, by the name of their file");
}

void fields(Archive& field, GridPoint& point) {
  field.type("grid_point", "Where an arm stands in the grid of a sweep");
  field("layout", point.layout, "Layout that runs with each combination of the grid");
  field("settings", point.settings,
        "Settings of this combination, by their names in layout files, as their text");
}

void fields(Archive& field, Arm& arm) {
  field.type("arm", "One of the configurations of a report, measured by one or more runs");
  field("name", arm.name);
  field("kind", arm.kind);
  field.added("config", arm.config,
              "Settings by name, where they are not those of the invocation; else null");
  field.added("workloads", arm.workloads,
              "Settings of each job by name, where jobs differ in them: then `config` is that of "
              "the first; else empty. Since 1.10");
  field.added("scaling", arm.scaling,
              "In a sweep over several numbers of ranks: the same batch on each rank, or in all; "
              "null: one number, or no sweep");
  field.added("speedup", arm.speedup,
              "In a sweep over several numbers of ranks, as that sweep found it: `report` finds it "
              "anew from the runs; null: as scaling. Since 1.8");
  field.added("share", arm.share,
              "How the jobs have one GPU, or the same CPUs; null: what a job takes is its own");
  field.added("executable", arm.executable,
              "The program that a layout file named for the arm; null: that of the report");
  field.added("grid", arm.grid, "In a sweep with a grid; else null. Since 1.10");
  field.added("unsupported", arm.unsupported, "Why there are no runs: what this machine cannot do");
  field("runs", arm.runs);
  field.added(
      "imported", arm.imported,
      "Results of other programs, in place of runs; empty unless the kind is imported; since "
      "1.9");
  field.added("forecast", arm.forecast,
              "In place of runs, where the kind is predicted; else null. Since 1.17");
}

void fields(Archive& field, Report& report) {
  field.type("report",
             "What was asked, what was found and what was measured. SI units. Unknown values are "
             "null, with the reason under the same name in `unknown` of the object; a null that is "
             "not in `unknown` does not apply or was not asked for. Fields that are not listed "
             "here are allowed: minor versions add them.");
  field("schema", report.schema, one_of("nearmetal/report"));
  field("schema_version", report.schema_version, readable_version,
        "Major: breaks readers; minor: adds");
  field("kind", report.kind);
  field("status", report.status);
  field("exit_code", report.exit_code, within(0, 255));
  field("tool", report.tool, "The one that wrote the report");
  field("invocation", report.invocation);
  field("environments", report.environments);
  field("arms", report.arms);
  field.added(
      "sources", report.sources,
      "The files that imported results are of; empty unless the kind is imported; since 1.9");
  field.added("forecasts", report.forecasts,
              "What forecasts rest on; empty unless the kind is predicted; since 1.17");
  field.added("survey", report.survey,
              "What a survey found; null: the report is of none; "
              "since 1.18");
}

void fields(Archive& field, LossScale& scale) {
  field.type("loss_scale", "Factor of the loss before the backward pass");
  field("initial", scale.initial, above(0));
  field("dynamic", scale.dynamic);
}

template <class Check>
Check check_of(const Setting& setting) {
  if constexpr (std::is_same_v<Check, Range>) {
    return setting.range;
  } else if constexpr (std::is_same_v<Check, Names>) {
    return setting.resolved ? Names{0} : setting.names;
  } else {
    return any_text;
  }
}

void fields(Archive& field, RunConfig& config) {
  field.type("config", "Every setting of a run");
  visit_settings(
      [&](const Setting& setting, auto& value) {
        const auto check = check_of<CheckOf<std::decay_t<decltype(value)>>>(setting);
        if (setting.added) {
          field.added(setting.name, value, check, setting.meaning);
        } else {
          field(setting.name, value, check, setting.meaning);
        }
      },
      config);
}

void fields(Archive& field, Neighbour& neighbour) {
  field.type("neighbour",
             "A process that trains nothing and was there to disturb: what it did while the jobs "
             "were in their windows");
  field("load", neighbour.load, "copy, compute or pcie");
  field("runs_per_second", neighbour.runs_per_second, at_least(0));
  field("bytes_per_second", neighbour.bytes_per_second, at_least(0),
        "Read plus written, or over the link; 0: it moves none");
  field("flops_per_second", neighbour.flops_per_second, at_least(0));
}

void fields(Archive& field, StepDigest& step) {
  field.type("step_digest", "What a step of training from the seed left");
  field("step", step.step, at_least(1));
  field("loss", step.loss, "In C's hexadecimal form, which has all bits");
  field("sha256", step.sha256, "First 16 digits of the hash of each parameter's bytes in fp32");
}

void fields(Archive& field, DigestGroup& group) {
  field.type("digest_group", "Ranks that computed the same, to the last bit");
  field("ranks", group.ranks, at_least(0));
  field("kernels", group.kernels, hash, "plans_sha256 of these ranks; null: not known");
  field("parameters", group.parameters, "In the order of the graph, by the names of export");
  field("steps", group.steps);
}

void fields(Archive& field, Tool& tool) {
  field.type("tool", "A build of the program");
  field("version", tool.version);
  field("git_commit", tool.git_commit, commit);
  field("dirty", tool.dirty, "Built from sources that differ from the commit");
  field("build_type", tool.build_type);
  field("compiler", tool.compiler);
  field.added("build_id", tool.build_id, hash,
              "Hash of the GNU build IDs of the executable and its modules; null: not known; since "
              "1.8");
}

void fields(Archive& field, Finding& finding) {
  field.type("finding");
  field("severity", finding.severity);
  field("code", finding.code, code, "Stable, for scripts");
  field("seen", finding.seen);
  field("why", finding.why, "Why it matters for the number; empty where all is well");
  field("fix", finding.fix);
}

}  // namespace nearmetal::json
