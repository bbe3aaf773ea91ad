// Everything that a sweep starts, in its order, as plain data; the command lines that start it, and
// how long it takes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/layout/layout.h"
#include "comm/layout/placement.h"
#include "models/gpu_share.h"
#include "reports/document/settings.h"

namespace nearmetal {

/// The variable in which a sweep or a script names, for each job, the file that takes the last
/// report: a launcher that is told to end hands on nothing more of what its ranks print. Ranks on
/// other hosts do not have it.
inline constexpr const char* last_report_variable = "NEARMETAL_LAST_REPORT";

struct LaunchOptions {
  bool as_root = false;  // of the one who launches: Open MPI asks for a confirmation
  std::optional<double> timeout_seconds;
  bool in_allocation = false;  // of a resource manager, which may have fewer tasks than a job here
  bool by_srun = false;        // of Slurm with PMIx, in place of mpirun
  std::string container_image{};  // for srun with Pyxis; empty: none
  bool other_build = false;       // an earlier one, perhaps, which lacks the latest checks of ranks
  bool plain_alone = false;  // a job of one rank on this machine starts as in a shell: no mpirun
};

/// mpirun of Open MPI 4.1 or 5 with all its arguments. Unless Launcher::mpi says ucx, MPI is kept
/// to TCP, and to shared memory in a job on one host that is not split, since GPUs exchange
/// gradients by NCCL; ranks bind themselves. Where ranks need different environments, CPUs or
/// options, a shell on each host chooses by the rank: contexts (":") would do, but at the second
/// the mpirun of Open MPI 5.0.7 in Debian 13 crashes (open-mpi/ompi#13303). `run_arguments`: "run"
/// and its options.
std::vector<std::string> launch_command(const PlacedJob& job, const Launcher& launcher,
                                        const std::vector<std::string>& run_arguments,
                                        const LaunchOptions& options = {});

/// The workload of the jobs of a layout, defaults filled.
struct LayoutWorkloads : Workload {
  std::map<size_t, Workload> of_jobs{};  // by index, of those that have their own

  const Workload& of(size_t job) const {
    const auto own = of_jobs.find(job);
    return own == of_jobs.end() ? *this : own->second;
  }
};

struct LaunchPlan {
  LayoutFile file;                         // nothing left to find
  std::vector<Placement> placements;       // by layout
  std::vector<LayoutWorkloads> workloads;  // by layout
  std::vector<Launch> launches;            // in the order of their start
  LaunchOptions options;
  bool conducted = true;  // by a sweep; else each job runs by itself and prints its report
  std::vector<UnsupportedArm> unsupported{};
  std::string source{};  // "FILE: " where layouts come from one, for messages
};

/// Those of all jobs.
std::vector<const PlacedRank*> ranks_of(const Placement& placement);

/// Whether a layout's rank starts without mpirun: nothing is set for it, and it has what its user
/// has in this shell.
bool starts_plainly(const LaunchPlan& plan, const Placement& placement);

/// The command lines of a layout, one for each job, all to be started at once. The report of each
/// comes on its standard output.
std::vector<std::vector<std::string>> commands_of(const LaunchPlan& plan, size_t layout);

/// Why jobs of a layout have the GPUs that they have, where these were chosen: for each of a job's
/// hosts "GPUs 0, 2 of vm0: NVLink connects them all".
std::vector<std::string> choices_of(const LaunchPlan& plan, size_t layout);

/// The same of all layouts, behind their names.
std::vector<std::string> choices_of(const LaunchPlan& plan);

/// The part of its GPU that a job has which shares it by SharingMode::sm.
GpuShare gpu_part_of(const Placement& placement, const PlacedJob& job);

/// --gpu-part=INDEX:PERCENT,PERCENT,...
std::string flag_of(const GpuShare& part);

/// The hosts that any layout takes, in the order of the file.
std::vector<Host> hosts_taken(const LaunchPlan& plan);

/// The largest number of ranks that one launch has on a host at a time.
int64_t most_ranks_on_a_host(const LaunchPlan& plan);

/// How long a sweep will take, as far as its plan tells.
struct PlannedTime {
  double windows_seconds = 0;  // timed windows of given length, all together
  int64_t launches = 0;
  int64_t steps = 0;        // of windows that are given so: as long as these take
  double most_seconds = 0;  // by the limit of a job

  /// The seconds with an assumption on start and warm-up; steps count nothing, so that it is the
  /// least.
  double seconds() const;
};

PlannedTime planned_time(const LaunchPlan& plan, std::span<const Launch> launches);

/// "about 35 min: 60 starts one after another, taken as 15 s each with warm-up, and windows of 20
/// min in all; at most 30 h 0 min by the limit of a job". Where windows are given in steps:
/// "unknown: 6000 steps in all, beside ...; at least 15 min, at most ...".
std::string planned_time_text(const PlannedTime& time);

/// How long a sweep still takes, by the runs that are through.
class TimeLeft {
 public:
  /// `left`: runs that are still to be made, this one among them.
  void begin_run(int64_t left);
  void end_run();
  /// ", about 4 min left"; empty before a run is through.
  std::string text() const;

 private:
  double begin_ = 0;     // of a run, by steady_seconds()
  double finished_ = 0;  // seconds of all runs together
  int64_t runs_ = 0;
  int64_t left_ = 0;
};

}  // namespace nearmetal
