#include "comm/launch_plan.h"

#include <algorithm>

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

}  // namespace

std::string report_name(const LaunchPlan& plan, const Launch& launch, size_t job) {
  const Placement& placement = plan.placements.at(launch.layout);
  std::string name = std::to_string(launch.layout + 1) + "-" + file_name_of(placement.layout) +
                     "-run" + std::to_string(launch.repeat);
  if (placement.jobs.size() > 1) name += "-job" + std::to_string(job + 1);
  return name + ".report.json";
}

std::vector<std::vector<std::string>> commands_of(const LaunchPlan& plan, const Launch& launch) {
  std::vector<std::vector<std::string>> commands;
  const Placement& placement = plan.placements.at(launch.layout);
  for (size_t job = 0; job < placement.jobs.size(); ++job) {
    std::vector<std::string> arguments = plan.run_arguments.at(launch.layout);
    arguments.push_back("--output=" + report_name(plan, launch, job));
    commands.push_back(
        launch_command(placement.jobs[job], plan.file.launcher, arguments, plan.options));
  }
  return commands;
}

}  // namespace nearmetal
