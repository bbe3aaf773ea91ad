#include <algorithm>
#include <stdexcept>

#include "bench/doctor/diagnose.h"
#include "models/errors.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

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
bool may_sweep(const Checkup& checkup) { return checkup.layout || checkup.gpus.size() > 1; }

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

void add_licence(const std::vector<Gpu>& gpus, std::vector<Finding>& findings) {
  for (const Gpu& gpu : gpus) {
    if (!gpu.vgpu_licence || *gpu.vgpu_licence == "licensed") continue;
    findings.push_back({Urgency::warning, "vgpu_unlicensed", gpu.name + " has no licence",
                        "an unlicensed vGPU is slowed down after a time of grace",
                        "configure the licence server of NVIDIA's vGPU software"});
  }
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

}  // namespace

void add_software_findings(const Checkup& checkup, std::vector<Finding>& findings) {
  add_driver(checkup, findings);
  add_backends(checkup, findings);
  add_mpi(checkup, findings);
  add_nccl(checkup.nccl, findings);
  add_hosts(checkup, findings);
  add_licence(checkup.gpus, findings);
  add_gnuplot(checkup.gnuplot, findings);
}

}  // namespace nearmetal
