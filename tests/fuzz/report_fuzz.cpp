// Feeds any bytes to the reader of reports, and what it takes to all that works on reports: either
// InvalidReport, or everything works. Of libFuzzer; the unit tests feed it its corpus.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>

#include "base/errors.h"
#include "reports/compare/gate.h"
#include "reports/compare/run_set.h"
#include "reports/formats/benchmark_text.h"
#include "reports/formats/charts/charts.h"
#include "reports/formats/comparison_json.h"
#include "reports/formats/comparison_text.h"
#include "reports/formats/page.h"
#include "reports/formats/report_text.h"
#include "reports/json/json.h"

namespace {

using namespace nearmetal;

void require(bool holds, const char* what) {
  if (holds) return;
  std::cerr << "does not hold: " << what << '\n';
  std::abort();
}

void compare_sides(const RunSet& base, const RunSet& next) {
  CompareOptions options;
  for (const Metric* metric : metrics_of(sample_units)) options.metrics.emplace_back(metric->name);
  const Comparison comparison = compare(base, next, options);
  std::ostringstream text;
  print_text(text, page_of(comparison), true);
  print_markdown(text, page_of(comparison));
  const GateResult gate = judge(corrected_for_rows(comparison), {.fail_on = FailOn::any});
  text << power_text(comparison);
  require(!to_json(comparison, gate, gate.exit_code).empty(), "a comparison can be written");
  print_junit(text, comparison, gate, next);
  print_html(text, comparison_page(base, next, comparison, gate.verdict));
}

void show(const RunSet& set) {
  std::ostringstream text;
  print_markdown(text, set);
  print_github_summary(text, set);
  print_csv(text, set);
  print_junit(text, set);
  print_go_benchmark(text, set);
  print_prometheus(text, set);
  print_html(text, report_page({set}));
  for (const Chart& chart : charts_of({set})) {
    require(chart.missing.empty() != chart.plots.empty(), "a chart is drawn or says why not");
    if (chart.missing.empty()) text << svg_file(chart) << csv_of(chart);
  }
  require(!google_benchmark_json(set).empty() && !github_action_benchmark_json(set).empty(),
          "runs can be written for other tools");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Report report;
  try {
    report = report_from_json(std::string(reinterpret_cast<const char*>(data), size));
  } catch (const InvalidReport& error) {
    require(std::string(error.what()).size() < 4096, "the reason is short");
    return 0;
  }
  const std::string text = to_json(report);
  try {
    consistent_report_from_json(text);
  } catch (const InvalidReport& error) {
    require(std::string(error.what()).size() < 4096, "the contradiction is short");
  }
  require(to_json(report_from_json(text)) == text, "what was written reads back the same");
  RunSet all;
  add_runs(all, report, "input", true);
  show(all);
  compare_sides(all, all);
  if (report.arms.size() > 1) {
    RunSet base = all;
    base.arms = {all.arms.front()};
    RunSet next = all;
    next.arms = {all.arms.back()};
    compare_sides(base, next);
  }
  return 0;
}
