#include <algorithm>
#include <filesystem>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "base/text_table.h"
#include "bench/cli/output.h"
#include "bench/commands/compare.h"
#include "bench/commands/program.h"
#include "bench/tf_cnn_benchmarks/translate.h"
#include "reports/formats/benchmark_text.h"
#include "reports/formats/charts/charts.h"
#include "reports/formats/charts/throughput_charts.h"
#include "reports/formats/headline.h"
#include "reports/formats/page.h"
#include "reports/formats/report_text.h"

namespace nearmetal {
namespace {

constexpr const char* report_examples = R"(
Examples:
  nearmetal report run*.json                                 tables, and the answer above them
  nearmetal report run*.json > runs.md                       the same in Markdown
  nearmetal report run*.json --format csv --output runs.csv  a line for each run and metric
  nearmetal report run*.json --format html --output runs.html
  nearmetal report sweep.json --format svg --chart throughput --output chart.svg
  nearmetal report old/                                      the reports of a folder or baseline
  nearmetal report metal=a.json vm=b.json c.json             two machines side by side
  nearmetal report run*.json --format github >> "$GITHUB_STEP_SUMMARY"
  nearmetal report run*.json --format go > runs.txt          for benchstat
  nearmetal report run*.json --reference fleet               and where this machine is among others
  nearmetal report sweep.json --price-per-gpu-hour 4.20 --deadline 36   hours and cost to train
  kubectl logs job/nearmetal-launcher > job.log && nearmetal report job.log

A file may hold several reports, one after another or within a log.
A comparison as HTML: nearmetal compare ... --html FILE.
otava: a line for each session, for the CSV importer of Apache Otava (time_column: time).
github-action-benchmark: for its tool customBiggerIsBetter. google-benchmark: for its compare.py.)";

struct ChartChoice {
  bool on_pages = true;
  std::optional<std::string> name;  // of the one that SVG draws
};

void print_page(std::ostream& out, const GroupedRuns& runs, const ChartChoice& choice) {
  Page page = report_page(runs);
  page.draws_charts = choice.on_pages;
  print_html(out, page);
}

void print_svg(std::ostream& out, const GroupedRuns& runs, const ChartChoice& choice) {
  const std::vector<Chart> charts = charts_of(runs);
  const auto chart = std::ranges::find(charts, choice.name.value_or(""), &Chart::name);
  if (chart == charts.end()) {
    throw std::invalid_argument("--format svg draws one chart, which --chart names: " +
                                joined(transformed(charts, &Chart::name)));
  }
  if (!chart->missing.empty()) {
    throw std::invalid_argument("--chart " + chart->name + ": " + chart->missing);
  }
  out << svg_file(*chart);
}

struct ReportFormat {
  const char* name;
  void (*print)(std::ostream& out, const GroupedRuns& runs, const ChartChoice& choice);
  // Whether it has one value for all runs of an arm, without a word of what they are.
  bool means_alone = false;
  bool with_steps = false;   // whether it shows them
  bool of_own_runs = false;  // whether it cannot say that others published results
  bool has_answer = false;   // whether it begins with the answer in sentences
};

template <void (*print)(std::ostream&, const RunSet&)>
void without_charts(std::ostream& out, const GroupedRuns& runs, const ChartChoice&) {
  print(out, runs.all);
}

constexpr ReportFormat report_formats[] = {
    {"markdown", without_charts<print_markdown>, false, false, false, true},
    {"text", without_charts<print_text>, false, false, false, true},
    {"html", print_page, false, true, false, true},
    {"svg", print_svg, false, true},
    {"github", without_charts<print_github_summary>, false, false, false, true},
    {"csv", without_charts<print_csv>},
    {"otava", without_charts<print_otava_csv>, false, false, true},
    {"junit", without_charts<print_junit>, false, false, true},
    {"prometheus", without_charts<print_prometheus>, true},
    {"tf_cnn_benchmarks", without_charts<print_tf_cnn_benchmarks>, false, true, true},
    {"go", without_charts<print_go_benchmark>, false, false, true},
    {"google-benchmark",
     [](auto& out, const auto& runs, const auto&) { out << google_benchmark_json(runs.all); },
     true},
    {"github-action-benchmark",
     [](auto& out, const auto& runs, const auto&) {
       out << github_action_benchmark_json(runs.all);
     },
     true},
};

struct ReportForm {
  std::vector<std::string> places;
  const ReportFormat* format = nullptr;  // none: as the place that it is written to
  OutputFile output;
  CostRequest costs;
  std::vector<std::string> metrics;
  ReferenceChoice reference;
  ChartChoice charts;
  std::optional<std::string> plot_data;  // folder for the charts and their data
};

void add_report_options(Options& options, ReportForm& form) {
  options
      .paths("FILE", "FILE...", form.places, "Reports, FILE#ARM, folders; NAME=FILE... is a group")
      .required = true;
  options.row("--format", form.format, report_formats,
              "form of output [text on a terminal, else markdown]");
  add_metric_option(options, "figures to list, or all [of one arm the usual ones]", form.metrics);
  options.path("--output", "FILE", form.output.path, "file to write; - is stdout [-]");
  options.toggle("--no-charts", "leave the charts out of the page",
                 [&form] { form.charts.on_pages = false; });
  options.text("--chart", "NAME", form.charts.name, "the chart of --format svg: speedup, ...");
  options.path("--plot-data", "FOLDER", form.plot_data,
               "folder for every chart and its data: NAME.svg, NAME.csv");
  options.toggle("--force", form.output.replace, "replace an existing file");
  add_cost_options(options, form.costs);
  add_reference_options(options, form.reference);
}

void write_plot_data(const std::filesystem::path& folder, const GroupedRuns& runs, bool force) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw OutputError(folder.string() + ": " + error.message());
  for (const Chart& chart : charts_of(runs)) {
    if (!chart.missing.empty()) continue;
    write_file_atomically(folder / (chart.name + ".csv"), csv_of(chart), force);
    write_file_atomically(folder / (chart.name + ".svg"), svg_file(chart), force);
  }
}

ExitCode run_report(const ReportForm& form, const Context& context) {
  const bool on_terminal = context.terminal.is_read && form.output.is_stdout();
  const ReportFormat& format =
      form.format != nullptr ? *form.format
                             : find_row(report_formats, "", on_terminal ? "text" : "markdown");
  if (form.charts.name && format.print != print_svg) {
    throw std::invalid_argument("--chart: it is for --format svg");
  }
  if (form.reference.asked && !format.has_answer) {
    throw std::invalid_argument(std::string("--format ") + format.name +
                                " has no place for the answer of --reference: take text, "
                                "markdown, html or github, or compare --json");
  }
  const GroupedPlaces places = grouped_places(form.places);
  for (const auto& [name, of_group] : places) {
    require_no_input(form.output, files_of(of_group));
  }
  check(form.costs, !format.means_alone && !format.of_own_runs);
  GroupedRuns runs = read_groups(places, format.with_steps || form.plot_data, format.means_alone);
  runs.all.metrics = form.metrics;
  add_costs(runs.all, form.costs);
  for (auto& [name, set] : runs.groups) add_costs(set, form.costs);
  if (form.reference.asked) {
    RunSet next = runs.all;
    const Reference reference = chosen_reference(form.reference, next, {});
    runs.all.places = headlines(compare(reference.runs, next, with_reference({}, reference)));
  }
  remark_foreign(runs.all, context.terminal);
  if (format.means_alone || format.of_own_runs) {
    require_none_imported(
        runs.all, std::string("--format ") + format.name + " takes only runs of nearmetal itself");
  }
  if (form.plot_data) write_plot_data(*form.plot_data, runs, form.output.replace);
  write_output(form.output, context.terminal,
               [&](std::ostream& out) { format.print(out, runs, form.charts); });
  return ExitCode::ok;
}

}  // namespace

Command report_command() {
  return make_command("report", "Show runs as HTML, Markdown, CSV, ...", report_examples,
                      add_report_options, run_report);
}

}  // namespace nearmetal
