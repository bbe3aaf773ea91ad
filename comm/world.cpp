#include "comm/world.h"

#include <unistd.h>

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

}  // namespace

std::optional<int64_t> launched_processes() {
  // mpirun of Open MPI; Hydra of MPICH and Intel MPI; a job step of Slurm.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const char* text = std::getenv(name);
    if (text == nullptr) continue;
    const int64_t processes = std::strtoll(text, nullptr, 10);
    // A batch script is a job step of one process, too: no MPI is needed for it.
    if (processes > 1 || std::string(name) == "OMPI_COMM_WORLD_SIZE") return processes;
  }
  return std::nullopt;
}

bool is_launched() { return launched_processes().has_value(); }

int64_t launched_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const char* text = std::getenv(name)) return std::strtoll(text, nullptr, 10);
  }
  return 0;
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
