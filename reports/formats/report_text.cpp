#include "reports/formats/report_text.h"

#include <algorithm>
#include <sstream>

#include "reports/compare/comparison_row.h"
#include "reports/compare/work_text.h"
#include "reports/sharing/arm_figures.h"
#include "reports/sharing/fractions.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

std::string csv_text(const std::string& text) {
  const bool like_formula = !text.empty() && std::string("=+-@\t\r").find(text[0]) != text.npos;
  std::string quoted = like_formula ? "\"'" : "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

// Each run that is missing from a mean of the arm, and why.
void add_left_out(std::vector<std::string>& lines, const RunArm& arm) {
  constexpr size_t most = 8;
  std::vector<std::string> found;
  for (const Metric& metric : metrics_of(unit_of(arm))) {
    for (const Warning& warning : left_out_of(arm, metric)) {
      const std::string line = arm.name + ": " + warning.text;
      if (std::ranges::find(found, line) == found.end()) found.push_back(line);
    }
  }
  const size_t shown = std::min(found.size(), most);
  lines.insert(lines.end(), found.begin(), found.begin() + static_cast<std::ptrdiff_t>(shown));
  if (found.size() == shown) return;
  lines.push_back(arm.name + ": " + std::to_string(found.size() - shown) + " more are left out");
}

}  // namespace

TextTable report_table(const RunSet& set) {
  TextTable table;
  table.columns = {{"arm"},     {"of"},           {"mean [95 %]", true},
                   {"n", true}, {"spread", true}, {"left out", true}};
  for (const RunArm& arm : set.arms) {
    for (const Metric& metric : metrics_of(unit_of(arm))) {
      const SideSummary side = summary_of_arm(arm, metric);
      table.rows.push_back({arm.name, std::string(metric.name) + ", " + metric.unit,
                            mean_text(side, metric), std::to_string(side.runs),
                            side.spread ? significant(100 * side.spread->deviation, 2) + " %" : "-",
                            std::to_string(side.left_out)});
    }
  }
  return table;
}

std::vector<std::string> run_warnings(const RunSet& set) {
  std::vector<std::string> lines;
  for (const RunArm& arm : set.arms) {
    const std::string differences = different_work(arm);
    if (differences.empty()) continue;
    lines.push_back(arm.name + ": its runs did different work, so that their mean says nothing: " +
                    shortened(differences));
  }
  for (const RunArm& arm : set.arms) add_left_out(lines, arm);
  for (const std::string& remark : share_remarks(set)) lines.push_back(remark);
  for (const UnsupportedArm& arm : set.unsupported) lines.push_back(unsupported_text(arm));
  for (const RunArm& arm : set.arms) {
    std::vector<const SetRun*> runs;
    for (const SetRun& run : arm.runs) runs.push_back(&run);
    for (const RunWarning& found : warnings_of(runs)) {
      lines.push_back(arm.name + ": " + found.warning.code + " (" + counted(found.runs, "run") +
                      (found.same ? "): " : ", figures of the first): ") + found.warning.text);
    }
  }
  return lines;
}

void print_text(std::ostream& out, const RunSet& set) {
  if (const std::string work = work_line(set); !work.empty()) {
    print_wrapped(out, work);
    out << '\n';
  }
  if (shares_a_gpu(set)) {
    for (const TitledTable& shown : fraction_tables(set)) {
      out << shown.title << ":\n";
      print_aligned(out, shown.table);
      if (!shown.legend.empty()) print_wrapped(out, shown.legend);
      out << '\n';
    }
  }
  print_aligned(out, report_table(set));
  const std::vector<std::string> warnings = run_warnings(set);
  if (!warnings.empty()) out << '\n';
  for (const std::string& line : warnings) print_wrapped(out, line);
}

void print_markdown(std::ostream& out, const RunSet& set) {
  if (const std::string work = work_line(set); !work.empty()) {
    out << markdown_escaped(work) << "\n\n";
  }
  if (shares_a_gpu(set)) {
    for (const TitledTable& shown : fraction_tables(set)) {
      out << shown.title << ":\n\n";
      print_markdown(out, shown.table);
      out << '\n';
      if (!shown.legend.empty()) out << markdown_escaped(shown.legend) << "\n\n";
    }
  }
  print_markdown(out, report_table(set));
  out << '\n';
  for (const std::string& line : run_warnings(set)) out << "- " << markdown_escaped(line) << '\n';
}

void print_github_summary(std::ostream& out, const RunSet& set) {
  constexpr size_t most_bytes = 1'000'000;  // of 1 MiB
  std::ostringstream text;
  text << "## nearmetal\n\n";
  print_markdown(text, set);
  std::string summary = text.str();
  if (summary.size() > most_bytes) {
    summary.resize(summary.rfind('\n', most_bytes) + 1);
    summary += "\nCut here: the whole is larger than a step summary may be.\n";
  }
  out << summary;
}

void print_csv(std::ostream& out, const RunSet& set) {
  out << "source,arm,started_at,status,metric,unit,value";
  for (const char* field : told_fields) out << ',' << field;
  out << "\r\n";
  for (const RunArm& arm : set.arms) {
    for (const SetRun& run : arm.runs) {
      for (const Metric& metric : metrics_of(run.run.sample)) {
        const Maybe<double> value = metric.value_of(run.run);
        out << csv_text(run.source) << ',' << csv_text(arm.name) << ',' << run.run.started_at << ','
            << to_string(run.run.status) << ',' << metric.name << ',' << metric.base_unit << ','
            << (value ? exact(*value) : "");
        for (const char* field : told_fields) out << ',' << csv_text(key_value(run, field));
        out << "\r\n";
      }
    }
  }
}

}  // namespace nearmetal
