#include "bench/run/kernel_source.h"

#include <algorithm>
#include <stdexcept>

#include "base/errors.h"
#include "base/text.h"
#include "bench/cli/process.h"
#include "reports/compare/read_runs.h"
#include "reports/compare/run_set.h"
#include "reports/document/settings.h"
#include "reports/json/json.h"
#include "reports/json/kernel_cache.h"
#include "reports/json/report_files.h"

namespace nearmetal {
namespace {

// The report without arms and runs that have no kernel choices.
Report report_with_kernel_choices(const std::string& place) {
  const auto [file, arm_name] = report_place(place);
  Report report = read_report(file);
  if (!arm_name.empty()) keep_only_arm(report, arm_name, file);
  for (Arm& arm : report.arms)
    std::erase_if(arm.runs, [](const Run& r) { return r.kernel_choices.empty(); });
  std::erase_if(report.arms, [](const Arm& arm) { return arm.runs.empty(); });
  return report;
}

bool same_operations(const RunConfig& a, const RunConfig& b) {
  bool same = true;
  for_each_setting([&](const Setting& setting, auto member) {
    if (decides_operations(setting.name) && a.*member != b.*member) same = false;
  });
  return same;
}

std::vector<Warning> warnings_of_refused(const std::vector<KernelChoice>& choices) {
  std::vector<std::string> refused;
  for (const KernelChoice& choice : choices) {
    if (choice.implementation == refused_implementation) refused.push_back(choice.key);
  }
  if (refused.empty()) return {};
  const std::string others =
      refused.size() == 1 ? "" : " and " + std::to_string(refused.size() - 1) + " more";
  return {
      {"kernels_refused",
       "a kernel of nearmetal's own gave a wrong result and was left out, which costs speed ('" +
           refused.front() + "'" + others + "): report this as a bug, with the report"}};
}

}  // namespace

std::vector<KernelChoice> pinned_kernel_choices(const std::string& place) {
  const Report report = report_with_kernel_choices(place);
  if (report.arms.empty()) throw std::invalid_argument("--plans: " + place + " holds no plans");
  return report.arms[0].runs[0].kernel_choices;
}

std::string place_of_kernel_choices(const RunConfig& config, const std::string& arm) {
  if (config.batch == largest_that_fits) {
    throw std::invalid_argument("--plans needs a number for --batch");
  }
  const Report report = report_with_kernel_choices(*config.plans);
  const Arm* found = nullptr;
  for (const Arm& other : report.arms) {
    const bool same = same_operations(config_of(report, other), config);
    if (same && (found == nullptr || other.name == arm)) found = &other;
  }
  if (found == nullptr) {
    throw std::invalid_argument("--plans: " + *config.plans + " holds no plans for `" +
                                joined(run_arguments({config, settings_of_operations}), " ") + "`");
  }
  const auto [file, named] = report_place(*config.plans);
  return !named.empty() || report.arms.size() == 1 ? *config.plans : file + "#" + found->name;
}

KernelSource find_kernel_choices(RunConfig& config, const DeviceInfo& device) {
  KernelSource source;
  if (config.plans) {
    config.plan_cache = "off";
    source.known = pinned_kernel_choices(*config.plans);
    source.pinned = true;
    return source;
  }
  if (!config.plan_cache) {
    const auto path = default_kernel_cache_path();
    config.plan_cache = path ? path->string() : "off";
  }
  if (config.plan_cache == "off") return source;
  source.cache = *config.plan_cache;
  source.context = kernel_choice_context(device, build_info());
  source.known = load_kernel_choices(source.cache, source.context, source.warnings);
  return source;
}

std::vector<Warning> keep_choices(const KernelSource& source,
                                  const std::vector<KernelChoice>& choices) {
  std::vector<Warning> warnings = warnings_of_refused(choices);
  if (source.cache.empty() || choices.empty() || choices == source.known) return warnings;
  try {
    save_kernel_choices(source.cache, source.context, choices);
  } catch (const OutputError& error) {
    warnings.push_back({"plan_cache", error.what()});
  }
  return warnings;
}

std::vector<Warning> warnings_of_timing(const KernelSource& source,
                                        const std::vector<KernelChoice>& choices,
                                        const DeviceInfo& device, int ranks) {
  if (device.times_kernels_apart || ranks == 1) return {};
  const bool timed = std::ranges::any_of(choices, [&](const KernelChoice& choice) {
    return std::ranges::find(source.known, choice) == source.known.end();
  });
  if (!timed) return {};
  const std::string cache = source.cache.empty() ? "with a plan cache " : "";
  return {{"kernels_timed",
           "a rank timed kernels first, which slows its steps (a job of two H200s with 64 images "
           "each by 2 %); " +
               cache + "the next run finds them chosen"}};
}

}  // namespace nearmetal
