#include "comm/launch/launch_plan.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "comm/layout/gpu_choice.h"
#include "reports/document/settings.h"
#include "reports/json/json.h"

namespace nearmetal {
namespace {

constexpr size_t longest_name = 60;

// Letters, digits and some signs stay, all else becomes '-'.
std::string file_name_of(const std::string& text) {
  std::string name = text.substr(0, longest_name);
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0 && c != '_' && c != '+'; }, '-');
  return name;
}

// Jobs that are meant to be on a GPU, or on the same CPUs, at once.
int64_t sharing_jobs_of(const Placement& placement) {
  const std::optional<Share>& share = placement.share();
  const bool at_once = share && (through_mps(*share) || share->mode == SharingMode::timeslice ||
                                 share->mode == SharingMode::mig);
  return at_once ? static_cast<int64_t>(placement.jobs.size()) : 1;
}

// The checks of ranks: what the layout expects, and what its hosts are claimed to be.
void append_checks(std::vector<std::string>& arguments, const Workload& workload,
                   const Expectation& expect, const Launcher& launcher) {
  if (expect.gpu) arguments.push_back("--expect-gpu=" + *expect.gpu);
  if (expect.environment) {
    arguments.push_back(std::string("--expect-environment=") + to_string(*expect.environment));
  }
  if (expect.uuid) arguments.push_back("--expect-uuid=" + *expect.uuid);
  if (expect.mig_profile) arguments.push_back("--expect-mig=" + *expect.mig_profile);
  if (expect.vgpu_profile) arguments.push_back("--expect-vgpu=" + *expect.vgpu_profile);
  if (expect.link) {
    arguments.push_back("--expect-link=" + expect.link->rate +
                        (launcher.network ? "," + *launcher.network : ""));
  }
  const std::optional<MachineKind>& claim = workload.config.environment;
  if (claim && !workload.is_given("environment")) {
    arguments.push_back(std::string("--environment=") + to_string(*claim));
  }
}

// The arm by which reports of a script's launches are put together, and its point of a grid. A
// sweep knows the arms itself.
void append_arm(std::vector<std::string>& arguments, const LaunchPlan& plan, size_t index,
                size_t job) {
  const Layout& layout = plan.file.layouts.at(index);
  const bool alone = plan.placements.at(index).jobs.size() == 1;
  const std::string suffix = alone ? "" : ", job " + std::to_string(job + 1);
  arguments.push_back("--arm=" + layout.name + suffix);
  if (!layout.grid) return;
  GridPoint point = *layout.grid;
  point.layout += suffix;
  arguments.push_back("--grid-point=" + to_json(point));
}

std::vector<std::string> arguments_of(const LaunchPlan& plan, size_t layout, size_t index) {
  const Placement& placement = plan.placements.at(layout);
  const PlacedJob& job = placement.jobs.at(index);
  const Workload& workload = workload_of(plan, layout, index);
  std::vector<std::string> arguments;
  if (job.stress) {
    const char* device = placement.on_gpus() ? "--device=cuda" : "--device=cpu";
    arguments = {"stress", to_string(*job.stress), device, "--conducted"};
  } else {
    arguments = run_arguments(workload);
    append_checks(arguments, workload, plan.file.layouts.at(layout).expect, plan.file.launcher);
    arguments.emplace_back(plan.conducted ? "--conducted" : "--json");
    if (!plan.conducted) append_arm(arguments, plan, layout, index);
    if (placement.kind == Kind::emulated) arguments.emplace_back("--emulated");
    if (!starts_plainly(plan, placement)) {
      arguments.push_back("--ranks=" + std::to_string(job.ranks.size()));
    }
    if (const int64_t sharing_jobs = sharing_jobs_of(placement); sharing_jobs > 1) {
      arguments.push_back("--sharers=" + std::to_string(sharing_jobs));
    }
    if (job.share && through_mps(*job.share)) arguments.emplace_back("--through-mps");
    if (job.share && job.share->mode == SharingMode::vgpu) {
      arguments.push_back("--expect-vgpu=" + job.share->profile.value());
    }
  }
  if (job.share && job.share->mode == SharingMode::sm) {
    arguments.push_back(flag_of(gpu_part_of(placement, job)));
  }
  return arguments;
}

}  // namespace

const Workload& workload_of(const LaunchPlan& plan, size_t layout, size_t job) {
  const auto own = plan.job_workloads.find({layout, job});
  return own == plan.job_workloads.end() ? plan.workloads.at(layout) : own->second;
}

bool has_own_workloads(const LaunchPlan& plan, size_t layout) {
  return std::ranges::any_of(plan.job_workloads,
                             [&](const auto& own) { return own.first.first == layout; });
}

bool starts_plainly(const LaunchPlan& plan, const Placement& placement) {
  return plan.options.plain_alone && placement.ranks() == 1 && !placement.share() &&
         placement.kind == Kind::measured && placement.jobs[0].ranks[0].address == this_host;
}

std::vector<std::string> choices_of(const LaunchPlan& plan, size_t layout) {
  if (!plan.file.layouts.at(layout).shape) return {};
  return choice_texts(plan.placements.at(layout), plan.file.hosts);
}

std::vector<std::string> choices_of(const LaunchPlan& plan) {
  std::vector<std::string> choices;
  for (size_t i = 0; i < plan.placements.size(); ++i) {
    for (const std::string& choice : choices_of(plan, i)) {
      choices.push_back(plan.placements[i].layout + ": chosen: " + choice);
    }
  }
  return choices;
}

GpuShare gpu_part_of(const Placement& placement, const PlacedJob& job) {
  GpuShare part;
  for (const PlacedJob& other : placement.jobs) {
    if (other.ranks[0].host != job.ranks[0].host || other.ranks[0].gpu != job.ranks[0].gpu) {
      continue;
    }
    if (&other == &job) part.index = part.percents.size();
    part.percents.push_back(*other.share->threads_percent);
  }
  return part;
}

std::string flag_of(const GpuShare& part) {
  std::string flag = "--gpu-part=" + std::to_string(part.index);
  for (size_t i = 0; i < part.percents.size(); ++i) {
    flag += (i == 0 ? ":" : ",") + std::to_string(part.percents[i]);
  }
  return flag;
}

std::string report_name(const LaunchPlan& plan, size_t layout, const std::string& repeat,
                        size_t job) {
  const Placement& placement = plan.placements.at(layout);
  std::string name =
      std::to_string(layout + 1) + "-" + file_name_of(placement.layout) + "-run" + repeat;
  if (placement.jobs.size() > 1) name += "-job" + std::to_string(job + 1);
  return name + ".report.json";
}

std::vector<std::vector<std::string>> commands_of(const LaunchPlan& plan, size_t layout) {
  std::vector<std::vector<std::string>> commands;
  const Placement& placement = plan.placements.at(layout);
  Launcher launcher = plan.file.launcher;
  const std::optional<std::string>& executable = plan.file.layouts.at(layout).executable;
  if (executable) launcher.program = executable;
  for (size_t job = 0; job < placement.jobs.size(); ++job) {
    std::vector<std::string> arguments = arguments_of(plan, layout, job);
    if (starts_plainly(plan, placement)) {
      arguments.insert(arguments.begin(), launcher.program.value_or("nearmetal"));
      commands.push_back(std::move(arguments));
    } else {
      commands.push_back(launch_command(placement.jobs[job], launcher, arguments, plan.options));
    }
  }
  return commands;
}

int64_t most_ranks_on_a_host(const LaunchPlan& plan) {
  int64_t most = 1;
  for (const Placement& placement : plan.placements) {
    std::map<std::string, int64_t> ranks;
    for (const PlacedJob& job : placement.jobs) {
      for (const PlacedRank& rank : job.ranks) most = std::max(most, ++ranks[rank.host]);
    }
  }
  return most;
}

std::vector<Host> hosts_taken(const LaunchPlan& plan) {
  std::set<std::string> names;
  for (const Placement& placement : plan.placements) {
    for (const PlacedJob& job : placement.jobs) {
      for (const PlacedRank& rank : job.ranks) names.insert(rank.host);
    }
  }
  std::vector<Host> hosts = plan.file.hosts;
  std::erase_if(hosts, [&](const Host& host) { return !names.contains(host.name); });
  return hosts;
}

}  // namespace nearmetal
