
#include "reports/formats/charts/charts.h"

#include <algorithm>
#include <numeric>

#include "reports/document/metric.h"
#include "reports/sharing/fractions.h"

namespace nearmetal {
namespace {

void add_arm(ShownArms& shown, const std::string& name, const RunArm* arm, size_t side) {
  if (arm == nullptr || arm->runs.empty()) return;
  const std::string side_name = shown.sides.size() > 1 ? shown.sides[side] : "";
  shown.arms.push_back({name, side_name, shown.rows.size() - 1, side, arm->runs.front().kind, arm});
}

void add_charts_of_runs(std::vector<Chart>& charts, const ShownArms& shown) {
  for (const auto chart : {throughput_chart, speedup_chart, efficiency_chart, step_strip_chart,
                           step_distribution_chart, profile_chart, rank_chart}) {
    charts.push_back(chart(shown));
  }
  Chart of_stages = pipeline_chart(shown);
  if (of_stages.missing.empty()) charts.push_back(std::move(of_stages));
}

}  // namespace

ShownArms shown_arms(const RunSet& set) {
  ShownArms shown{.sides = {""}, .sets = {&set}};
  for (const RunArm& arm : set.arms) {
    if (shown.rows.size() == most_rows) break;
    shown.rows.push_back(arm.name);
    add_arm(shown, arm.name, &arm, 0);
  }
  shown.left_out = set.arms.size() - shown.rows.size();
  return shown;
}

ShownArms shown_arms(const std::vector<NamedRuns>& groups) {
  ShownArms shown;
  std::vector<std::string> names;
  for (const NamedRuns& group : groups) {
    shown.sides.push_back(group.name);
    shown.sets.push_back(&group.set);
    for (const RunArm& arm : group.set.arms) {
      if (std::ranges::find(names, arm.name) == names.end()) names.push_back(arm.name);
    }
  }
  for (const std::string& name : names) {
    if (shown.rows.size() == most_rows) break;
    shown.rows.push_back(name);
    for (size_t side = 0; side < groups.size(); ++side) {
      const std::vector<RunArm>& arms = groups[side].set.arms;
      const auto found = std::ranges::find(arms, name, &RunArm::name);
      if (found != arms.end()) add_arm(shown, name, &*found, side);
    }
  }
  shown.left_out = names.size() - shown.rows.size();
  return shown;
}

ShownArms shown_arms(const RunSet& base, const RunSet& next, const Comparison& comparison) {
  ShownArms shown{.sides = {base_title(comparison.options), new_title(comparison.options)},
                  .sets = {&base, &next}};
  const std::vector<ArmPair> pairs = paired_arms(base, next);
  for (const ComparisonRow& row : comparison.rows) {
    if (row.metric != comparison.rows.front().metric || !row.since.empty()) continue;
    const auto pair = std::ranges::find(pairs, row.arm, &ArmPair::name);
    if (shown.rows.size() == most_rows || pair == pairs.end()) continue;
    shown.rows.push_back(row.arm);
    add_arm(shown, row.arm, pair->base, 0);
    add_arm(shown, row.arm, pair->next, 1);
  }
  shown.left_out = pairs.size() - shown.rows.size();
  return shown;
}

std::string labelled(const std::string& arm, const std::string& side) {
  return side.empty() ? arm : arm + ", " + side;
}

std::string ShownArm::label() const {
  const std::string label = labelled(name, side);
  return kind == Kind::measured ? label : label + ", " + to_string(kind);
}

std::string left_out_text(size_t left_out) {
  return left_out == 0 ? "" : " " + std::to_string(left_out) + " more are not shown.";
}

std::string counts_text(const std::vector<std::pair<std::string, std::string>>& counts) {
  std::string text;
  bool equal = true;
  for (const auto& [name, count] : counts) {
    equal &= count == counts.front().second;
    text += (text.empty() ? "" : ", ") + name + " " + count;
  }
  if (counts.empty()) return "";
  return equal ? " n = " + counts.front().second + "." : " n: " + text + ".";
}

const Run* typical_run(const RunArm& arm, bool (*has)(const Run& run)) {
  std::vector<const Run*> runs;
  for (const SetRun& run : arm.runs) {
    const bool counts = run.run.status == Status::complete && run.run.throughput;
    if (counts && !run.run.ranks.empty() && has(run.run)) runs.push_back(&run.run);
  }
  if (runs.empty()) return nullptr;
  const auto middle = runs.begin() + static_cast<std::ptrdiff_t>((runs.size() - 1) / 2);
  std::nth_element(runs.begin(), middle, runs.end(),
                   [](const Run* a, const Run* b) { return *a->throughput < *b->throughput; });
  return *middle;
}

std::span<const double> window_steps(const Run& run) {
  if (!run.window) return {};
  std::span<const double> slowest;
  double longest = -1;
  for (size_t i = 0; i < run.ranks.size(); ++i) {
    const std::span<const double> steps = window_steps(run, i);
    if (steps.empty()) continue;
    const double mean =
        std::accumulate(steps.begin(), steps.end(), 0.0) / static_cast<double>(steps.size());
    if (mean > longest) {
      longest = mean;
      slowest = steps;
    }
  }
  return slowest;
}

std::vector<Chart> charts_of(const GroupedRuns& runs) {
  std::vector<Chart> charts;
  if (shares_a_device(runs.all)) charts = fraction_charts(runs.all);
  for (Chart& chart : grid_charts(runs.all)) charts.push_back(std::move(chart));
  add_charts_of_runs(charts, runs.groups.empty() ? shown_arms(runs.all) : shown_arms(runs.groups));
  return charts;
}

std::vector<Chart> charts_of(const RunSet& base, const RunSet& next, const Comparison& comparison) {
  std::vector<Chart> charts = {difference_chart(comparison)};
  add_charts_of_runs(charts, shown_arms(base, next, comparison));
  return charts;
}

}  // namespace nearmetal
