#include "comm/launch/launch_plan.h"

#include <algorithm>
#include <set>

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

// Of the parts that jobs have of the GPU of this one: "INDEX:PERCENT,PERCENT,...".
std::string part_argument(const Placement& placement, const PlacedJob& job) {
  const auto same_gpu = [&](const PlacedJob& other) {
    return other.ranks[0].host == job.ranks[0].host && other.ranks[0].gpu == job.ranks[0].gpu;
  };
  std::string index, percents;
  int64_t parts = 0;
  for (const PlacedJob& other : placement.jobs) {
    if (!same_gpu(other)) continue;
    if (&other == &job) index = std::to_string(parts);
    percents += (parts++ == 0 ? "" : ",") + std::to_string(*other.share->threads_percent);
  }
  return "--gpu-part=" + index + ":" + percents;
}

// By which reports of a script's launches are put together. A sweep names its arms itself.
void append_arm(std::vector<std::string>& arguments, const Placement& placement,
                const PlacedJob& job) {
  if (std::find(arguments.begin(), arguments.end(), "--json") == arguments.end()) return;
  std::string name = placement.layout;
  if (placement.jobs.size() > 1) {
    name += ", job " + std::to_string(&job - placement.jobs.data() + 1);
  }
  arguments.push_back("--arm=" + name);
}

std::vector<std::string> arguments_of(const LaunchPlan& plan, size_t layout, const PlacedJob& job) {
  const Placement& placement = plan.placements.at(layout);
  std::vector<std::string> arguments = plan.run_arguments.at(layout);
  if (job.stress) {
    const char* device = placement.on_gpus() ? "--device=cuda" : "--device=cpu";
    arguments = {"stress", to_string(*job.stress), device, "--conducted"};
  } else {
    append_arm(arguments, placement, job);
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
  if (job.share && job.share->way == SharingMode::sm)
    arguments.push_back(part_argument(placement, job));
  return arguments;
}

}  // namespace

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
