#include "reports/run_set.h"

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "reports/json.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

RunArm& arm_named(RunSet& set, const std::string& name) {
  for (RunArm& arm : set.arms) {
    if (arm.name == name) return arm;
  }
  return set.arms.emplace_back(RunArm{name, {}});
}

Run without_series(const Run& run) {
  Run copy = run;
  copy.plans = {};
  copy.profile.reset();
  for (Rank& rank : copy.ranks) rank.step_seconds = rank.loss = {};
  return copy;
}

double window_seconds(const Run& run) { return run.window ? run.window->seconds : 0; }

// A run given twice would count as two that agree to the last digit.
void require_distinct(const RunArm& arm) {
  std::vector<const SetRun*> runs;
  for (const SetRun& run : arm.runs) runs.push_back(&run);
  const auto order = [](const SetRun* run) {
    return std::pair(std::string_view(run->run.started_at), window_seconds(run->run));
  };
  std::sort(runs.begin(), runs.end(),
            [&](const SetRun* a, const SetRun* b) { return order(a) < order(b); });
  const auto twin =
      std::adjacent_find(runs.begin(), runs.end(), [&](const SetRun* a, const SetRun* b) {
        return order(a) == order(b) && a->run.ranks == b->run.ranks;
      });
  if (twin == runs.end()) return;
  throw std::invalid_argument("the same run is in " + (*twin)->source + " and in " +
                              (*std::next(twin))->source + ": it would count twice");
}

std::string tool_text(const Tool& tool) {
  return tool.version + " " + tool.git_commit.value.value_or("of unknown commit") +
         (tool.dirty.value.value_or(false) ? " with changes" : "") + " " + tool.build_type;
}

std::vector<fs::path> reports_below(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() && entry.path().extension() == ".json") {
      files.push_back(entry.path());
    }
  }
  if (files.empty()) throw InvalidReport(folder.string() + " holds no report (*.json)");
  std::sort(files.begin(), files.end());
  return files;
}

void read_place(RunSet& set, const std::string& place) {
  std::error_code ignored;
  if (fs::is_directory(place, ignored)) {
    for (const fs::path& file : reports_below(place)) {
      add_runs(set, read_report(file), file.string());
    }
    return;
  }
  const size_t hash = place.rfind('#');
  if (hash == place.npos || fs::exists(place, ignored)) {
    add_runs(set, read_report(place), place);
  } else {
    const std::string file = place.substr(0, hash);
    add_runs(set, read_report(file), file, place.substr(hash + 1));
  }
}

}  // namespace

void add_runs(RunSet& set, const Report& report, const std::string& source,
              const std::string& only_arm) {
  std::string names;
  for (const Arm& arm : report.arms) {
    names += (names.empty() ? "" : ", ") + arm.name;
    if (!only_arm.empty() && arm.name != only_arm) continue;
    RunArm& runs = arm_named(set, arm.name);
    for (const Run& run : arm.runs) {
      runs.runs.push_back(
          {source, tool_text(report.tool), comparable_key(report, arm, run), without_series(run)});
    }
  }
  const bool found = std::any_of(report.arms.begin(), report.arms.end(),
                                 [&](const Arm& arm) { return arm.name == only_arm; });
  if (!only_arm.empty() && !found) {
    throw std::invalid_argument(source + " has no arm '" + only_arm + "'; it has: " + names);
  }
  for (const Environment& environment : report.environments) {
    const auto known = std::find(set.environments.begin(), set.environments.end(), environment);
    if (known == set.environments.end()) set.environments.push_back(environment);
  }
}

RunSet read_runs(const std::vector<std::string>& places) {
  RunSet set;
  for (const std::string& place : places) read_place(set, place);
  for (const RunArm& arm : set.arms) require_distinct(arm);
  return set;
}

}  // namespace nearmetal
