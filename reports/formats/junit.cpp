#include <algorithm>
#include <stdexcept>

#include "reports/compare/work_text.h"
#include "reports/formats/benchmark_text.h"
#include "reports/formats/headline.h"
#include "reports/formats/html.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

std::string attribute(const char* name, const std::string& value) {
  return std::string(" ") + name + "=\"" + html_escaped(value) + "\"";
}

void print_property(std::ostream& out, const char* name, const Maybe<double>& value) {
  if (!value) return;
  out << "      <property" << attribute("name", name) << attribute("value", exact(*value))
      << "/>\n";
}

void print_case(std::ostream& out, const RunArm& arm, const SetRun& run) {
  out << "  <testcase" << attribute("classname", "nearmetal." + arm.name)
      << attribute("name", run.source + " " + run.run.started_at)
      << attribute("time", run.run.window ? exact(run.run.window->seconds) : "0") << ">\n"
      << "    <properties>\n";
  for (const Metric* metric : told_metrics_of(run.run)) {
    print_property(out, metric->name, metric->value_of(run.run));
  }
  out << "    </properties>\n";
  const std::string why = run.run.failure.value_or("no reason given");
  if (run.run.status == Status::failed) out << "    <error" << attribute("message", why) << "/>\n";
  if (run.run.status == Status::partial) {
    out << "    <skipped" << attribute("message", why) << "/>\n";
  }
  out << "  </testcase>\n";
}

// Prints an arm that was asked for and could not be had.
void print_case(std::ostream& out, const UnsupportedArm& arm) {
  out << "  <testcase" << attribute("classname", "nearmetal." + arm.name)
      << attribute("name", "unsupported") << attribute("time", "0") << ">\n"
      << "    <skipped" << attribute("message", arm.reason) << "/>\n  </testcase>\n";
}

int64_t runs_with(const RunSet& set, Status status) {
  int64_t count = 0;
  for (const RunArm& arm : set.arms) {
    for (const SetRun& run : arm.runs) count += run.run.status == status ? 1 : 0;
  }
  return count;
}

constexpr const char* head = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite";

// The element that tells how a row went; a row that passed has none.
const char* element_of(RowAnswer answer) {
  switch (answer) {
    case RowAnswer::passed:
      return nullptr;
    case RowAnswer::tolerated:
      return "skipped";
    case RowAnswer::unshown:
      return "error";
    case RowAnswer::failed:
      return "failure";
  }
  throw std::logic_error("unnamed RowAnswer");
}

// Prints what was measured, and the answer.
void print_output(std::ostream& out, const std::vector<std::string>& work,
                  const std::vector<std::string>& answers) {
  std::vector<std::string> lines = work;
  lines.insert(lines.end(), answers.begin(), answers.end());
  if (lines.empty()) return;
  for (std::string& line : lines) line = html_escaped(line);
  out << "  <system-out>" << joined(lines, "\n") << "</system-out>\n";
}

void print_case(std::ostream& out, const ComparisonRow& row, RowAnswer answer,
                const CompareOptions& options) {
  out << "  <testcase" << attribute("classname", "nearmetal." + title_of(row))
      << attribute("name", row.metric) << ">\n    <properties>\n";
  print_property(out, "base", row.base_side.geometric_mean);
  print_property(out, "new", row.new_side.geometric_mean);
  print_property(out, "difference", row.difference);
  if (row.difference_interval) {
    print_property(out, "difference_lower", row.difference_interval->lower);
    print_property(out, "difference_upper", row.difference_interval->upper);
  }
  print_property(out, "p_regression", row.p_regression);
  out << "    </properties>\n";
  if (const char* element = element_of(answer)) {
    out << "    <" << element
        << attribute("message",
                     sentence_of(row, options) + (row.difference ? ", " + row.reason : ""))
        << "/>\n";
  }
  out << "  </testcase>\n";
}

}  // namespace

void print_junit(std::ostream& out, const RunSet& set) {
  const int64_t unsupported = std::ssize(set.unsupported);
  int64_t tests = unsupported;
  for (const RunArm& arm : set.arms) tests += std::ssize(arm.runs);
  const int64_t skipped = runs_with(set, Status::partial) + unsupported;
  out << head << attribute("name", "nearmetal") << attribute("tests", std::to_string(tests))
      << attribute("errors", std::to_string(runs_with(set, Status::failed)))
      << attribute("skipped", std::to_string(skipped)) << ">\n";
  for (const RunArm& arm : set.arms) {
    for (const SetRun& run : arm.runs) print_case(out, arm, run);
  }
  for (const UnsupportedArm& arm : set.unsupported) print_case(out, arm);
  print_output(out, work_lines({{"", &set}}), headlines(set));
  out << "</testsuite>\n";
}

void print_junit(std::ostream& out, const Comparison& comparison, const GateResult& gate) {
  const auto count = [&](RowAnswer answer) {
    return std::to_string(std::ranges::count(gate.answers, answer));
  };
  out << head << attribute("name", "nearmetal gate")
      << attribute("tests", std::to_string(gate.answers.size()))
      << attribute("failures", count(RowAnswer::failed))
      << attribute("errors", count(RowAnswer::unshown))
      << attribute("skipped", count(RowAnswer::tolerated)) << ">\n";
  for (size_t i = 0; i < comparison.rows.size(); ++i) {
    print_case(out, comparison.rows[i], gate.answers[i], comparison.options);
  }
  std::vector<std::string> answers = headlines(comparison);
  answers.push_back(gate.verdict);
  print_output(out, comparison.work, answers);
  out << "</testsuite>\n";
}

}  // namespace nearmetal
