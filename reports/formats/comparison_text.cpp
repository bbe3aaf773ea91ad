#include "reports/formats/comparison_text.h"

#include <algorithm>
#include <array>
#include <set>
#include <stdexcept>
#include <utility>

#include "base/text.h"
#include "reports/compare/comparison_row.h"
#include "reports/formats/charts/charts.h"
#include "reports/formats/headline.h"
#include "reports/formats/report_text.h"

namespace nearmetal {
namespace {

// "1-3, 5", of ascending numbers.
std::string ranges_text(const std::set<size_t>& numbers) {
  std::string text;
  size_t before = 0;
  for (const size_t number : numbers) {
    const bool goes_on = !text.empty() && number == before + 1;
    before = number;
    if (goes_on && numbers.count(number + 1) > 0) continue;
    text += (text.empty() ? "" : goes_on ? "-" : ", ") + std::to_string(number);
  }
  return text;
}

// Numbered in the order in which rows refer to them; the same text has one number.
using Footnotes = std::vector<std::string>;

std::string marks_of(const std::vector<std::string>& notes, Footnotes& footnotes) {
  std::set<size_t> numbers;
  for (const std::string& note : notes) {
    add_new(footnotes, note);
    numbers.insert(std::ranges::find(footnotes, note) - footnotes.begin() + 1);
  }
  return numbers.empty() ? "" : " (" + ranges_text(numbers) + ")";
}

std::string difference_text(const ComparisonRow& row) {
  if (!row.difference) return "-";
  return row.difference_interval ? signed_percent(*row.difference, *row.difference_interval)
                                 : signed_percent(*row.difference);
}

std::string p_text(const Maybe<double>& p) {
  if (!p) return "-";
  return *p < 1e-4 ? "<0.0001" : fixed(*p, 4);
}

// " (about 12 min)", of so many runs of the new side, or of each; empty where that is not known.
std::string cost_text(const ComparisonRow& row, const CompareOptions& options, double runs) {
  if (!row.base_side.run_seconds || !row.new_side.run_seconds) return "";
  const double base = options.base_can_grow ? *row.base_side.run_seconds : 0;
  return " (about " + duration_text(runs * (base + *row.new_side.run_seconds)) + ")";
}

// Why a verdict is none, and what would help; empty where it is one.
std::string reason_text(const ComparisonRow& row, const CompareOptions& options) {
  if (row.more_runs || row.more_sessions) {
    const std::string side = options.base_can_grow ? " a side" : " of the new side";
    std::vector<std::string> plans;
    if (row.more_runs) {
      const auto runs = static_cast<double>(*row.more_runs);
      plans.push_back(counted(*row.more_runs, "more run") + side + cost_text(row, options, runs));
    }
    if (row.more_sessions) {
      const int64_t of_each = runs_of_a_session(row.new_side.runs, row.new_side.sessions);
      const auto runs = static_cast<double>(*row.more_sessions * of_each);
      plans.push_back(counted(*row.more_sessions, "more session") + side + " of " +
                      counted(of_each, "run") + cost_text(row, options, runs));
    }
    return joined(plans, ", or ") + " would decide with " + plain_percent(planned_power) +
           " chance if the measured difference is the true one";
  }
  const bool decided = row.verdict == Verdict::slower || row.verdict >= Verdict::equivalent;
  if (decided) return "";
  return row.log_difference ? row.more_runs.reason : row.reason;
}

std::string warnings_text(const SideSummary& side) {
  const auto texts = transformed(side.warnings, [&](const RunWarning& found) {
    const std::string runs = std::to_string(found.runs.size()) + " of " + counted(side.runs, "run");
    return found.warning.text + " (" + extent_text(found, runs) + ")";
  });
  return "warnings of " + side.name + ": " + joined(texts, "; ");
}

bool is_within(const Interval& interval, double value) {
  return interval.lower <= value && value <= interval.upper;
}

std::vector<std::string> notes_of(const ComparisonRow& row, const CompareOptions& options) {
  std::vector<std::string> notes;
  const std::string reason = reason_text(row, options);
  if (!reason.empty()) notes.push_back(reason);
  if (row.median_interval && (row.doubt || !is_within(*row.median_interval, *row.difference))) {
    notes.push_back("the median of the differences is " +
                    signed_percent(*row.median_difference, *row.median_interval));
  }
  for (const Warning& note : row.notes) notes.push_back(note.text);
  for (const SideSummary* side : {&row.base_side, &row.new_side}) {
    if (!side->warnings.empty()) notes.push_back(warnings_text(*side));
  }
  return notes;
}

std::string counts_text(const ComparisonRow& row) {
  if (row.method == Method::mean_of_rows) return "-";
  if (row.method == Method::paired) return counted(row.new_side.runs, "pair");
  const auto text = [&](const SideSummary& side) {
    return std::to_string(side.runs) +
           (row.method == Method::sessions ? " in " + std::to_string(side.sessions) : "") +
           (side.machines > 0 ? " of " + counted(side.machines, "machine") : "");
  };
  return text(row.base_side) + "|" + text(row.new_side);
}

bool shows_throughput_alone(const CompareOptions& options) {
  return options.metrics.size() == 1 && metric_from(options.metrics.front()).is_throughput;
}

std::vector<std::string> cells_of(const ComparisonRow& row, const CompareOptions& options,
                                  Footnotes& footnotes) {
  const Metric& metric = metric_from(row.metric);
  std::vector<std::string> cells = {title_of(row)};
  if (!shows_throughput_alone(options)) cells.push_back(row.metric + ", " + metric.unit);
  for (const SideSummary* side : {&row.base_side, &row.new_side}) {
    cells.push_back(mean_text(*side, metric));
  }
  cells.insert(cells.end(),
               {difference_text(row), counts_text(row), p_text(row.p), p_text(row.rank_test_p),
                to_string(row.verdict) + marks_of(notes_of(row, options), footnotes)});
  return cells;
}

constexpr const char* comparison_title = "Comparison";

TitledTable table_of_key_differences(const Comparison& comparison) {
  TextTable table;
  table.columns = {
      {"severity"},           {"field"},  {words_of(comparison.options).base_title}, {"differs"},
      {"where", false, true}, {"allowed"}};
  for (const KeyDifference& found : comparison.key_differences) {
    table.rows.push_back({to_string(found.severity), found.name, found.base, found.other,
                          found.source, found.allowed ? "yes" : "no"});
  }
  return {"What must agree and differs, the worst first (--allow-differ FIELD)", std::move(table)};
}

TitledTable table_of_environments(const Comparison& comparison) {
  const SideWords words = words_of(comparison.options);
  TextTable table{.columns = {{"environment"}, {words.base_title}, {words.new_title}}};
  for (const EnvironmentDifference& difference : comparison.environment_differences) {
    table.rows.push_back({difference.name,
                          shortened(readable_fact(difference.name, difference.base)),
                          shortened(readable_fact(difference.name, difference.other))});
  }
  return {.title = "Where the environments differ", .table = std::move(table), .titled = false};
}

std::string rule_text(const Comparison& comparison) {
  const DecisionRule& rule = comparison.options.rule;
  const bool by_sessions = std::ranges::any_of(
      comparison.rows, [](const ComparisonRow& row) { return row.method == Method::sessions; });
  const bool few = std::ranges::any_of(comparison.rows, [](const ComparisonRow& row) {
    return has_few_runs(row.base_side) || has_few_runs(row.new_side);
  });
  const std::string limits = comparison.options.form == ComparisonForm::reference
                                 ? "beyond " + plain_percent(1 - rule.alpha) + " of machines"
                                 : "margin " + plain_percent(rule.margin);
  return limits + ", alpha " + plain_percent(rule.alpha) +
         (comparison.corrected_rows > 0 ? "; verdicts after Holm's correction for " +
                                              std::to_string(comparison.corrected_rows) + " rows"
                                        : "") +
         (by_sessions ? "; n: runs a side, in sessions" : "; n: runs a side, or pairs of them") +
         (few ? std::string("; ") + few_runs_text : "") +
         (comparison.options.order == RowOrder::verdict ? "; worst first" : "");
}

// By Verdict: red, yellow and green.
constexpr std::array verdict_styles = {"\033[31m", "\033[31m", "\033[31m", "\033[33m",
                                       "\033[32m", "\033[32m", "\033[32m"};
static_assert(verdict_styles.size() == names_of(Verdict{}).size());

TitledTable table_of(const Comparison& comparison, Footnotes& footnotes) {
  const CompareOptions& options = comparison.options;
  const std::string confidence = plain_percent(1 - 2 * options.rule.alpha);
  TitledTable titled{.title = comparison_title,
                     .table = {.columns = {{"row"}}},
                     .legend = rule_text(comparison),
                     .titled = false};
  TextTable& table = titled.table;
  const bool one_unit = shows_throughput_alone(options);
  if (!one_unit) table.columns.push_back({"metric"});
  const std::string unit = metric_from(options.metrics.front()).unit;
  const SideWords words = words_of(options);
  for (const std::string& side : {words.base_title, words.new_title}) {
    table.columns.push_back({side + (one_unit ? ", " + unit : "") + " [95 %]", true});
  }
  table.columns.insert(table.columns.end(), {{"difference [" + confidence + "]", true},
                                             {"n", true},
                                             {"p (t)", true, true},
                                             {"p (rank)", true, true},
                                             {"verdict"}});
  for (const auto* rows : {&comparison.rows, &comparison.geometric_means}) {
    for (const ComparisonRow& row : *rows) {
      table.rows.push_back(cells_of(row, options, footnotes));
      titled.last_styles.push_back(verdict_styles.at(static_cast<size_t>(row.verdict)));
    }
  }
  return titled;
}

// Results of GPUs as they were published, without an interval.
constexpr std::array published = {
    "VMware and Dell, MLPerf Inference v1.1 on A100 vGPU: 94.4 to 100 % of bare metal",
    "Dell, \"Virtualizing GPUs for AI\", training: less than 5 % below bare metal",
};

std::vector<std::string> remarks_of(const Comparison& comparison, const Footnotes& footnotes) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < footnotes.size(); ++i) {
    lines.push_back("(" + std::to_string(i + 1) + ") " + footnotes[i]);
  }
  for (const Warning& note : comparison.notes) {
    if (!is_in_headline(note)) lines.push_back("note: " + note.text);
  }
  if (comparison.options.form == ComparisonForm::sets &&
      !comparison.environment_differences.empty()) {
    constexpr size_t most_names = 4;  // that a reader can see through
    const auto names =
        transformed(comparison.environment_differences, &EnvironmentDifference::name);
    lines.push_back("note: the environments differ in " + joined_first(most_names, names) +
                    " (--json shows all)");
  }
  if (comparison.options.form == ComparisonForm::vm && comparison.on_gpus) {
    for (const char* line : published) lines.push_back(std::string("published: ") + line);
  }
  return lines;
}

std::string signed_milliseconds(double seconds) {
  return (seconds > 0 ? "+" : "") + significant(1e3 * seconds, 3);
}

std::string time_text(double seconds) {
  if (seconds < 1e-3) return significant(1e6 * seconds, 3) + " us";
  return significant(1e3 * seconds, 4) + " ms";
}

std::string value_text(ProbeUnit unit, const Maybe<double>& value) {
  if (!value) return "?";
  if (unit == ProbeUnit::seconds) return time_text(*value);
  if (unit == ProbeUnit::hertz) return significant(1e-6 * *value, 4) + " MHz";
  if (unit == ProbeUnit::share) return significant(100 * *value, 3) + " %";
  if (unit == ProbeUnit::bytes_per_second) return significant(1e-9 * *value, 4) + " GB/s";
  if (unit != ProbeUnit::flops_per_second) throw std::logic_error("unnamed ProbeUnit");
  return *value >= 1e12 ? significant(1e-12 * *value, 4) + " TFLOP/s"
                        : significant(1e-9 * *value, 4) + " GFLOP/s";
}

std::string share_text(const Maybe<double>& share) {
  return share ? signed_percent(*share, 1) : "-";
}

std::vector<std::string> row_of(const LayerShare& share) {
  std::vector<std::string> remarks;
  if (!share.statement.empty()) remarks.push_back(share.statement);
  for (const SeenProbe& probe : share.seen) {
    if (!probe.base && !probe.other) continue;  // it says nothing
    remarks.push_back(probe.name + " " + value_text(probe.unit, probe.base) + " -> " +
                      value_text(probe.unit, probe.other));
  }
  const std::string remark = joined(remarks, "; ");
  if (!share.sensitive || !share.seconds) return {to_string(share.layer), "-", "-", "-", remark};
  // A share of the difference made of noise would only mislead.
  return {to_string(share.layer), signed_milliseconds(*share.seconds),
          share_text(share.share_of_step),
          share.below_noise ? "-" : share_text(share.share_of_difference), remark};
}

// Layers, what is unexplained last; as remarks the model, and known causes, most likely first.
TitledTable table_of(const Explanation& explanation, const CompareOptions& options) {
  const SideWords words = words_of(options);
  const double change = explanation.difference_seconds / explanation.base_step_seconds;
  TitledTable text;
  text.title = "Where the difference of '" + explanation.arm + "' comes from: a step takes " +
               time_text(explanation.new_step_seconds) + " instead of " +
               time_text(explanation.base_step_seconds) + " (" + signed_percent(change, 1) + ")";
  text.table.columns = {{"layer"},
                        {"ms a step", true},
                        {"share of step", true},
                        {"share of difference", true},
                        {"seen, " + words.base_title + " -> " + words.new_title}};
  for (const LayerShare& share : explanation.layers) text.table.rows.push_back(row_of(share));
  text.table.rows.push_back(
      {"unexplained", signed_milliseconds(explanation.unexplained_seconds),
       signed_percent(explanation.unexplained_seconds / explanation.base_step_seconds, 1),
       share_text(explanation.unexplained_share),
       "effects that the model lacks, and interactions of layers"});
  text.remarks.push_back("model: " + std::string(attribution_model) +
                         "; each layer: what a step of " + words.base_name +
                         " would take more with this layer of " + words.new_name);
  if (!explanation.noise_seconds) {
    text.remarks.push_back("how much of it is noise is not known: " +
                           explanation.noise_seconds.reason);
  }
  for (size_t i = 0; i < explanation.causes.size(); ++i) {
    const KnownCause& cause = explanation.causes[i];
    text.remarks.push_back("likely cause " + std::to_string(i + 1) + ", " + to_string(cause.layer) +
                           ": " + cause.seen + ": " + cause.hint);
  }
  return text;
}

}  // namespace

Page page_of(const Comparison& comparison) {
  Footnotes footnotes;
  Page page{.work = comparison.work, .headlines = headlines(comparison)};
  if (!comparison.key_differences.empty())
    page.tables.push_back(table_of_key_differences(comparison));
  page.tables.push_back(table_of(comparison, footnotes));
  for (const Explanation& explanation : comparison.explanations) {
    page.tables.push_back(table_of(explanation, comparison.options));
  }
  if (comparison.options.form != ComparisonForm::sets &&
      !comparison.environment_differences.empty()) {
    page.tables.push_back(table_of_environments(comparison));
  }
  append(page.tables.back().remarks, remarks_of(comparison, footnotes));
  return page;
}

Page comparison_page(const RunSet& base, const RunSet& next, const Comparison& comparison,
                     const std::string& verdict) {
  const CompareOptions& options = comparison.options;
  Page page = page_of(comparison);
  const SideWords words = words_of(options);
  const bool is_named = !options.base_title.empty() || options.form == ComparisonForm::reference;
  page.title = options.form == ComparisonForm::sets && !is_named
                   ? "nearmetal: new runs against base"
                   : std::string("nearmetal: ") + (is_named ? "" : "a ") + words.new_title +
                         " against " + words.base_name;
  page.verdict = verdict;
  page.leading_charts = 2;  // those of the difference and of the throughput
  page.charts = charts_of(base, next, comparison);
  TextTable& table = find_in(page.tables, comparison_title, &TitledTable::title)->table;
  // The verdict beside the row: a phone shows no more of it.
  const auto last_second = [](auto& cells) {
    std::rotate(cells.begin() + 1, cells.end() - 1, cells.end());
  };
  last_second(table.columns);
  std::ranges::for_each(table.rows, last_second);
  if (options.form == ComparisonForm::sets && !comparison.environment_differences.empty()) {
    page.tables.push_back(table_of_environments(comparison));
  }
  append(page.tables, details_of({{words.base_title, &base}, {words.new_title, &next}}));
  return page;
}

}  // namespace nearmetal
