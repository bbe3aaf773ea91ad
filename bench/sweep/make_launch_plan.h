// From what the user asked for to everything that a sweep starts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/cli/run_request.h"
#include "comm/launch/launch_plan.h"
#include "comm/layout/layout.h"
#include "reports/document/special_members.h"

namespace nearmetal {

/// Their names, without .json; none where they were not installed.
std::vector<std::string> shipped_layouts();

/// The file of the shipped layout of that name, whether or not it is there.
std::string shipped_layout_file(const std::string& name);

/// `word` where it is a path or standard input (-), else the file of the shipped layout of that
/// name, even where the current folder holds a file of that name. Throws std::invalid_argument that
/// names those there are, NotSupported where somebody else could have put the file there.
std::string layout_place(const std::string& word);

/// Who starts the jobs of a plan.
enum class Starter { sweep, script, slurm, srun, mpi_job };

struct PlanRequest {
  NM_DECLARE_SPECIAL_MEMBERS(PlanRequest);
  std::vector<std::string> layouts;  // a file, the name of a shipped one, or short forms
  std::optional<std::string> hosts;
  std::optional<int64_t> fractions;       // jobs that share a GPU, in every mode
  std::vector<NeighbourLoad> neighbours;  // loads of all of those but one
  std::vector<GridAxis> grid;             // over that of the file
  std::optional<int64_t> repeats;
  std::optional<double> job_seconds;             // limit of a job, over that of the file
  std::map<std::string, std::string> variables;  // of each rank, over those of the file
  std::optional<MpiTransport> mpi{};             // over that of the file
  std::optional<std::string> mig_config;         // FILE or FILE#LABEL, which the GPUs must have
  std::optional<LayoutFile> file{};              // instead of `layouts`, with its hosts
  bool plain_alone = false;                      // see LaunchOptions
  std::vector<std::string> silent_hosts;         // which a survey leaves out
  bool survey = false;  // of what `layouts` or the hosts have: survey_layouts() of it
  RunRequest workload;  // its settings stand over the workload of the file
  Starter starter = Starter::sweep;
  std::string job_name{};     // of a MPIJob
  bool in_container = false;  // of an image that has the program on its PATH
};

/// Reads the layout file or the short forms, finds the hosts, and places all ranks. Without either:
/// one node with 1, 2, 4, ... all GPUs of this machine, or 1, 2, 4, ... all of several hosts.
/// Throws std::invalid_argument with file, JSON pointer and reason.
LaunchPlan make_launch_plan(const PlanRequest& request);

/// The variables of networks that are set here and that ranks on other hosts of the plan do not
/// get, in words; none where there are none.
std::vector<std::string> variables_left_here(const LaunchPlan& plan);

/// The files that were read for the plan, and the programs that it starts, as far as these are
/// files here.
std::vector<std::string> files_of(const LaunchPlan& plan, const PlanRequest& request);

/// SHA-256 of what a sweep starts, and of the plans that it pins: their report may be written anew
/// under the same path. Builds that layouts name count by their paths alone.
std::string plan_sha256(const LaunchPlan& plan);

/// The build of the program that a layout names in place of this one, with the modules that it
/// would load. Throws std::invalid_argument, beginning with `source` (the layout's place in its
/// file), for what is no program that can be started.
Executable find_executable(const std::string& path, const std::string& source);

}  // namespace nearmetal
