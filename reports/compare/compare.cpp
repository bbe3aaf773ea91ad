#include "reports/compare/compare.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <tuple>

#include "base/text.h"
#include "reports/compare/baseline.h"
#include "reports/compare/comparison_row.h"
#include "reports/compare/reference.h"
#include "reports/compare/work_text.h"
#include "reports/document/settings.h"

namespace nearmetal {

NM_DEFINE_SPECIAL_MEMBERS(ComparisonRow);
namespace {

// The throughput in the unit of the pair.
const Metric& throughput_of(const ArmPair& pair) {
  const RunArm& arm = pair.base != nullptr ? *pair.base : *pair.next;
  const bool of_links = is_imported(arm) && arm.runs.front().run.communication;
  return of_links ? bus_bandwidth_metric() : throughput_metric(unit_of(arm));
}

// Of the base, then of the new side.
SomeRuns runs_of(const ArmPair& pair) {
  SomeRuns runs;
  for (const RunArm* arm : {pair.base, pair.next}) {
    if (arm != nullptr) append(runs, runs_of(*arm));
  }
  return runs;
}

bool is_known(const Metric& metric, const ArmPair& pair) {
  return std::ranges::any_of(runs_of(pair), [&](const SetRun* run) {
    return metric.value_of(run->run).value.has_value();
  });
}

bool infers(const ArmPair& pair) {
  return std::ranges::any_of(
      runs_of(pair), [](const SetRun* run) { return work_value(*run, "inference") == "yes"; });
}

bool is_of_latency(const Metric& metric) {
  return std::ranges::count(latency_metrics(), metric.name, &Metric::name) > 0;
}

// Unless the same one is there, whatever its source.
void add_difference(std::vector<KeyDifference>& differences, const KeyDifference& found) {
  const auto same = [&](const KeyDifference& other) {
    return std::tie(other.name, other.base, other.other) ==
           std::tie(found.name, found.base, found.other);
  };
  if (std::ranges::none_of(differences, same)) differences.push_back(found);
}

// The key of the run that tells the most of its machine; of equals the first, of the base.
const SharedKey& fullest_key(const SomeRuns& runs) {
  const auto recorded_fields = [](const SetRun* run) {
    return std::ranges::count_if(run->key,
                                 [](const KeyField& field) { return !field.value.empty(); });
  };
  return (*std::ranges::max_element(runs, {}, recorded_fields))->key;
}

// How every run of both arms differs from that one; each difference once.
std::vector<KeyDifference> differences_within(const ArmPair& pair, const CompareOptions& options) {
  std::vector<KeyDifference> found;
  if (pair.base->runs.empty()) return found;
  const SomeRuns runs = runs_of(pair);
  const SharedKey& key = fullest_key(runs);
  for (const SetRun* run : runs) {
    if (run->key == key) continue;
    std::vector<KeyDifference> differences = key_differences(key, run->key);
    allow(differences, options.form, options.allow_differ);
    for (KeyDifference& difference : differences) {
      difference.source = run->source;
      add_difference(found, difference);
    }
  }
  return found;
}

// Whether steps of the sides have unlike numbers of samples.
bool is_other_batch(const std::vector<KeyDifference>& differences) {
  return std::ranges::any_of(differences, [](const KeyDifference& found) {
    return found.name == "batch" || found.name == "accumulate";
  });
}

// The metrics that the options ask for, each once.
std::vector<const Metric*> compared_metrics(const std::vector<ArmPair>& pairs,
                                            const CompareOptions& options) {
  std::vector<const Metric*> metrics;
  const auto add = [&](const Metric& metric) { add_new(metrics, &metric); };
  const auto add_named = [&](const std::string& name) {
    for (const ArmPair& pair : pairs) {
      if (name == throughput_of_runs) add(throughput_of(pair));
      if (name != all_of_runs) continue;
      const bool other_batch = pair.base != nullptr && pair.next != nullptr &&
                               is_other_batch(differences_within(pair, options));
      for (const Metric* metric : all_metrics_of(sample_units)) {
        const bool compares = !metric->is_of_a_step || !other_batch;
        if (compares && is_known(*metric, pair)) add(*metric);
      }
    }
    if (name != throughput_of_runs && name != all_of_runs) add(metric_from(name));
  };
  for (const std::string& name : options.metrics) add_named(name);
  if (options.metrics.empty()) add_named(throughput_of_runs);
  if (metrics.empty()) add(throughput_metric(SampleUnit::image));
  return metrics;
}

// The metrics among these that a pair can have whatever its runs do: latency is of inference. All
// of them where no pair has it, so that each says why.
std::vector<const Metric*> metrics_of_pair(const std::vector<ArmPair>& pairs, const ArmPair& pair,
                                           const std::vector<const Metric*>& metrics) {
  std::vector<const Metric*> found = metrics;
  if (!infers(pair) && std::ranges::any_of(pairs, infers)) {
    std::erase_if(found, [](const Metric* metric) { return is_of_latency(*metric); });
  }
  return found;
}

// The rows that are left out by that; none: no row.
std::optional<Warning> note_of_rows_left_out(const std::vector<ArmPair>& pairs,
                                             const std::vector<const Metric*>& metrics) {
  std::vector<std::string> names, arms;
  for (const Metric* metric : metrics) {
    if (is_of_latency(*metric)) names.emplace_back(metric->name);
  }
  for (const ArmPair& pair : pairs) {
    if (metrics_of_pair(pairs, pair, metrics).size() < metrics.size()) arms.push_back(pair.name);
  }
  if (arms.empty()) return std::nullopt;
  return Warning{"not_of_inference",
                 "no row of " + joined(names) + " for " + joined(arms) + ": it is of inference"};
}

// `others`: runs that tell how sessions differ.
void add_rows(Comparison& comparison, const ArmPair& pair,
              const std::vector<const Metric*>& metrics, const RunArm& others = {}) {
  const auto add_without_figures = [&](const std::string& reason) {
    for (const Metric* metric : metrics) {
      comparison.rows.push_back(
          row_without_figures(pair.name, *metric, Verdict::not_comparable, reason));
    }
  };
  if (pair.base == nullptr || pair.next == nullptr) {
    const SideWords words = words_of(comparison.options);
    return add_without_figures("only in " +
                               (pair.base == nullptr ? words.new_name : words.base_name));
  }
  bool refused = false;
  const std::vector<KeyDifference> differences = differences_within(pair, comparison.options);
  for (const KeyDifference& found : differences) {
    refused |= !found.allowed;
    add_difference(comparison.key_differences, found);
  }
  if (refused) return add_without_figures("the runs differ in what must agree");
  const bool other_batch = is_other_batch(differences);
  for (const Metric* metric : metrics) {
    comparison.rows.push_back(
        other_batch && metric->is_of_a_step
            ? row_without_figures(pair.name, *metric, Verdict::not_comparable,
                                  "a step of another batch has other work")
            : compare_arms(*pair.base, *pair.next, *metric, comparison.options, others));
    comparison.rows.back().arm = pair.name;
  }
}

ExplainedSide side_of(const RunArm& arm, const std::vector<Environment>& environments) {
  ExplainedSide side;
  std::set<int64_t> places;
  for (const SetRun* run : complete_runs(arm)) {
    side.runs.push_back(&run->run);
    for (const Rank& rank : run->run.ranks) places.insert(rank.environment);
  }
  for (const int64_t place : places) {
    if (place >= 0) side.environments.push_back(&environments.at(place));
  }
  return side;
}

// Whether there is something to explain, however small: its interval excludes 0. For one run a
// side, which has none, it is what goes beyond the margin.
bool shows_difference(const ComparisonRow& throughput, const DecisionRule& rule) {
  const Maybe<Interval>& interval = throughput.difference_interval;
  if (interval) return interval->lower > 0 || interval->upper < 0;
  return throughput.difference && std::abs(*throughput.difference) > rule.margin;
}

Warning nothing_to_explain(const std::string& arm, const ComparisonRow& throughput) {
  const Maybe<Interval>& interval = throughput.difference_interval;
  const double difference = throughput.difference.value.value_or(0);
  return {"no_difference_shown",
          arm + ": no difference is shown (" +
              (interval ? signed_percent(difference, *interval)
                        : signed_percent(difference) + ", " + interval.reason) +
              "), so that none is explained"};
}

// Half the interval of the difference.
Maybe<double> noise_of(const ComparisonRow& throughput) {
  const Maybe<Interval>& found = throughput.difference_interval;
  if (!found) return Unknown{found.reason};
  const double half = (found->upper - found->lower) / 2;
  // An interval so wide says nothing, and would not fit into a number of seconds.
  return half < 1e6 ? Maybe<double>(half) : Unknown{"the interval of the difference is too wide"};
}

// Above 0 the better side.
double goodness(const ComparisonRow& row) {
  const double difference = row.difference.value.value_or(0);
  return metric_from(row.metric).higher_is_better ? difference : -difference;
}

void sort_rows(std::vector<ComparisonRow>& rows, const std::vector<ArmPair>& pairs,
               RowOrder order) {
  if (order == RowOrder::verdict) {
    std::ranges::stable_sort(rows, [](const auto& a, const auto& b) {
      return std::tuple(a.verdict, goodness(a)) < std::tuple(b.verdict, goodness(b));
    });
    return;
  }
  std::map<std::string, int64_t> ranks;
  for (const ArmPair& pair : pairs) {
    const RunArm& arm = pair.base != nullptr ? *pair.base : *pair.next;
    ranks[pair.name] = arm.runs.empty() ? 0 : arm.runs.front().run.world_size;
  }
  std::ranges::stable_sort(rows, [&](const auto& a, const auto& b) {
    const int64_t of_a = ranks.at(a.arm), of_b = ranks.at(b.arm);
    if (of_a != of_b) return of_a < of_b;
    return strverscmp(a.arm.c_str(), b.arm.c_str()) < 0;  // 1x1x2 before 1x1x10
  });
}

// The first row with figures of a pair, whose runs may be compared; `only_open`: that is not shown
// to be equivalent. Null: there is none.
const ComparisonRow* row_with_figures(const Comparison& comparison, const std::string& arm,
                                      bool only_open = false) {
  const auto found = std::ranges::find_if(comparison.rows, [&](const ComparisonRow& row) {
    return row.arm == arm && row.since.empty() && row.difference &&
           !(only_open && row.verdict == Verdict::equivalent);
  });
  return found == comparison.rows.end() ? nullptr : &*found;
}

// In what the steps of the sides have other things to do: the model is made of the base's alone.
std::string other_steps(const ArmPair& pair, const CompareOptions& options) {
  std::vector<std::string> names;
  for (const KeyDifference& difference : differences_within(pair, options)) {
    const bool copies =
        difference.name == "input" && (difference.base == "device" || difference.other == "device");
    if (copies || decides_operations(difference.name)) names.push_back(difference.name);
  }
  return joined(names);
}

// In what the sides differ on which their bits may depend. Where ranks are matters to sums alone.
std::string fields_of_bits(const ArmPair& pair, const CompareOptions& options) {
  const bool exchanges = std::ranges::any_of(
      runs_of(pair), [](const SetRun* run) { return run->run.communication.has_value(); });
  std::vector<std::string> names;
  for (const KeyDifference& found : differences_within(pair, options)) {
    const bool of_place = found.severity == Severity::layout || found.is_treatment(options.form);
    if (found.severity != Severity::kind && (exchanges || !of_place)) names.push_back(found.name);
  }
  return joined(names);
}

// Why there is no explanation; empty where there is one.
std::string not_explained(const ArmPair& pair, const CompareOptions& options,
                          const ExplainedSide& base_side, const ExplainedSide& new_side) {
  const SideWords words = words_of(options);
  const std::string what = "the cause of the difference is not known (";
  const std::string work = other_steps(pair, options);
  if (!work.empty()) return what + "steps of other work: " + work + ")";
  const std::string of_base = cannot_explain(base_side), of_new = cannot_explain(new_side);
  if (of_base.empty() && of_new.empty()) return "";
  return what +
         (of_base.empty() ? words.new_title + ": " + of_new : words.base_title + ": " + of_base) +
         "); run both sides with --attribute";
}

// Worth a look where no model of the step tells the cause. Whether a likely one was seen.
bool add_monitored(Comparison& comparison, const ComparisonRow& row, const ArmPair& pair,
                   const ExplainedSide& base, const ExplainedSide& next) {
  const auto [causes, others] = monitored_differences(base.runs, next.runs, goodness(row) < 0);
  const std::string arm = comparison.rows.size() > 1 ? pair.name + ": " : "";
  if (!causes.empty()) {
    comparison.notes.push_back(
        {"likely_cause", arm + "a likely cause, by the monitors: " + joined(causes) +
                             "; with --attribute on both sides its share would be known"});
  }
  if (!others.empty()) {
    comparison.notes.push_back({"monitors_differ", arm + "the monitors saw " + joined(others)});
  }
  return !causes.empty();
}

void add_explanation(Comparison& comparison, const ArmPair& pair, const RunSet& base,
                     const RunSet& next) {
  const ExplainedSide base_side = side_of(*pair.base, base.environments);
  const ExplainedSide new_side = side_of(*pair.next, next.environments);
  const Warning hint = {"not_explained",
                        not_explained(pair, comparison.options, base_side, new_side)};
  if (hint.text.empty()) {
    const ComparisonRow row =
        compare_arms(*pair.base, *pair.next, throughput_of(pair), comparison.options);
    if (!shows_difference(row, comparison.options.rule)) {
      comparison.notes.push_back(nothing_to_explain(pair.name, row));
      return;
    }
    comparison.explanations.push_back(explain(base_side, new_side, noise_of(row)));
    comparison.explanations.back().arm = pair.name;
    return;
  }
  const ComparisonRow* open = row_with_figures(comparison, pair.name, true);
  if (open == nullptr) return;
  // Imported results and references have no probes that --attribute would have taken.
  const bool already_said = add_monitored(comparison, *open, pair, base_side, new_side) ||
                            is_imported(*pair.base) ||
                            comparison.options.form == ComparisonForm::reference ||
                            std::ranges::count(comparison.notes, hint) > 0;
  if (!already_said) comparison.notes.push_back(hint);
}

bool runs_on_gpus(const RunSet& set) {
  return std::ranges::all_of(all_runs(set),
                             [](const SetRun& run) { return run.run.device == Device::cuda; });
}

// Rows against a reference are machines, whose mean says nothing of any.
void add_geometric_means(Comparison& comparison, const std::vector<const Metric*>& metrics) {
  if (comparison.options.form == ComparisonForm::reference) return;
  for (const Metric* metric : metrics) {
    std::vector<const ComparisonRow*> rows;
    for (const ComparisonRow& row : comparison.rows) {
      const bool counts = row.metric == metric->name && row.since.empty();
      if (counts && row.log_difference) rows.push_back(&row);
    }
    if (rows.size() < 2) continue;
    comparison.geometric_means.push_back(
        geometric_mean_row(rows, *metric, comparison.options.rule));
  }
}

// The new arms against those of the anchor, whose names are those of the base.
void add_anchor_rows(Comparison& comparison, const std::vector<ArmPair>& pairs,
                     const RunSet& anchor, const std::vector<const Metric*>& metrics) {
  for (const ArmPair& pair : pairs) {
    const RunArm* first = pair.base != nullptr ? arm_named(pair.base->name, anchor) : nullptr;
    if (first == nullptr || first->runs.empty() || pair.next == nullptr) continue;
    const size_t before = comparison.rows.size();
    add_rows(comparison, {pair.name, first, pair.next}, metrics_of_pair(pairs, pair, metrics),
             *pair.base);
    constexpr size_t day_digits = 10;  // of 2026-01-31T...
    const std::string start = in_order(runs_of(*first)).front()->run.started_at;
    for (size_t i = before; i < comparison.rows.size(); ++i) {
      comparison.rows[i].since = start.substr(0, day_digits);
    }
  }
}

// Alone, or as its unlike jobs, in their order.
bool holds_one_arm(const RunSet& set) {
  if (set.arms.size() == 1) return true;
  return !set.arms.empty() && std::ranges::all_of(set.arms, [&](const RunArm& arm) {
    return !arm.whole.empty() && arm.whole == set.arms.front().whole;
  });
}

}  // namespace

const SideWords& words_of(ComparisonForm form, bool bare_is_virtual) {
  static const std::array words = {
      SideWords{"base", "new", "the base", "the new set"},
      SideWords{"bare metal", "VM", "bare metal", "the VM"},
      SideWords{"bare metal", "container", "bare metal", "the container"},
      SideWords{"reference", "this machine", "the reference", "this machine"},
      SideWords{"host with a hypervisor", "VM", "the host with a hypervisor", "the VM"},
      SideWords{"host with a hypervisor", "container", "the host with a hypervisor",
                "the container"}};
  const bool is_other =
      bare_is_virtual && (form == ComparisonForm::vm || form == ComparisonForm::container);
  return words.at(static_cast<size_t>(form) + (is_other ? 3 : 0));
}

std::string title_of(const ComparisonRow& row) {
  return row.since.empty() ? row.arm : row.arm + " since " + row.since;
}

bool holds_within_one_session(const Comparison& comparison) {
  return std::ranges::any_of(comparison.rows, [](const ComparisonRow& row) {
    return row.log_difference && row.method != Method::sessions && row.method != Method::machines;
  });
}

std::vector<ArmPair> paired_arms(const RunSet& base, const RunSet& next) {
  std::vector<ArmPair> pairs;
  if (holds_one_arm(base) && holds_one_arm(next) && base.arms.size() == next.arms.size()) {
    for (size_t i = 0; i < base.arms.size(); ++i) {
      const std::string& name = base.arms[i].name;
      const std::string& new_name = next.arms[i].name;
      const std::string shown = name == new_name ? name : name + " | " + new_name;
      pairs.push_back({shown, &base.arms[i], &next.arms[i]});
    }
    return pairs;
  }
  for (const RunArm& arm : base.arms) pairs.push_back({arm.name, &arm, arm_named(arm.name, next)});
  for (const RunArm& arm : next.arms) {
    if (arm_named(arm.name, base) == nullptr) pairs.push_back({arm.name, nullptr, &arm});
  }
  return pairs;
}

Comparison compare(const RunSet& base, const RunSet& next, const CompareOptions& options,
                   const RunSet& anchor) {
  Comparison comparison{options};
  comparison.options.bare_is_virtual = shows_hypervisor(base);
  const SideWords words = words_of(comparison.options);
  comparison.work = work_lines({{words.base_title, &base}, {words.new_title, &next}});
  const std::vector<ArmPair> pairs = paired_arms(base, next);
  const std::vector<const Metric*> metrics = compared_metrics(pairs, options);
  // Of each pair in its own unit.
  const bool throughput_alone = std::ranges::all_of(
      options.metrics, [](const std::string& name) { return name == throughput_of_runs; });
  comparison.options.metrics.clear();
  for (const Metric* metric : metrics) comparison.options.metrics.emplace_back(metric->name);
  for (const ArmPair& pair : pairs) {
    add_rows(comparison, pair,
             throughput_alone ? std::vector{&throughput_of(pair)}
                              : metrics_of_pair(pairs, pair, metrics));
  }
  add_anchor_rows(comparison, pairs, anchor, metrics);
  sort_rows(comparison.rows, pairs, options.order);
  std::ranges::stable_sort(comparison.key_differences, {}, &KeyDifference::severity);
  add_geometric_means(comparison, metrics);
  comparison.on_gpus = runs_on_gpus(base) && runs_on_gpus(next);
  if (options.form == ComparisonForm::reference) {
    comparison.notes = doubts_of_reference(base, next);
  } else {
    comparison.on_other_machines = options.form != ComparisonForm::vm &&
                                   !base.environments.empty() && !new_hosts(base, next).empty();
    comparison.environment_differences =
        environment_differences(base.environments, next.environments);
    if (options.form != ComparisonForm::sets)
      comparison.notes = doubts_of_claim(base, next, options.form);
  }
  const std::string of_base = kinds_text(base), of_new = kinds_text(next);
  if (options.form == ComparisonForm::sets && of_base != of_new && !of_base.empty()) {
    comparison.notes.push_back({"setups_differ", words.base_name + " shows " + of_base + "; " +
                                                     words.new_name + " shows " + of_new});
  }
  if (const auto note = note_of_rows_left_out(pairs, metrics)) comparison.notes.push_back(*note);
  for (const ArmPair& pair : pairs) {
    if (row_with_figures(comparison, pair.name) != nullptr)
      add_explanation(comparison, pair, base, next);
    if (!options.same_bits || pair.base == nullptr || pair.next == nullptr) continue;
    comparison.bits.push_back(same_bits(pair, base, next, fields_of_bits(pair, options)));
  }
  return comparison;
}

}  // namespace nearmetal
