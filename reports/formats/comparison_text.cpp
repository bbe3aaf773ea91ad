#include "reports/formats/comparison_text.h"

#include <algorithm>
#include <array>
#include <set>

#include "reports/compare/comparison_row.h"
#include "reports/formats/headline.h"
#include "reports/text/text.h"
#include "reports/text/text_table.h"

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
class Footnotes {
 public:
  std::string marks(const std::vector<std::string>& notes) {
    std::set<size_t> numbers;
    for (const std::string& note : notes) {
      auto known = std::ranges::find(texts_, note);
      if (known == texts_.end()) known = texts_.insert(texts_.end(), note);
      numbers.insert(static_cast<size_t>(known - texts_.begin()) + 1);
    }
    return numbers.empty() ? "" : " (" + ranges_text(numbers) + ")";
  }
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::vector<std::string> texts_;
};

std::string difference_text(const ComparisonRow& row) {
  if (!row.difference) return "-";
  return row.difference_interval ? signed_percent(*row.difference, *row.difference_interval)
                                 : signed_percent(*row.difference);
}

std::string p_text(const Maybe<double>& p) {
  if (!p) return "-";
  return *p < 1e-4 ? "<0.0001" : fixed(*p, 4);
}

// Why a verdict is none, and what would help; empty where it is one.
std::string reason_text(const ComparisonRow& row, const CompareOptions& options) {
  if (row.more_runs) {
    return counted(*row.more_runs, "more run") +
           (options.base_can_grow ? " a side" : " of the new side") + " would decide with " +
           plain_percent(planned_power) + " chance if the measured difference is the true one";
  }
  const bool decided = row.verdict == Verdict::slower || row.verdict == Verdict::equivalent ||
                       row.verdict == Verdict::faster;
  if (decided) return "";
  return row.log_difference ? row.more_runs.reason : row.reason;
}

std::string warnings_text(const SideSummary& side) {
  std::vector<std::string> texts;
  for (const RunWarning& found : side.warnings) {
    const std::string runs = std::to_string(found.runs) + " of " + counted(side.runs, "run");
    texts.push_back(found.warning.text + " (" + extent_text(found, runs) + ")");
  }
  return "warnings of " + side.name + ": " + joined(texts, "; ");
}

std::vector<std::string> notes_of(const ComparisonRow& row, const CompareOptions& options) {
  std::vector<std::string> notes;
  const std::string reason = reason_text(row, options);
  if (!reason.empty()) notes.push_back(reason);
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
           (row.method == Method::sessions ? " in " + std::to_string(side.sessions) : "");
  };
  return text(row.base_side) + "|" + text(row.new_side);
}

bool shows_throughput_alone(const CompareOptions& options) {
  return options.metrics.size() == 1 && metric_from(options.metrics.front()).is_throughput;
}

std::string side_title(const std::string& side, const CompareOptions& options) {
  const std::string unit = metric_from(options.metrics.front()).unit;
  return side + (shows_throughput_alone(options) ? ", " + unit : "") + " [95 %]";
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
                to_string(row.verdict) + footnotes.marks(notes_of(row, options))});
  return cells;
}

TextTable table_of(const Comparison& comparison, Footnotes& footnotes) {
  const CompareOptions& options = comparison.options;
  const std::string confidence = plain_percent(1 - 2 * options.rule.alpha);
  TextTable table{.columns = {{"row"}}, .rows = {}};
  if (!shows_throughput_alone(options)) table.columns.push_back({"metric"});
  for (const char* side : {base_title(options), new_title(options)}) {
    table.columns.push_back({side_title(side, options), true});
  }
  table.columns.insert(table.columns.end(), {{"difference [" + confidence + "]", true},
                                             {"n", true},
                                             {"p (t)", true, true},
                                             {"p (rank)", true, true},
                                             {"verdict"}});
  for (const auto* rows : {&comparison.rows, &comparison.geometric_means}) {
    for (const ComparisonRow& row : *rows) table.rows.push_back(cells_of(row, options, footnotes));
  }
  return table;
}

TextTable table_of_key_differences(const Comparison& comparison) {
  TextTable table;
  table.columns = {
      {"severity"},           {"field"},  {base_title(comparison.options)}, {"differs"},
      {"where", false, true}, {"allowed"}};
  for (const KeyDifference& found : comparison.key_differences) {
    table.rows.push_back({to_string(found.severity), found.name, found.base, found.other,
                          found.source, found.allowed ? "yes" : "no"});
  }
  return table;
}

TextTable table_of_environments(const Comparison& comparison) {
  TextTable table;
  table.columns = {
      {"environment"}, {base_title(comparison.options)}, {new_title(comparison.options)}};
  for (const EnvironmentDifference& difference : comparison.environment_differences) {
    table.rows.push_back({difference.name,
                          shortened(readable_fact(difference.name, difference.base)),
                          shortened(readable_fact(difference.name, difference.other))});
  }
  return table;
}

std::string rule_text(const Comparison& comparison) {
  const DecisionRule& rule = comparison.options.rule;
  const bool by_sessions = std::ranges::any_of(
      comparison.rows, [](const ComparisonRow& row) { return row.method == Method::sessions; });
  return "margin " + plain_percent(rule.margin) + ", alpha " + plain_percent(rule.alpha) +
         (comparison.corrected_rows > 0 ? "; verdicts after Holm's correction for " +
                                              std::to_string(comparison.corrected_rows) + " rows"
                                        : "") +
         (by_sessions ? "; n: runs a side, in sessions" : "; n: runs a side, or pairs of them") +
         (comparison.options.order == RowOrder::verdict ? "; worst first" : "");
}

// No more than a reader can see through; --json has them all.
constexpr size_t most_names = 4;

std::string differing_names(const Comparison& comparison) {
  std::vector<std::string> names;
  for (const EnvironmentDifference& difference : comparison.environment_differences) {
    if (names.size() < most_names) names.push_back(difference.name);
  }
  const size_t left = comparison.environment_differences.size() - names.size();
  return joined(names) + (left > 0 ? " and " + std::to_string(left) + " more" : "") +
         " (--json shows all)";
}

// Results of GPUs as they were published, without an interval.
constexpr std::array published = {
    "VMware and Dell, MLPerf Inference v1.1 on A100 vGPU: 94.4 to 100 % of bare metal",
    "Dell, \"Virtualizing GPUs for AI\", training: less than 5 % below bare metal",
};

// The remarks that follow the table, one line each.
std::vector<std::string> remarks_of(const Comparison& comparison, const Footnotes& footnotes) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < footnotes.texts().size(); ++i) {
    lines.push_back("(" + std::to_string(i + 1) + ") " + footnotes.texts()[i]);
  }
  for (const Warning& note : comparison.notes) lines.push_back("note: " + note.text);
  if (comparison.options.form == ComparisonForm::sets &&
      !comparison.environment_differences.empty()) {
    lines.push_back("note: the environments differ in " + differing_names(comparison));
  }
  if (comparison.options.form == ComparisonForm::vm && comparison.on_gpus) {
    for (const char* line : published) lines.push_back(std::string("published: ") + line);
  }
  return lines;
}

const char* colour_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::equivalent:
    case Verdict::faster:
      return "\033[32m";
    case Verdict::inconclusive:
      return "\033[33m";
    default:
      return "\033[31m";
  }
}

std::vector<const char*> styles_of(const Comparison& comparison, bool colour) {
  std::vector<const char*> styles;
  if (!colour) return styles;
  for (const auto* rows : {&comparison.rows, &comparison.geometric_means}) {
    for (const ComparisonRow& row : *rows) styles.push_back(colour_of(row.verdict));
  }
  return styles;
}

}  // namespace

ComparisonText text_of(const Comparison& comparison) {
  Footnotes footnotes;
  ComparisonText text;
  text.work = comparison.work;
  text.headlines = headlines(comparison);
  if (!comparison.key_differences.empty()) {
    text.key_differences = table_of_key_differences(comparison);
  }
  text.rows = table_of(comparison, footnotes);
  text.rule = rule_text(comparison);
  for (const Explanation& explanation : comparison.explanations) {
    text.explanations.push_back(text_of(explanation, comparison.options));
  }
  if (!comparison.environment_differences.empty()) {
    text.environments = table_of_environments(comparison);
  }
  text.remarks = remarks_of(comparison, footnotes);
  return text;
}

void print_comparison(std::ostream& out, const Comparison& comparison, bool colour) {
  const ComparisonText text = text_of(comparison);
  print_head(out, text.work, text.headlines, colour);
  if (!text.key_differences.rows.empty()) {
    print_line(out, std::string(key_differences_title) + " (--allow-differ FIELD):");
    print_aligned(out, text.key_differences);
    out << '\n';
  }
  print_aligned(out, text.rows, styles_of(comparison, colour));
  print_wrapped(out, text.rule);
  for (const TitledTable& explanation : text.explanations) {
    out << '\n';
    print_line(out, explanation.title + ":");
    print_aligned(out, explanation.table);
    for (const std::string& line : explanation.remarks) print_wrapped(out, line);
  }
  if (comparison.options.form != ComparisonForm::sets && !text.environments.rows.empty()) {
    out << '\n';
    print_aligned(out, text.environments);
  }
  for (const std::string& line : text.remarks) print_wrapped(out, line);
}

void print_comparison_markdown(std::ostream& out, const Comparison& comparison) {
  const ComparisonText text = text_of(comparison);
  print_markdown_head(out, text.work, text.headlines);
  if (!text.key_differences.rows.empty()) {
    out << key_differences_title << ":\n\n";
    print_markdown(out, text.key_differences);
    out << '\n';
  }
  print_markdown(out, text.rows);
  out << '\n' << markdown_escaped(text.rule) << "\n\n";
  for (const TitledTable& explanation : text.explanations) {
    out << markdown_escaped(explanation.title) << ":\n\n";
    print_markdown(out, explanation.table);
    out << '\n';
    for (const std::string& line : explanation.remarks) {
      out << "- " << markdown_escaped(line) << '\n';
    }
    out << '\n';
  }
  if (comparison.options.form != ComparisonForm::sets && !text.environments.rows.empty()) {
    print_markdown(out, text.environments);
    out << '\n';
  }
  for (const std::string& line : text.remarks) out << "- " << markdown_escaped(line) << '\n';
}

}  // namespace nearmetal
