#include <algorithm>
#include <set>

#include "reports/compare/comparison_row.h"
#include "reports/compare/run_difference.h"
#include "reports/document/metric.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

using Runs = std::vector<const SetRun*>;

// Runs whose mean is hardly better known than they differ are too short.
constexpr double large_within = 1.0 / 3;
constexpr int64_t fewest_for_rank_test = 4;
constexpr int64_t fewest_pairs_for_rank_test = 6;

const std::string& start(const SetRun* run) { return run->run.started_at; }

void add_order_note(ComparisonRow& row, const Runs& base, const Runs& next) {
  if (base.empty() || next.empty() || row.method == Method::sessions) return;
  if (!share_sessions(base, next)) {
    row.notes.push_back(
        {"few_sessions",
         "the runs are of " + counted(row.base_side.sessions, "session") +
             " (host, boot, day) of " + row.base_side.name + " and " +
             std::to_string(row.new_side.sessions) + " of " + row.new_side.name +
             ": too few to know how sessions differ, so that the interval holds within one; from 4 "
             "on of a side it takes that in"});
    return;
  }
  if (are_pairs(base, next)) return;
  const bool one_after_other =
      start(base.back()) <= start(next.front()) || start(next.back()) <= start(base.front());
  if (!one_after_other) return;
  row.notes.push_back({"not_interleaved",
                       "the sides were not interleaved in time: a drift of heat or clocks between "
                       "them would look like a difference"});
}

void add_kind_note(ComparisonRow& row, const Runs& base) {
  if (base.empty() || base.front()->kind == Kind::measured) return;
  const std::string kind = to_string(base.front()->kind);
  row.notes.push_back({kind, "both sides are " + kind + ", and tell nothing of real machines"});
}

// As when new runs were added to the baseline that they are held against.
void add_shared_runs(ComparisonRow& row, const Runs& base, const Runs& next) {
  const auto identity = [](const SetRun* run) {
    return std::pair(run->run.started_at, run->run.throughput.value);
  };
  std::set<decltype(identity(base.front()))> of_base;
  for (const SetRun* run : base) of_base.insert(identity(run));
  const auto shared = std::ranges::count_if(
      next, [&](const SetRun* run) { return of_base.count(identity(run)) > 0; });
  if (shared == 0) return;
  row.notes.push_back({"shared_runs", std::to_string(shared) + " of " +
                                          counted(std::ssize(next), "run") + " of " +
                                          row.new_side.name + " are in " + row.base_side.name +
                                          ", too: that hides a difference"});
}

void add_outliers(ComparisonRow& row, const Runs& runs, const std::vector<double>& values) {
  const std::vector<bool> outlying = outliers(values);
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!outlying[i]) continue;
    row.notes.push_back({"outlier", "the run of " + runs[i]->source + " started at " +
                                        runs[i]->run.started_at +
                                        " lies far from the others of its side; it counts"});
  }
}

std::set<std::string> plans_of(const Runs& runs) {
  std::set<std::string> hashes;
  for (const SetRun* run : runs) {
    for (const Rank& rank : run->run.ranks) {
      if (rank.kernel_choices_sha256) hashes.insert(*rank.kernel_choices_sha256);
    }
  }
  return hashes;
}

std::set<std::string> tools_of(const Runs& runs) {
  std::set<std::string> tools;
  for (const SetRun* run : runs) tools.insert(run->tool);
  return tools;
}

void add_different_software(ComparisonRow& row, const Runs& base, const Runs& next) {
  if (plans_of(base) != plans_of(next)) {
    row.notes.push_back({"different_plans",
                         "the sides ran different kernels; `run --plans REPORT` pins those of "
                         "another run"});
  }
  if (tools_of(base) != tools_of(next)) {
    row.notes.push_back({"different_tool",
                         "the sides were measured by different builds of "
                         "nearmetal: " +
                             *tools_of(base).begin() + " | " + *tools_of(next).begin()});
  }
}

void add_few_steps(ComparisonRow& row, const Runs& base, const Runs& next) {
  const int64_t needed = metric_from(row.metric).fewest_steps;
  int64_t fewest = needed;
  for (const Runs* runs : {&base, &next}) {
    for (const SetRun* run : *runs) {
      if (run->run.window) fewest = std::min(fewest, run->run.window->steps);
    }
  }
  if (fewest == needed) return;
  row.notes.push_back({"few_steps", "a run has " + counted(fewest, "step") + ": of fewer than " +
                                        std::to_string(needed) + ", " + row.metric +
                                        " is little more than the longest"});
}

void add_short_runs(ComparisonRow& row, const SideSummary& side) {
  if (!side.spread || side.spread->within <= large_within * side.spread->between) return;
  if (side.spread->within < large_within * side.spread->deviation) return;
  row.notes.push_back({"short_runs", "noise within the runs of " + side.name +
                                         " is a large part of their spread: longer runs would "
                                         "narrow the interval"});
}

void add_rank_test_note(ComparisonRow& row) {
  const bool pairs = row.method == Method::paired;
  const int64_t fewest = pairs ? fewest_pairs_for_rank_test : fewest_for_rank_test;
  if (std::min(row.base_side.runs, row.new_side.runs) >= fewest) return;
  row.notes.push_back({"few_runs", "with fewer than " + std::to_string(fewest) +
                                       (pairs ? " pairs" : " runs a side") +
                                       " the rank test cannot fall below 0.05"});
}

}  // namespace

bool are_pairs(const Runs& base, const Runs& next) {
  bool pairs = base.size() == next.size() && base.size() > 1;
  for (size_t i = 1; pairs && i < base.size(); ++i) {
    const std::string& before = std::max(start(base[i - 1]), start(next[i - 1]));
    pairs = before < std::min(start(base[i]), start(next[i]));
  }
  return pairs;
}

std::vector<RunWarning> warnings_of(const std::vector<const SetRun*>& runs) {
  std::vector<RunWarning> found;
  for (const SetRun* run : runs) {
    std::set<std::string> codes;
    for (const Warning& warning : run->run.warnings) {
      if (!codes.insert(warning.code).second) continue;
      const auto known = std::ranges::find_if(
          found, [&](const RunWarning& other) { return other.warning.code == warning.code; });
      if (known == found.end()) {
        found.push_back({warning, 1});
      } else {
        ++known->runs;
        known->same &= known->warning.text == warning.text;
      }
    }
  }
  return found;
}

void add_run_notes(ComparisonRow& row, const Runs& base, const Runs& next,
                   const std::vector<double>& base_values, const std::vector<double>& new_values) {
  add_kind_note(row, base);
  add_order_note(row, base, next);
  add_shared_runs(row, base, next);
  add_rank_test_note(row);
  row.base_side.warnings = warnings_of(base);
  row.new_side.warnings = warnings_of(next);
  add_outliers(row, base, base_values);
  add_outliers(row, next, new_values);
  add_different_software(row, base, next);
  add_few_steps(row, base, next);
  add_short_runs(row, row.base_side);
  add_short_runs(row, row.new_side);
}

}  // namespace nearmetal
