#include <algorithm>

#include "bench/doctor/findings.h"

namespace nearmetal {
namespace {

void add_driver(const Checkup& checkup, std::vector<Finding>& findings) {
  if (!checkup.gpu_device_files) {
    findings.push_back({Urgency::note, "no_gpu", "no NVIDIA device files in /dev",
                        "runs train on the CPU, which says nothing of GPUs",
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
  if (checkup.gpus.empty()) {
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

void add_backends(const Checkup& checkup, std::vector<Finding>& findings) {
  const bool any = std::any_of(checkup.backends.begin(), checkup.backends.end(),
                               [](const auto& backend) { return backend.second.empty(); });
  for (const auto& [name, problem] : checkup.backends) {
    if (problem.empty()) {
      findings.push_back({Urgency::ok, "backend", "the " + name + " backend works", "", ""});
      continue;
    }
    const bool needed = !any || (name == "cuda" && checkup.gpu_device_files);
    findings.push_back({needed ? Urgency::blocker : Urgency::note, "backend_unusable",
                        name + ": " + problem, "runs with --device " + name + " cannot start",
                        "install what is missing, or build with this backend (scripts/setup.sh)"});
  }
}

void add_mpi(const MpiLaunch& mpi, std::vector<Finding>& findings) {
  if (!mpi.found) {
    findings.push_back({Urgency::note, "no_mpi", "mpirun is not on PATH",
                        "several ranks cannot be started from here", "install Open MPI"});
  } else if (mpi.status == 0 && mpi.ranks == 2) {
    findings.push_back({Urgency::ok, "mpi", "mpirun started two ranks", "", ""});
  } else {
    const std::string how = !mpi.status ? "did not end in time"
                                        : "exit status " + std::to_string(*mpi.status) + ", " +
                                              std::to_string(mpi.ranks) + " of 2 ranks answered";
    findings.push_back({Urgency::blocker, "mpi_launch",
                        "mpirun of two ranks: " + how + (mpi.text.empty() ? "" : ": " + mpi.text),
                        "jobs of several ranks cannot start",
                        "try `mpirun -n 2 hostname`; on hosts with several networks name one: "
                        "OMPI_MCA_btl_tcp_if_include and OMPI_MCA_oob_tcp_if_include"});
  }
}

void add_licence(const std::vector<Gpu>& gpus, std::vector<Finding>& findings) {
  for (const Gpu& gpu : gpus) {
    if (!gpu.vgpu_licence || *gpu.vgpu_licence == "licensed") continue;
    findings.push_back({Urgency::warning, "vgpu_unlicensed", gpu.name + " has no licence",
                        "an unlicensed vGPU is slowed down after a time of grace",
                        "configure the licence server of NVIDIA's vGPU software"});
  }
}

}  // namespace

void add_software_findings(const Checkup& checkup, std::vector<Finding>& findings) {
  add_driver(checkup, findings);
  add_backends(checkup, findings);
  add_mpi(checkup.mpi, findings);
  add_licence(checkup.gpus, findings);
}

}  // namespace nearmetal
