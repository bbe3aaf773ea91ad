#include "reports/compare/baseline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <stdexcept>
#include <utility>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "base/sha256.h"
#include "base/text.h"
#include "reports/compare/compare.h"
#include "reports/compare/gate.h"
#include "reports/json/report_files.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

constexpr size_t hash_digits = 12;  // in names

std::string fingerprint(const SetRun& run) {
  return context_sha256(run.key).substr(0, hash_digits);
}

bool is_name(const std::string& name) {
  const auto is_plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
  };
  const bool plain = std::ranges::all_of(name, is_plain);
  return !name.empty() && plain && name.front() != '.' && name.front() != '-';
}

void require_name(const std::string& name) {
  if (is_name(name)) return;
  throw std::invalid_argument("'" + name +
                              "' is no name of a baseline: letters, digits, -, _ and "
                              "., and not - or . first");
}

std::vector<KeyField> context_of(const std::vector<KeyField>& key) {
  std::vector<KeyField> context = key;
  std::erase_if(context, [](const KeyField& field) { return field.severity == Severity::layout; });
  return context;
}

const SetRun* first_run(const RunSet& set) {
  for (const RunArm& arm : set.arms) {
    if (!arm.runs.empty()) return &arm.runs.front();
  }
  return nullptr;
}

// The context in the history that is nearest to the wanted one.
std::vector<KeyField> nearest_context(const RunSet& history, const std::vector<KeyField>& wanted) {
  std::vector<KeyField> nearest;
  size_t fewest = std::numeric_limits<size_t>::max();
  for (const RunArm& arm : history.arms) {
    for (const SetRun& run : arm.runs) {
      const std::vector<KeyField> context = context_of(run.key);
      const size_t differences = key_differences(context, wanted).size();
      if (differences > fewest) continue;  // the latest of equals, as it tells the most
      fewest = differences;
      nearest = context;
    }
  }
  return nearest;
}

using Runs = std::vector<const SetRun*>;

// The runs of an arm in that context, in order of their start.
Runs runs_of(const RunArm& arm, const std::vector<KeyField>& context, const std::string& since) {
  Runs runs;
  for (const SetRun& run : arm.runs) {
    const bool same = key_differences(context, context_of(run.key)).empty();
    if (run.run.started_at >= since && same) runs.push_back(&run);
  }
  std::ranges::stable_sort(runs, {}, [](const SetRun* run) { return run->run.started_at; });
  return runs;
}

// The first sessions with enough runs; none where these are all there are.
Runs anchor_of(const Runs& runs, const BaselineWindow& window) {
  Runs anchor;
  int64_t complete = 0;
  for (const SetRun* run : runs) {
    const bool enough = complete >= window.anchor_runs;
    if (enough && run->session != anchor.back()->session) return anchor;
    anchor.push_back(run);
    complete += run->run.status == Status::complete ? 1 : 0;
  }
  return {};
}

// FINGERPRINT/TIME-HASH.json.
fs::path place_of_copy(const ReportText& copied) {
  const Report report = read_report(copied);
  RunSet set;
  add_runs(set, report, copied.source);
  require_none_imported(set, "a baseline keeps runs of nearmetal alone");
  if (std::ranges::all_of(set.arms, [](const auto& arm) { return complete_runs(arm).empty(); })) {
    throw InvalidReport(copied.source + " holds no complete run");
  }
  std::string time = report.invocation.started_at;
  std::erase(time, ':');
  return fs::path(fingerprint(*first_run(set))) /
         (time + "-" + sha256(copied.text).substr(0, hash_digits) + ".json");
}

// Nothing else has the hash of its own text in its name.
bool is_copy(const fs::path& file) {
  return file.extension() == ".json" &&
         file.stem().string().ends_with("-" + sha256(file_text(file)).substr(0, hash_digits));
}

std::string contents_of(const fs::path& folder) {
  const std::vector<std::string> names = baseline_names(folder);
  return (folder / "").string() + " holds " + (names.empty() ? "none" : joined(names));
}

constexpr int64_t most_planned = 1000;  // runs a side

Maybe<int64_t> runs_needed(double deviation, double drop, const DecisionRule& rule) {
  for (int64_t runs = GateOptions{}.minimum_runs; runs <= most_planned; ++runs) {
    const std::vector<RunGroup> groups(2, {deviation, runs});
    if (power_of_regression(groups, std::log1p(-drop), rule) >= needed_runs_power) return runs;
  }
  return Unknown{"more than " + std::to_string(most_planned)};
}

void summarise(const std::vector<double>& values, const DecisionRule& rule,
               BaselineSeries& series) {
  series.runs = std::ssize(values);
  series.throughput = series.lower = series.upper = Unknown{"no run is complete"};
  if (!values.empty()) {
    series.throughput = geometric_mean(values);
    series.lower = series.upper = Unknown{"one run has no interval"};
  }
  if (const auto estimate = log_mean(values)) {
    const Interval found = interval(*estimate, side_confidence);
    series.lower = found.lower;
    series.upper = found.upper;
  }
  series.spread = Unknown{"it takes 2 runs that differ"};
  const auto spread = run_spread(values, {});
  if (!spread || spread->deviation == 0) return;
  series.spread = spread->deviation;
  for (const double beyond : {0.25, 0.5, 1.0}) {
    const double drop = rule.margin * (1 + beyond);
    series.needed_runs.push_back({drop, runs_needed(spread->deviation, drop, rule)});
  }
}

}  // namespace

BaselineCopies add_to_baseline(const fs::path& folder, const std::string& name,
                               const std::vector<std::string>& reports, bool skip_existing) {
  require_name(name);
  BaselineCopies copies;
  std::map<fs::path, std::string> texts;
  for (const std::string& file : reports) {
    for (const ReportText& report : report_texts(file)) {
      const fs::path target = folder / name / place_of_copy(report);
      const bool there = fs::exists(target);
      if (there && !skip_existing) {
        throw std::invalid_argument(report.source + " is in the baseline already: " +
                                    target.string() + "; --skip-existing adds the others");
      }
      if (there) copies.left.push_back(target);
      if (!there) texts[target] = report.text;
    }
  }
  for (const auto& [target, text] : texts) {
    std::error_code ignored;  // writing says what is wrong
    fs::create_directories(target.parent_path(), ignored);
    write_file_atomically(target, text, false);
    copies.changed.push_back(target);
  }
  return copies;
}

BaselineCopies remove_from_baseline(const fs::path& folder, const std::string& name,
                                    const std::vector<std::string>& reports) {
  require_name(name);
  const fs::path baseline = folder / name;
  std::error_code error;
  if (!fs::is_directory(baseline, error)) {
    throw InvalidReport("there is no baseline " + name + "; " + contents_of(folder));
  }
  BaselineCopies copies;
  for (const std::string& file : reports) {
    for (const ReportText& report : report_texts(file)) {
      const fs::path copy = baseline / place_of_copy(report);
      if (!fs::exists(copy)) {
        throw std::invalid_argument(report.source + " is not in the baseline " + name);
      }
      copies.changed.push_back(copy);
    }
  }
  for (const auto& entry : fs::recursive_directory_iterator(baseline)) {
    if (!reports.empty() || entry.is_directory()) continue;
    (is_copy(entry.path()) ? copies.changed : copies.left).push_back(entry.path());
  }
  for (auto* paths : {&copies.changed, &copies.left}) std::ranges::sort(*paths);
  for (const fs::path& copy : copies.changed) {
    if (!fs::remove(copy, error) && error) {
      throw OutputError("cannot remove " + copy.string() + ": " + error.message());
    }
    fs::remove(copy.parent_path(), error);  // fails as long as it holds others
  }
  fs::remove(baseline, error);
  return copies;
}

std::vector<std::string> baseline_names(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

std::string place_of_baseline(const fs::path& folder, const std::string& place) {
  std::error_code ignored;
  const fs::path named = folder / place;
  if (is_name(place) && fs::is_directory(named, ignored)) return named.string();
  const bool is_input = place == "-" || place.find('#') != place.npos;
  if (is_input || fs::exists(place, ignored)) return place;
  throw InvalidReport(place + " is neither a report, a folder nor a baseline; " +
                      contents_of(folder) + " (`nearmetal baseline add` makes one)");
}

Baseline matching_runs(const RunSet& history, const RunSet& next, const BaselineWindow& window) {
  const SetRun* first = first_run(next);
  if (first == nullptr) return {history};
  const std::vector<KeyField> context = nearest_context(history, context_of(first->key));
  Baseline matching;
  for (const RunArm& arm : history.arms) {
    const Runs runs = runs_of(arm, context, window.since);
    const auto add = [&](RunSet& set, std::span<const SetRun* const> chosen) {
      for (const SetRun* run : chosen) add_run(set, arm.name, *run, history.environments);
    };
    add(matching.recent, std::span(runs).last(std::min<size_t>(runs.size(), window.recent_runs)));
    add(matching.anchor, anchor_of(runs, window));
  }
  return matching;
}

std::vector<BaselineSeries> series_of(const RunSet& set, const std::string& baseline,
                                      const DecisionRule& rule) {
  std::map<std::pair<std::string, std::string>, std::pair<BaselineSeries, std::vector<double>>>
      found;
  for (const RunArm& arm : set.arms) {
    for (const SetRun& run : arm.runs) {
      const std::string name = fingerprint(run);
      auto& [series, values] = found[{name, arm.name}];
      series.baseline = baseline;
      series.fingerprint = name;
      series.arm = arm.name;
      series.sample = run.run.sample;
      const std::string& start = run.run.started_at;
      if (series.first.empty() || start < series.first) series.first = start;
      series.last = std::max(series.last, start);
      const bool counts = run.run.status == Status::complete && run.run.throughput;
      if (counts) values.push_back(*run.run.throughput);
      if (!counts) ++series.left_out;
    }
  }
  std::vector<BaselineSeries> all;
  for (auto& [key, of_key] : found) {
    summarise(of_key.second, rule, of_key.first);
    all.push_back(std::move(of_key.first));
  }
  return all;
}

}  // namespace nearmetal
