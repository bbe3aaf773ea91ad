// This process among all those of a job.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/value.h"
#include "models/probe.h"

namespace nearmetal {

struct GradientBucket;  // models/program.h

/// The name of this operating-system instance.
std::string host_name();

/// Whether a launcher such as mpirun started this process.
bool is_launched();

/// How many processes the launcher says that it started; none where there is no launcher.
std::optional<int64_t> launched_processes();

/// The number of this process among those of its launcher, as that says; 0 without one.
int64_t launched_rank();

/// Whether this process is in an allocation of Slurm, PBS, Grid Engine or LSF, or in the launcher
/// of a MPIJob of Kubernetes: Open MPI takes its hosts and slots from there.
bool is_in_allocation();

/// Sums in the memory of hosts, over some of the ranks of a job, for what sums in other memory
/// first.
class HostSum {
 public:
  virtual ~HostSum() = default;
  /// "Open MPI v4.1.4".
  virtual std::string library() const = 0;
  /// Each element of `values`, which lie in this host's memory, becomes its sum over the ranks;
  /// they all call it, in the same order. Waits for them, on whatever thread, one at a time. Throws
  /// std::runtime_error, std::invalid_argument for 2^31 elements or more.
  virtual void sum(const GradientBucket& values) = 0;
};

/// The calls in which a process may wait for others, on all its threads.
struct CallCounts {
  std::atomic<int64_t> begun = 0, ended = 0;
};

/// All calls but the first four, calls(), transports() and abort() are collective: every rank makes
/// them, in the same order, from the thread that made the world. They throw std::runtime_error.
class World {
 public:
  virtual ~World() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Among the ranks on this host, or whatever shares memory.
  virtual int local_rank() const = 0;
  virtual int local_size() const = 0;
  /// Those of this process so far, which live as long as it does; null: it waits for nobody.
  virtual const CallCounts* calls() const = 0;
  /// By which MPI exchanged with other ranks until now: "tcp/eth0", "rc_mlx5/mlx5_0:1".
  virtual Maybe<std::vector<std::string>> transports() const = 0;

  /// The bytes that each rank gave, in their order; below 2 GiB together.
  virtual std::vector<std::string> all_gather(const std::string& bytes) = 0;
  /// The same on rank 0, and nothing elsewhere, of any size: large ones go in pieces.
  virtual std::vector<std::string> gather(std::string bytes) = 0;
  /// The bytes that rank 0 gave.
  virtual std::string broadcast(const std::string& bytes) = 0;
  /// Each value becomes the largest of all ranks.
  virtual void maximum(std::span<int64_t> values) = 0;

  /// The same of one value, without waiting: start it, then ask; none until every rank has started
  /// it. One at a time.
  virtual void start_maximum(int64_t value) = 0;
  virtual std::optional<int64_t> started_maximum() = 0;

  /// The ranks that give the same `part`, as a world of their own, in their order, which must not
  /// outlive this one. Ends the whole job where it aborts.
  virtual std::unique_ptr<World> split(int part) = 0;

  /// The sum over the ranks that give the same `part`, in an order of its own beside all other
  /// calls. Only where the world was joined for more than one thread; null for a world of one.
  virtual std::unique_ptr<HostSum> host_sum(int part) = 0;

  /// Probes of the paths between the ranks; none for a world of one. Each is collective in its
  /// start and its runs.
  virtual std::vector<Probe> probes() = 0;

  /// Ends every process of the job, at once.
  [[noreturn]] virtual void abort(int exit_code) = 0;
};

/// MPI where a launcher (mpirun, srun) started this process, else a world of one. Throws
/// NotSupported where the MPI module or its library is missing, std::invalid_argument where the
/// launcher started more processes than MPI sees, or `expected_ranks` (0: any number) are not
/// there. `threads_for`: what will use a HostSum beside the thread that joins, which costs MPI
/// locks; NotSupported where it cannot.
std::unique_ptr<World> join_world(int64_t expected_ranks, const std::string& threads_for = "");

/// The function that the MPI module exports under this name.
using WorldEntry = World* (*)(const std::string& threads_for);
inline constexpr const char* world_entry_name = "nearmetal_world";

}  // namespace nearmetal
