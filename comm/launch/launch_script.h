// A plan as a script of bash, alone, as a batch job of Slurm or as a job of Kubernetes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/launch/launch_plan.h"

namespace nearmetal {

/// Starts one launch after the other; jobs at once run side by side. Reports go to the folder that
/// it runs in and never over a file that is there. Goes on after a launch that failed, ends with
/// the status of the last that did, and stops what runs when interrupted. All texts are quoted.
std::string shell_script(const LaunchPlan& plan);

/// The same for sbatch: nodes, ranks and GPUs for each, and the time as all limits together. Hosts
/// whose addresses are node_variable() are those that Slurm chooses; else it is asked for them.
std::string slurm_script(const LaunchPlan& plan);

/// The name of an MPIJob, unless another is asked for.
inline constexpr const char* standard_job_name = "nearmetal";

/// The name of an MPIJob, and what its pods have beside GPUs.
struct MpiJobPods {
  struct Devices {
    std::string resource;  // as the device plugin calls it: "rdma/hca_shared_devices_a"
    int64_t count = 1;     // for each worker
  };

  std::string job_name = standard_job_name;
  std::string image;  // made by scripts/container/Containerfile, or like it
  std::vector<Devices> rdma{};
  std::optional<std::array<std::string, 2>> huge_pages{};  // size, and that of all: "2Mi", "4Gi"
  std::optional<int64_t> cpus;                             // of each worker, at least
  std::optional<std::string> memory;                       // of each worker: "64Gi"
  std::optional<int64_t> launcher_cpus{};                  // at least
  std::optional<std::string> launcher_memory{};            // "1Gi"
  std::optional<std::string> volume_claim;  // for the reports; else they go with the launcher
};

/// A MPIJob of Kubeflow's MPI operator, version v2beta1. A worker with all GPUs of a node stands
/// for each host; the launcher runs the shell script in the volume of the reports and prints them
/// to its log at its end. The addresses of the hosts must be those of mpi_job_worker().
std::string mpi_job_yaml(const LaunchPlan& plan, const MpiJobPods& pods);

/// The name of a worker in the network of the job of that name.
std::string mpi_job_worker(const std::string& job_name, int64_t index);

}  // namespace nearmetal
