// The way from what the user asked for to everything that a sweep starts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/cli/run_request.h"
#include "comm/launch/launch_plan.h"
#include "comm/layout/layout.h"
#include "comm/layout/placement.h"
#include "reports/document/settings.h"
#include "reports/document/special_members.h"

namespace nearmetal {

/// Who starts the jobs of a plan.
enum class Starter { sweep, script, slurm, mpi_job };

struct PlanRequest {
  NM_DECLARE_SPECIAL_MEMBERS(PlanRequest);
  std::vector<std::string> layouts;  // a file, the name of a shipped one, or short forms
  std::optional<std::string> hosts;
  std::optional<int64_t> fractions;       // jobs that share a GPU in every way
  std::vector<NeighbourLoad> neighbours;  // loads of all of those but one
  std::vector<GridAxis> grid;             // over that of the file
  std::optional<int64_t> repeats;
  std::optional<double> job_seconds;      // limit of a job, over that of the file
  std::optional<std::string> mig_config;  // FILE or FILE#LABEL, which the GPUs must have
  std::optional<LayoutFile> file{};       // instead of `layouts`, with its hosts
  bool plain_alone = false;               // see LaunchOptions
  RunRequest workload;                    // its settings stand over the workload of the file
  Starter starter = Starter::sweep;
  std::string job_name{};  // of a MPIJob
};

/// Reads the layout file or the short forms, finds the hosts, and places all ranks. Without either:
/// one node with 1, 2, 4, ... all GPUs of this machine, or 1, 2, 4, ... all of several hosts.
/// Throws std::invalid_argument with file, JSON pointer and reason.
LaunchPlan make_launch_plan(PlanRequest request);

/// The files that were read for the plan, and the programs that it starts, as far as these are
/// files here.
std::vector<std::string> files_of(const LaunchPlan& plan, const PlanRequest& request);

/// SHA-256 of what a sweep starts, and of the plans that it pins: their report may be written anew
/// under the same path. Builds that layouts name count by their paths alone.
std::string plan_sha256(const LaunchPlan& plan);

/// Device, workload of the file, that of the layout, its combination of the grid and what was asked
/// on the command line. Later sources override earlier ones; defaults are filled. `global_batch` is
/// divided by the number of ranks. Throws std::invalid_argument, with the place in the file,
/// for settings that `run` does not have or that the plan makes itself, that contradict each other
/// or the device, a batch that cannot be shared, images that the network refuses, and hosts that
/// claim different environments.
Workload layout_workload(const LayoutFile& file, const Layout& layout, const Placement& placement,
                         const Workload& asked);

/// The same of a job, by its index, whose own settings stand over those of its layout. Throws the
/// same, and for settings that the jobs of a layout cannot differ in.
Workload job_workload(const LayoutFile& file, const Layout& layout, size_t job,
                      const Placement& placement, const Workload& asked);

/// Throws std::invalid_argument where jobs of a layout with such a workload would each choose the
/// way in which their gradients are summed: a choice needs the machine to itself, and all runs of a
/// layout take that of the first, which scripts (not `conducted`) cannot.
void require_one_choice(const Workload& workload, const Layout& layout, const Placement& placement,
                        bool conducted);

/// Sets what layout files call `name`, from the text that its option takes. Throws
/// std::invalid_argument, with the place before it, for what `run` does not take.
void set_by_layout_name(Workload& workload, const std::string& name, const std::string& text,
                        const std::string& place);

/// Whether a run takes one of these settings alone, such as steps or duration_seconds.
bool exclude_each_other(const std::string& setting, const std::string& other);

}  // namespace nearmetal
