#include "reports/compare/baseline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <span>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "base/sha256.h"
#include "base/text.h"
#include "reports/compare/comparison_row.h"
#include "reports/compare/gate.h"
#include "reports/compare/work_text.h"
#include "reports/json/report_files.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

constexpr size_t hash_digits = 12;  // in names

std::string fingerprint(const SetRun& run) {
  return context_sha256(run.key).substr(0, hash_digits);
}

std::vector<KeyField> context_of(const std::vector<KeyField>& key) {
  std::vector<KeyField> context = key;
  std::erase_if(context, [](const KeyField& field) { return field.severity == Severity::layout; });
  return context;
}

// The context in the history that is nearest to the wanted one.
std::vector<KeyField> nearest_context(const RunSet& history, const std::vector<KeyField>& wanted) {
  std::vector<KeyField> nearest;
  size_t fewest = std::numeric_limits<size_t>::max();
  for (const SetRun& run : all_runs(history)) {
    const std::vector<KeyField> context = context_of(run.key);
    const size_t differences = key_differences(context, wanted).size();
    if (differences > fewest) continue;  // the latest of equals, as it tells the most
    fewest = differences;
    nearest = context;
  }
  return nearest;
}

// The runs of an arm in that context, in order of their start.
SomeRuns runs_of(const RunArm& arm, const std::vector<KeyField>& context,
                 const std::string& since) {
  return in_order(runs_where(arm, [&](const SetRun& run) {
    return run.run.started_at >= since && key_differences(context, context_of(run.key)).empty();
  }));
}

// The first complete runs; none where the recent ones still begin with them, all in one session.
SomeRuns anchor_of(const SomeRuns& runs, const BaselineWindow& window) {
  SomeRuns anchor;
  for (const SetRun* run : runs) {
    if (std::ssize(anchor) == window.anchor_runs) break;
    if (run->run.status == Status::complete) anchor.push_back(run);
  }
  const bool moved_on = std::ssize(runs) > window.recent_runs;
  const bool later_session = !anchor.empty() && anchor.back()->session != runs.back()->session;
  return moved_on || later_session ? anchor : SomeRuns{};
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
  return fs::path(fingerprint(all_runs(set).front())) /
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

// The fewest of the last group, from those that it has, with which these find the drop.
Maybe<int64_t> fewest_that_find(double drop, const DecisionRule& rule,
                                const std::vector<RunGroup>& groups) {
  const auto more = more_runs_to_decide(groups, std::log1p(-drop), rule, needed_runs_power);
  if (more) return groups.back().runs + *more;
  return Unknown{"more than 1000; add to the baseline"};
}

// By sessions, where there are several: a gate judges by their means.
void plan(const Sessions& sessions, double deviation, const DecisionRule& rule,
          BaselineSeries& series) {
  const bool by_sessions = sessions.size() > 1;
  const double of_means = by_sessions ? std::sqrt(variance(session_means(sessions))) : 0;
  for (const double beyond : {0.25, 0.5, 1.0}) {
    NeededRuns& needed = series.needed_runs.emplace_back();
    needed.drop = rule.margin * (1 + beyond);
    if (!by_sessions) {
      const RunGroup side{deviation, GateOptions{}.minimum_runs};
      needed.runs = fewest_that_find(needed.drop, rule, {side, side});
      needed.sessions = Unknown{"the baseline is of one session"};
      continue;
    }
    needed.runs = Unknown{"the baseline is of several sessions, which a gate judges by"};
    needed.sessions = Unknown{"the means of its sessions are equal"};
    if (of_means == 0) continue;
    needed.sessions = fewest_that_find(needed.drop, rule,
                                       {{of_means, std::ssize(sessions), false}, {of_means, 2}});
  }
}

// Of each split, which of the runs are new.
std::vector<std::vector<bool>> splits_of(const SomeRuns& runs, const Sessions& sessions) {
  constexpr int drawn = 1000;
  std::vector<std::vector<bool>> splits;
  for (const auto& [name, unused] : sessions) {
    auto& is_new = splits.emplace_back();
    for (const SetRun* run : runs) is_new.push_back(run->session == name);
  }
  if (sessions.size() > 1) return splits;
  const auto few = std::min<size_t>(runs.size(), GateOptions{}.minimum_runs);
  std::vector<bool> is_new(runs.size(), false);
  std::fill_n(is_new.begin(), few, true);
  std::mt19937_64 engine;  // the same ones each time
  splits.assign(drawn, is_new);
  for (auto& split : splits) std::shuffle(split.begin(), split.end(), engine);
  return splits;
}

// As a gate does, with the latest runs of the rest.
SelfTest self_test(SomeRuns runs, const Sessions& sessions, const DecisionRule& rule) {
  SelfTest test;
  test.detectable_drop = Unknown{"it takes 3 sessions, or 5 runs of one, that differ"};
  if (sessions.size() == 2) return test;
  CompareOptions options;
  options.rule = rule;
  std::vector<double> drops;  // from which on each split calls the new part SLOWER
  runs = in_order(std::move(runs));
  for (const std::vector<bool>& is_new : splits_of(runs, sessions)) {
    SomeRuns sides[2];
    for (size_t i = 0; i < runs.size(); ++i) sides[is_new[i] ? 1 : 0].push_back(runs[i]);
    const size_t left = std::ssize(sides[0]) -
                        std::min<int64_t>(std::ssize(sides[0]), BaselineWindow{}.recent_runs);
    RunArm base, next;
    for (const SetRun* run : std::span(sides[0]).subspan(left)) base.runs.push_back(*run);
    for (const SetRun* run : sides[1]) next.runs.push_back(*run);
    const Metric& metric = throughput_metric(runs.front()->run.sample);
    const ComparisonRow row = compare_arms(base, next, metric, options, {});
    if (!row.log_difference) continue;
    ++test.splits;
    test.slower += row.verdict == Verdict::slower ? 1 : 0;
    const double upper = log_interval(*row.log_difference, 1 - 2 * rule.alpha).upper;
    drops.push_back(row.doubt ? 1 : std::max(0.0, -std::expm1(log_margin(rule) - upper)));
  }
  if (drops.empty()) return test;
  test.detectable_drop = quantile(drops, planned_power);
  if (*test.detectable_drop >= 1) {
    test.detectable_drop = Unknown{"too many are in doubt for any drop to be found"};
  }
  return test;
}

void summarise(const SomeRuns& runs, const DecisionRule& rule, bool with_self_test,
               BaselineSeries& series) {
  std::vector<double> values;
  Sessions sessions;
  for (const SetRun* run : runs) {
    values.push_back(*run->run.throughput);
    sessions[run->session].push_back(std::log(values.back()));
  }
  series.runs = std::ssize(values);
  series.sessions = std::ssize(sessions);
  series.throughput = series.lower = series.upper = Unknown{"no run is complete"};
  series.spread = Unknown{"it takes 2 runs that differ"};
  series.run_seconds = mean_run_seconds(runs);
  if (values.empty()) return;
  if (with_self_test) series.self_test = self_test(runs, sessions, rule);
  const Estimate mean = mean_estimate(sessions);
  series.throughput = mean.value;
  std::tie(series.lower, series.upper) = bounds_of(mean.interval);
  const auto spread = run_spread(values, {});
  if (!spread || spread->deviation == 0) return;
  series.spread = spread->deviation;
  plan(sessions, spread->deviation, rule, series);
}

}  // namespace

bool is_name_of_runs(const std::string& name) {
  const auto is_plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
  };
  const bool plain = std::ranges::all_of(name, is_plain);
  return !name.empty() && plain && name.front() != '.' && name.front() != '-';
}

void require_name(const std::string& name, const std::string& what) {
  if (is_name_of_runs(name)) return;
  throw std::invalid_argument("'" + name + "' is no name of " + what +
                              ": letters, digits, -, _ and ., and not - or . first");
}

BaselineCopies add_to_baseline(const fs::path& folder, const std::string& name,
                               const std::vector<std::string>& reports, bool skip_existing) {
  require_name(name, "a baseline");
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
  require_name(name, "a baseline");
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
  if (is_name_of_runs(place) && fs::is_directory(named, ignored)) return named.string();
  const bool is_input = place == "-" || place.find('#') != place.npos;
  if (is_input || fs::exists(place, ignored)) return place;
  throw InvalidReport(place + " is neither a report, a folder nor a baseline; " +
                      contents_of(folder) + " (`nearmetal baseline add` makes one)");
}

Baseline matching_runs(const RunSet& history, const RunSet& next, const BaselineWindow& window) {
  const auto new_runs = all_runs(next);
  if (new_runs.empty()) return {history};
  const std::vector<KeyField> wanted = context_of(new_runs.front().get().key);
  const std::vector<KeyField> context = nearest_context(history, wanted);
  Baseline matching;
  for (const RunArm& arm : history.arms) {
    const SomeRuns runs = runs_of(arm, context, window.since);
    const auto add = [&](RunSet& set, std::span<const SetRun* const> chosen) {
      for (const SetRun* run : chosen) add_run(set, arm.name, *run, history.environments);
    };
    add(matching.recent, std::span(runs).last(std::min<size_t>(runs.size(), window.recent_runs)));
    add(matching.anchor, anchor_of(runs, window));
  }
  return matching;
}

Baseline matching_runs_by_machine(const RunSet& history, RunSet& next,
                                  const BaselineWindow& window) {
  std::map<std::string, RunSet> known = by_machine(history);
  Baseline all;
  RunSet renamed;
  for (const auto& [machine, part] : by_machine(next)) {
    Baseline of_machine = matching_runs(known[machine], part, window);
    add_set(all.recent, std::move(of_machine.recent));
    add_set(all.anchor, std::move(of_machine.anchor));
    add_set(renamed, part);
  }
  next = std::move(renamed);
  return all;
}

std::vector<std::string> new_hosts(const RunSet& history, const RunSet& next) {
  std::vector<std::string> hosts;
  for (const Environment& host : next.environments) {
    const bool known = std::ranges::any_of(history.environments, [&](const Environment& other) {
      return are_one_machine(host, other);
    });
    if (!known) add_new(hosts, host.host_name);
  }
  return hosts;
}

std::vector<BaselineSeries> series_of(const RunSet& set, const std::string& baseline,
                                      const DecisionRule& rule, bool with_self_test) {
  std::map<std::pair<std::string, std::string>, std::pair<BaselineSeries, SomeRuns>> found;
  for (const RunArm& arm : set.arms) {
    for (const SetRun& run : arm.runs) {
      const std::string name = fingerprint(run);
      auto& [series, runs] = found[{name, arm.name}];
      series.baseline = baseline;
      series.fingerprint = name;
      series.arm = arm.name;
      series.work = work_of(run) + " on " + run.run.device_name;
      series.sample = run.run.sample;
      const std::string& start = run.run.started_at;
      if (series.first.empty() || start < series.first) series.first = start;
      series.last = std::max(series.last, start);
      const bool counts = run.run.status == Status::complete && run.run.throughput;
      if (counts) runs.push_back(&run);
      if (!counts) ++series.left_out;
    }
  }
  std::vector<BaselineSeries> all;
  for (auto& [key, of_key] : found) {
    summarise(of_key.second, rule, with_self_test, of_key.first);
    all.push_back(std::move(of_key.first));
  }
  return all;
}

}  // namespace nearmetal
