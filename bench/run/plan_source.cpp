#include "bench/run/plan_source.h"

#include <algorithm>
#include <stdexcept>

#include "models/errors.h"
#include "reports/compare/run_set.h"
#include "reports/document/run_arguments.h"
#include "reports/json/json.h"
#include "reports/json/plan_cache.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

// The report without arms and runs that have no plans.
Report report_with_plans(const std::string& place) {
  const auto [file, arm_name] = report_place(place);
  Report report = read_report(file);
  if (!arm_name.empty()) keep_only_arm(report, arm_name, file);
  for (Arm& arm : report.arms)
    std::erase_if(arm.runs, [](const Run& r) { return r.plans.empty(); });
  std::erase_if(report.arms, [](const Arm& arm) { return arm.runs.empty(); });
  return report;
}

// The settings on which the keys of plans depend.
const std::vector<std::string> settings_of_plans = {"device",     "model",   "precision",   "batch",
                                                    "image_size", "classes", "forward_only"};

bool same_operations(const RunConfig& a, const RunConfig& b) {
  bool same = true;
  for_each_setting([&](const Setting& setting, auto member) {
    const bool counts =
        std::ranges::find(settings_of_plans, setting.name) != settings_of_plans.end();
    if (counts && a.*member != b.*member) same = false;
  });
  return same;
}

}  // namespace

std::vector<Plan> pinned_plans(const std::string& place) {
  const Report report = report_with_plans(place);
  if (report.arms.empty()) throw std::invalid_argument("--plans: " + place + " holds no plans");
  return report.arms[0].runs[0].plans;
}

std::string place_of_plans(const RunConfig& config, const std::string& arm) {
  if (config.batch == largest_that_fits) {
    throw std::invalid_argument("--plans needs a number for --batch");
  }
  const Report report = report_with_plans(*config.plans);
  const Arm* found = nullptr;
  for (const Arm& other : report.arms) {
    const bool same = same_operations(config_of(report, other), config);
    if (same && (found == nullptr || other.name == arm)) found = &other;
  }
  if (found == nullptr) {
    throw std::invalid_argument("--plans: " + *config.plans + " holds no plans for `" +
                                joined(run_arguments({config, settings_of_plans}), " ") + "`");
  }
  const auto [file, named] = report_place(*config.plans);
  return !named.empty() || report.arms.size() == 1 ? *config.plans : file + "#" + found->name;
}

PlanSource find_plans(RunConfig& config, const DeviceInfo& device) {
  PlanSource source;
  if (config.plans) {
    config.plan_cache = "off";
    source.known = pinned_plans(*config.plans);
    source.pinned = true;
    return source;
  }
  if (!config.plan_cache) {
    const auto path = default_plan_cache_path();
    config.plan_cache = path ? path->string() : "off";
  }
  if (config.plan_cache == "off") return source;
  source.cache = *config.plan_cache;
  source.context = plan_context(device);
  source.known = load_plans(source.cache, source.context, source.warnings);
  return source;
}

std::vector<Warning> keep_plans(const PlanSource& source, const std::vector<Plan>& plans) {
  if (source.cache.empty() || plans.empty() || plans == source.known) return {};
  try {
    save_plans(source.cache, source.context, plans);
  } catch (const OutputError& error) {
    return {{"plan_cache", error.what()}};
  }
  return {};
}

}  // namespace nearmetal
