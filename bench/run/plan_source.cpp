#include "bench/run/plan_source.h"

#include <stdexcept>

#include "models/errors.h"
#include "reports/compare/run_set.h"
#include "reports/json/json.h"
#include "reports/json/plan_cache.h"

namespace nearmetal {
namespace {

std::vector<Plan> plans_of(const std::string& place) {
  const ReportPlace at = report_place(place);
  Report report = read_report(at.file);
  if (!at.arm.empty()) keep_only_arm(report, at.arm, at.file);
  for (const Arm& arm : report.arms) {
    for (const Run& run : arm.runs) {
      if (!run.plans.empty()) return run.plans;
    }
  }
  throw std::invalid_argument("--plans: " + place + " holds no plans");
}

}  // namespace

PlanSource find_plans(RunConfig& config, const DeviceInfo& device) {
  PlanSource source;
  if (config.plans) {
    config.plan_cache = "off";
    source.known = plans_of(*config.plans);
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
  CachedPlans cached = load_plans(source.cache, source.context);
  if (!cached.warning.empty()) source.warnings = {{"plan_cache", cached.warning}};
  source.known = std::move(cached.plans);
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
