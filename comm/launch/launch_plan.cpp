#include "comm/launch/launch_plan.h"

#include <algorithm>
#include <set>

#include "reports/document/run_arguments.h"

namespace nearmetal {
namespace {

constexpr size_t longest_name = 60;

// Letters, digits and some signs stay, all else becomes '-'.
std::string file_name_of(const std::string& text) {
  std::string name = text.substr(0, longest_name);
  std::replace_if(
      name.begin(), name.end(),
      [](char c) {
        const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        return !letter && !(c >= '0' && c <= '9') && c != '_' && c != '+';
      },
      '-');
  return name;
}

// Jobs that are meant to be on a GPU, or on the same CPUs, at once.
int64_t sharers_of(const Placement& placement) {
  const std::optional<Share>& share = placement.share();
  const bool at_once = share && (through_mps(*share) || share->way == SharingMode::timeslice ||
                                 share->way == SharingMode::mig);
  return at_once ? static_cast<int64_t>(placement.jobs.size()) : 1;
}

// What ranks look for: what the layout expects, and what its hosts are claimed to be.
void append_checks(std::vector<std::string>& arguments, const Workload& workload,
                   const Expectation& expect) {
  if (expect.gpu) arguments.push_back("--expect-gpu=" + *expect.gpu);
  if (expect.environment) {
    arguments.push_back(std::string("--expect-environment=") + to_string(*expect.environment));
  };
  const std::optional<MachineKind>& claim = workload.config.environment;
  if (claim && !workload.is_given("environment")) {
    arguments.push_back(std::string("--environment=") + to_string(*claim));
  }
}

// By which reports of a script's launches are put together. A sweep names its arms itself.
std::string arm_argument(const Placement& placement, const PlacedJob& job) {
  const std::string name = "--arm=" + placement.layout;
  if (placement.jobs.size() == 1) return name;
  return name + ", job " + std::to_string(&job - placement.jobs.data() + 1);
}

std::vector<std::string> arguments_of(const LaunchPlan& plan, size_t layout, const PlacedJob& job) {
  const Placement& placement = plan.placements.at(layout);
  const Workload& workload = plan.workloads.at(layout);
  std::vector<std::string> arguments;
  if (job.stress) {
    const char* device = placement.on_gpus() ? "--device=cuda" : "--device=cpu";
    arguments = {"stress", to_string(*job.stress), device, "--conducted"};
  } else {
    arguments = run_arguments(workload);
    append_checks(arguments, workload, plan.file.layouts.at(layout).expect);
    arguments.emplace_back(plan.conducted ? "--conducted" : "--json");
    if (!plan.conducted) arguments.push_back(arm_argument(placement, job));
    if (placement.kind == Kind::emulated) arguments.emplace_back("--emulated");
    arguments.push_back("--ranks=" + std::to_string(job.ranks.size()));
    if (const int64_t sharers = sharers_of(placement); sharers > 1) {
      arguments.push_back("--sharers=" + std::to_string(sharers));
    }
    if (job.share && through_mps(*job.share)) arguments.emplace_back("--through-mps");
    if (job.share && job.share->way == SharingMode::vgpu) {
      arguments.push_back("--expect-vgpu=" + job.share->profile.value());
    }
  }
  if (job.share && job.share->way == SharingMode::sm) {
    arguments.push_back(flag_of(gpu_part_of(placement, job)));
  }
  return arguments;
}

}  // namespace

GpuPart gpu_part_of(const Placement& placement, const PlacedJob& job) {
  GpuPart part;
  for (const PlacedJob& other : placement.jobs) {
    if (other.ranks[0].host != job.ranks[0].host || other.ranks[0].gpu != job.ranks[0].gpu) {
      continue;
    }
    if (&other == &job) part.index = part.percents.size();
    part.percents.push_back(*other.share->threads_percent);
  }
  return part;
}

std::string flag_of(const GpuPart& part) {
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
  for (const PlacedJob& job : placement.jobs) {
    const std::vector<std::string> arguments = arguments_of(plan, layout, job);
    commands.push_back(launch_command(job, plan.file.launcher, arguments, plan.options));
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
