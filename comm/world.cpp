#include "comm/world.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <stdexcept>

#include "base/text.h"
#include "models/load_module.h"

namespace nearmetal {
namespace {

class AloneWorld : public World {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  int local_rank() const override { return 0; }
  int local_size() const override { return 1; }
  const CallCounts* calls() const override { return nullptr; }
  Maybe<std::vector<std::string>> transports() const override { return Unknown{"one rank alone"}; }
  std::vector<std::string> all_gather(const std::string& bytes) override { return {bytes}; }
  std::vector<std::string> gather(std::string bytes) override { return {std::move(bytes)}; }
  std::string broadcast(const std::string& bytes) override { return bytes; }
  void maximum(std::span<int64_t>) override {}
  void start_maximum(int64_t value) override { started_ = value; }
  std::optional<int64_t> started_maximum() override { return started_; }
  std::unique_ptr<World> split(int) override { return std::make_unique<AloneWorld>(); }
  std::unique_ptr<HostSum> host_sum(int) override { return nullptr; }
  std::vector<Probe> probes() override { return {}; }
  [[noreturn]] void abort(int exit_code) override { std::_Exit(exit_code); }

 private:
  int64_t started_ = 0;
};

std::unique_ptr<World> join_launched(int64_t processes, const std::string& threads_for) {
  void* entry = load_module("mpi", "MPI module", world_entry_name, true);
  std::unique_ptr<World> world(reinterpret_cast<WorldEntry>(entry)(threads_for));
  if (world->size() != processes) {
    throw std::invalid_argument("the launcher started " + std::to_string(processes) +
                                " processes, but MPI sees " + std::to_string(world->size()) +
                                ": start them with the mpirun of the MPI that nearmetal was built "
                                "with, or srun --mpi=pmix");
  }
  return world;
}

// The variables in which a launcher tells each process how many there are, and which it is. `sign`:
// one that must be there, too, as others set the same.
struct LauncherVariables {
  const char* size;
  const char* rank;
  const char* sign = nullptr;

  const char* said(const char* variable) const {
    return sign == nullptr || std::getenv(sign) != nullptr ? std::getenv(variable) : nullptr;
  }
};

// mpirun of Open MPI; Hydra of MPICH and Intel MPI; MVAPICH2; a job step of Slurm;
// horovodrun over Gloo (horovod/runner/gloo_run.py); torchrun and its likes
// (local_elastic_agent.py; launcher/launch.py of DeepSpeed).
constexpr LauncherVariables launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
    {"PMI_SIZE", "PMI_RANK"},
    {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"},
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},
    {"HOROVOD_SIZE", "HOROVOD_RANK"},
    {"WORLD_SIZE", "RANK", "TORCHELASTIC_RUN_ID"},
    {"WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE"},
    {"WORLD_SIZE", "RANK", "LOCAL_RANK"},
};

}  // namespace

std::optional<int64_t> launched_processes() {
  for (const LauncherVariables& launcher : launchers) {
    const char* text = launcher.said(launcher.size);
    if (text == nullptr) continue;
    const int64_t processes = std::strtoll(text, nullptr, 10);
    // A batch script is a job step of one process, too: no MPI is needed for it.
    if (processes > 1 || &launcher == &launchers[0]) return processes;
  }
  return std::nullopt;
}

bool is_launched() { return launched_processes().has_value(); }

int64_t launched_rank() {
  for (const LauncherVariables& launcher : launchers) {
    if (const char* text = launcher.said(launcher.rank)) return std::strtoll(text, nullptr, 10);
  }
  return 0;
}

bool is_in_allocation() {
  return std::ranges::any_of(
      std::array{"SLURM_JOB_ID", "PBS_JOBID", "PE_HOSTFILE", "LSB_JOBID",
                 "OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile"},
      [](const char* variable) { return std::getenv(variable) != nullptr; });
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::unique_ptr<World> join_world(int64_t expected_ranks, const std::string& threads_for) {
  const auto processes = launched_processes();
  auto world = processes ? join_launched(*processes, threads_for) : std::make_unique<AloneWorld>();
  if (expected_ranks > 0 && world->size() != expected_ranks) {
    throw std::invalid_argument("--ranks " + std::to_string(expected_ranks) + ": this job has " +
                                counted(world->size(), "rank"));
  }
  return world;
}

}  // namespace nearmetal
