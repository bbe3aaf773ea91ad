#include "bench/doctor/check_layout.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "bench/run/expected.h"
#include "bench/sweep/hosts_found.h"
#include "bench/sweep/make_plan.h"
#include "bench/sweep/run_layout.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

std::string too_few_gpus(const Host& host, const Checkup& checkup) {
  const auto listed = std::ssize(checkup.gpus);
  if (!is_this_machine(address_of(host)) || host.gpus <= listed) return "";
  return "host '" + host.name + "' is said to have " + counted(host.gpus, "GPU") +
         ", and the driver lists " + (listed == 0 ? "none" : std::to_string(listed)) +
         (checkup.nvml ? "" : " (" + checkup.nvml.reason + ")");
}

// As a rank looks before it trains.
std::string not_as_expected(const Layout& layout, const Placement& placement,
                            const Checkup& checkup) {
  for (const PlacedJob& job : placement.jobs) {
    for (const PlacedRank& placed : job.ranks) {
      const bool known = !placed.gpu || *placed.gpu < std::ssize(checkup.gpus);
      if (!is_this_machine(placed.address) || !known) continue;
      try {
        require_expected({.gpu = layout.expect.gpu, .environment = layout.expect.environment},
                         checkup.environment, placed.gpu ? &checkup.gpus[*placed.gpu] : nullptr);
      } catch (const std::invalid_argument& error) {
        return layout.source + "/expect: " + error.what();
      }
    }
  }
  return "";
}

void hold(const LaunchPlan& plan, const Checkup& checkup, LayoutCheck& check) {
  const auto add = [&](const std::string& problem) {
    if (!problem.empty()) check.problems.push_back(check.file + ": " + problem);
  };
  for (const Host& host : plan.file.hosts) add(too_few_gpus(host, checkup));
  for (size_t i = 0; i < plan.placements.size(); ++i) {
    add(not_as_expected(plan.file.layouts[i], plan.placements[i], checkup));
  }
}

}  // namespace

LayoutCheck check_layout(const std::string& file, const Checkup& checkup) {
  LayoutCheck check{file, 0, {}};
  try {
    PlanRequest request;
    request.layouts = {file};
    const LaunchPlan plan = make_plan(request);
    check.layouts = std::ssize(plan.placements);
    hold(plan, checkup, check);
    require_shares(plan);
  } catch (const std::exception& error) {
    check.problems.emplace_back(error.what());
  }
  return check;
}

}  // namespace nearmetal
