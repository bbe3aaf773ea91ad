#include "reports/formats/headline.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <utility>

#include "base/text.h"
#include "reports/compare/comparison_row.h"
#include "reports/compare/gate.h"
#include "reports/compare/scaling.h"
#include "reports/compare/work_text.h"
#include "reports/sharing/fractions.h"

namespace nearmetal {
namespace {

using Rows = std::vector<const ComparisonRow*>;

std::string capitalised(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

const char* label_of(const SideSummary& side) { return side.emulated ? " (emulated)" : ""; }

// "within what 12 machines of h200 showed on 3 days"; "slower than 95 % of 12 machines of h200 by
// 4.1 % or more": the bound of the interval that is nearer to 0.
std::string place_among_machines(const ComparisonRow& row, const CompareOptions& options) {
  const std::string machines =
      counted(row.base_side.machines, "machine") + " of " + options.reference;
  const Interval interval = row.difference_interval.value.value_or(Interval{-1, 1});
  const bool lower = interval.upper < 0;
  if (!lower && interval.lower <= 0) {
    return (row.verdict == Verdict::within ? "within what " : "compared with what ") + machines +
           " showed on " + counted(row.base_side.days, "day");
  }
  const Metric& metric = metric_from(row.metric);
  const std::string way =
      metric.is_throughput ? (lower ? "slower" : "faster") : (lower ? "lower" : "higher");
  return way + " than " + plain_percent(1 - options.rule.alpha) + " of " + machines + " by " +
         plain_percent(std::round(1000 * std::abs(lower ? interval.upper : interval.lower)) /
                       1000) +
         " or more";
}

// "the VM is slower than bare metal, -6.00 % [-7.9, -4.1]"; by other metrics "p99_step_seconds of
// the VM is higher than of bare metal, +6.00 % [4.1, 7.9]".
std::string clause_of(const ComparisonRow& row, const CompareOptions& options) {
  const SideWords words = words_of(options);
  if (row.doubt) {
    return "whether " + words.new_name + " differs from " + words.base_name + " is in doubt";
  }
  const bool of_throughput = metric_from(row.metric).is_throughput;
  const bool down = *row.difference < 0;
  const Maybe<Interval>& interval = row.difference_interval;
  const std::string size =
      interval ? signed_percent(*row.difference, *interval)
               : signed_percent(*row.difference) + " (no interval: " + interval.reason + ")";
  const std::string base =
      words.base_name + label_of(row.base_side) + (row.since.empty() ? "" : " since " + row.since);
  const std::string next =
      (of_throughput ? "" : row.metric + " of ") + words.new_name + label_of(row.new_side);
  if (options.form == ComparisonForm::reference) {
    return next + " is " + place_among_machines(row, options) + ", " + size + " from their mean";
  }
  constexpr double least_shown = 5e-5;  // 0.01 % rounded
  if (std::abs(*row.difference) < least_shown)
    return next + " differs from " + base + " by " + size;
  const std::string way = of_throughput ? (down ? "slower than " : "faster than ")
                                        : (down ? "lower than of " : "higher than of ");
  return next + " is " + way + base + ", " + size;
}

std::string counts_of(const Rows& rows) {
  std::map<Verdict, int64_t> counts;
  for (const ComparisonRow* row : rows) ++counts[row->verdict];
  return joined(transformed(counts, [](const auto& of_verdict) {
    return std::to_string(of_verdict.second) + " " + to_string(of_verdict.first);
  }));
}

// Runs that could not show so large a drop show nothing; scripts/ci/gate.sh does not let them pass.
constexpr double large_drop = 0.1;

bool is_in_turns(const ComparisonRow& row) {
  return std::ranges::none_of(row.notes, [](const Warning& note) {
    return note.code == "not_interleaved" || note.code == "sessions_apart";
  });
}

// What threatens the answer: "within one session", "other processes disturbed 2 of 10 runs". A row
// that compares with an earlier session has runs of another row once more.
std::vector<std::string> conditions_of(const Comparison& comparison, const std::string& metric) {
  std::vector<std::string> conditions;
  if (holds_within_one_session(comparison)) conditions.emplace_back("within one session");
  if (!comparison.new_hosts.empty()) {
    conditions.push_back("on " + shortened(joined(comparison.new_hosts)) +
                         ", which the baseline never had");
  } else if (comparison.on_other_machines) {
    conditions.emplace_back("on different machines");
  }
  int64_t runs = 0, disturbed = 0;
  bool blind = false, in_turns = true;
  for (const ComparisonRow& row : comparison.rows) {
    if (row.metric != metric || !row.since.empty()) continue;
    blind = blind || (row.verdict == Verdict::inconclusive &&
                      row.detectable_drop.value.value_or(0) > large_drop);
    in_turns = in_turns && (!row.log_difference || is_in_turns(row));
    runs += row.base_side.runs + row.new_side.runs;
    disturbed += row.base_side.shared + row.new_side.shared;
  }
  if (!in_turns) conditions.emplace_back("sides not interleaved");
  if (blind) {
    conditions.push_back("a drop of " + plain_percent(large_drop) + " would not be found with " +
                         plain_percent(planned_power) + " chance");
  }
  if (disturbed > 0) {
    conditions.push_back("other processes disturbed " + std::to_string(disturbed) + " of " +
                         counted(runs, "run"));
  }
  for (const Warning& note : comparison.notes) {
    if (is_in_headline(note)) conditions.push_back(note.text);
  }
  for (const KeyDifference& found : comparison.key_differences) {
    if (comparison.options.form != ComparisonForm::reference || !found.allowed) continue;
    conditions.push_back(found.name + " " + found.other + ", of the reference " + found.base);
  }
  return conditions;
}

std::string sentence_of(const SameBits& bits, bool is_only) {
  const std::string begin = is_only ? "bits: " : "bits of '" + bits.arm + "': ";
  if (bits.verdict == BitsVerdict::not_asked)
    return begin + "not asked for the same bits: " + bits.reason;
  if (bits.verdict == BitsVerdict::differ) {
    return begin + "differ from step " + std::to_string(bits.first_step) +
           " on: " + joined_first(2, bits.differing) +
           (bits.reason.empty() ? "" : "; " + bits.reason);
  }
  const auto text = [](int64_t step) { return std::to_string(step); };
  return begin + "the same at steps " + joined(transformed(bits.steps, text)) + " (" +
         counted(bits.parameters, "parameter") + ")";
}

std::string headline_of(const Comparison& comparison, const std::string& metric) {
  Rows rows;
  int64_t in_mean = 0;
  for (const ComparisonRow& row : comparison.rows) {
    if (row.metric != metric) continue;
    rows.push_back(&row);
    in_mean += row.log_difference && row.since.empty() ? 1 : 0;
  }
  if (rows.empty()) return "";
  if (rows.size() == 1) return sentence_of(*rows.front(), comparison.options);
  const auto mean = std::ranges::find(comparison.geometric_means, metric, &ComparisonRow::metric);
  if (mean != comparison.geometric_means.end()) {
    ComparisonRow quoted = *mean;
    for (const ComparisonRow* row : rows) {
      quoted.base_side.emulated = quoted.base_side.emulated || row->base_side.emulated;
      quoted.new_side.emulated = quoted.new_side.emulated || row->new_side.emulated;
    }
    return "On the mean of " + counted(in_mean, "row") + " " +
           clause_of(quoted, comparison.options) + "; row by row: " + counts_of(rows);
  }
  if (!rows.front()->difference) {
    std::erase_if(rows, [](const ComparisonRow* row) { return row->difference.value.has_value(); });
    return with_own_reasons(rows, comparison) + ": " + to_string(rows.front()->verdict);
  }
  return title_of(*rows.front()) + ", the worst of " + counted(std::ssize(rows), "row") + ": " +
         sentence_of(*rows.front(), comparison.options);
}

// Of jobs that share, each at its best batch where there is a choice.
std::vector<FractionPoint> compared_points(const RunSet& set, double confidence) {
  const RunSet best = with_best_batches(set);
  std::vector<FractionPoint> points = best.arms.empty() ? fractions_of(set, false, confidence)
                                                        : fractions_of(best, true, confidence);
  std::erase_if(points, [](const FractionPoint& point) {
    return !point.of_serial || point.jobs <= 1 || point.mode == SharingMode::serial;
  });
  return points;
}

// What the interval of a gain allows to say of the way that seems to gain the most.
std::string gain_text(const FractionPoint& best) {
  const Maybe<Interval>& interval = best.of_serial->interval;
  if (interval && interval->lower > 1) return "The best way to share is '" + best.arm + "': ";
  const bool loses = interval && interval->upper < 1;
  return std::string("No way to share ") + (loses ? "gains" : "is shown to gain") +
         " anything; the best, '" + best.arm + "', has ";
}

std::vector<std::string> sharing_headlines(const RunSet& set) {
  std::vector<FractionPoint> points = compared_points(set, side_confidence);
  const size_t ways = points.size();
  if (ways == 0) return {};
  // The best of several is sought, so that all their intervals must hold together (Bonferroni).
  if (ways > 1) {
    points = compared_points(set, 1 - (1 - side_confidence) / static_cast<double>(ways));
  }
  const FractionPoint& best = *std::ranges::max_element(
      points, {}, [](const FractionPoint& point) { return point.of_serial->value; });
  return {gain_text(best) + estimate_text(*best.of_serial) + " times " +
          (best.unlike_jobs.empty() ? "the throughput" : "the weighted speedup") +
          " of as many jobs one after another" +
          (ways > 1 ? ", by an interval of all " + std::to_string(ways) + " ways together" : "")};
}

constexpr size_t most_headlines = 4;

std::string efficiency_text(const ScalingPoint& point) {
  return estimate_text(100 * point.efficiency) + " %";
}

// The headlines of the arms with the most ranks, for each reference; of many the range.
std::vector<std::string> scaling_headlines(const RunSet& set) {
  std::vector<ScalingPoint> points = scaling_of(set);
  const std::vector<ScalingPoint> all = points;
  std::erase_if(points, [&](const ScalingPoint& point) {
    return point.is_reference() || std::ranges::any_of(all, [&](const ScalingPoint& other) {
             return other.reference == point.reference && other.ranks > point.ranks;
           });
  });
  if (points.size() > most_headlines) {
    const auto [least, most] = std::ranges::minmax_element(
        points, {}, [](const ScalingPoint& point) { return point.efficiency.value; });
    return {"Scaling efficiency of " + counted(std::ssize(points), "arm") + ": from " +
            efficiency_text(*least) + " (" + least->arm + ") to " + efficiency_text(*most) + " (" +
            most->arm + ")"};
  }
  return transformed(points, [](const ScalingPoint& point) {
    return "'" + point.arm + "' has " + estimate_text(point.speedup) +
           " times the throughput of one rank of '" + point.reference +
           "': " + efficiency_text(point) + " of the ideal for " + counted(point.ranks, "rank");
  });
}

std::vector<std::string> throughput_headlines(const RunSet& set) {
  const bool any_complete =
      std::ranges::any_of(set.arms, [](const RunArm& arm) { return !complete_runs(arm).empty(); });
  if (!set.arms.empty() && !any_complete) return {"No run is complete"};
  std::vector<std::string> lines;
  if (set.arms.size() > most_headlines) return lines;
  for (const RunArm& arm : set.arms) {
    const Metric& metric = throughput_metric(unit_of(arm));
    const SideSummary side = summary_of_arm(arm, metric);
    if (!different_work(arm).empty() || !side.geometric_mean) continue;
    lines.push_back(arm.name + ": " + mean_text(side, metric) + " " + metric.unit + " in " +
                    counted_files(counted(side.runs, "run"), arm));
  }
  return lines;
}

}  // namespace

std::string sentence_of(const ComparisonRow& row, const CompareOptions& options) {
  std::string text;
  if (!row.difference) {
    text = capitalised(row.reason);
  } else {
    const std::string clause = clause_of(row, options);
    const bool is_name = !metric_from(row.metric).is_throughput || !options.base_title.empty();
    text = is_name ? clause : capitalised(clause);  // a name stays as it is
  }
  return text + ": " + to_string(row.verdict);
}

bool is_in_headline(const Warning& note) { return note.code.starts_with("reference_"); }

std::vector<std::string> headlines(const Comparison& comparison) {
  std::vector<std::string> lines, said;
  for (const std::string& metric : comparison.options.metrics) {
    const std::string line = headline_of(comparison, metric);
    if (line.empty()) continue;
    std::vector<std::string> conditions = conditions_of(comparison, metric);
    std::erase_if(conditions, [&](const auto& one) { return find_in(said, one) != nullptr; });
    lines.push_back(line + (conditions.empty() ? "" : " (" + joined(conditions, "; ") + ")"));
    append(said, std::move(conditions));
  }
  for (const SameBits& bits : comparison.bits)
    lines.push_back(sentence_of(bits, comparison.bits.size() == 1));
  return lines;
}

std::vector<std::string> headlines(const RunSet& set) {
  std::vector<std::string> lines = sharing_headlines(set);
  append(lines, scaling_headlines(set));
  if (lines.empty()) lines = throughput_headlines(set);
  append(lines, set.places);
  return lines;
}

std::string verdict_counts(const Comparison& comparison) {
  const Rows rows = transformed(comparison.rows, [](const auto& row) { return &row; });
  const auto worst = std::ranges::max_element(comparison.bits, {}, &SameBits::verdict);
  return counts_of(rows) + (holds_within_one_session(comparison) ? " (within one session)" : "") +
         (worst == comparison.bits.end() ? ""
                                         : std::string("; bits: ") + to_string(worst->verdict));
}

}  // namespace nearmetal
