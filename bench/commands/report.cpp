#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <utility>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "base/text_table.h"
#include "bench/cli/output.h"
#include "bench/commands/compare.h"
#include "bench/commands/program.h"
#include "bench/environment/child_process.h"
#include "bench/tf_cnn_benchmarks/translate.h"
#include "reports/compare/work_text.h"
#include "reports/formats/benchmark_text.h"
#include "reports/formats/charts/charts.h"
#include "reports/formats/charts/throughput_charts.h"
#include "reports/formats/page.h"
#include "reports/formats/report_text.h"

namespace nearmetal {
namespace {

constexpr double may_take_seconds = 300;  // a chart, on a busy machine

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

// A file without a name, at its start: gnuplot may read at its own pace.
File scratch_file(const std::string& content) {
  File file(std::tmpfile(), std::fclose);
  if (!file) throw std::runtime_error("no temporary file for gnuplot");
  const bool written = std::fwrite(content.data(), 1, content.size(), file.get()) == content.size();
  if (!written || std::fflush(file.get()) != 0 || std::fseek(file.get(), 0, SEEK_SET) != 0) {
    throw std::runtime_error("the temporary file for gnuplot cannot be written");
  }
  return file;
}

// The text that gnuplot writes to its standard output for this script.
std::string draw(const std::string& script) {
  if (!is_on_path("gnuplot")) {
    throw NotSupported("charts are left out, as gnuplot is not here: install gnuplot-nox");
  }
  const File input = scratch_file(script);
  const char* no_settings_of_the_user = "-d";
  ChildOutput drawn = run_child({"gnuplot", no_settings_of_the_user}, may_take_seconds,
                                {.in = fileno(input.get()), .err = STDERR_FILENO});
  if (drawn.exit_status != 0) {
    throw std::runtime_error("gnuplot failed; --no-charts does without");
  }
  return std::move(drawn.text);
}

constexpr const char* report_examples = R"(
Examples:
  nearmetal report run*.json                                 tables, and the answer above them
  nearmetal report run*.json > runs.md                       the same in Markdown
  nearmetal report run*.json --format csv --output runs.csv  a line for each run and metric
  nearmetal report run*.json --format html --output runs.html
  nearmetal report old/                                      the reports of a folder or baseline
  nearmetal report metal=a.json vm=b.json c.json             two machines side by side
  nearmetal report run*.json --format github >> "$GITHUB_STEP_SUMMARY"
  nearmetal report run*.json --format go > runs.txt          for benchstat
  nearmetal report sweep.json --price-per-gpu-hour 4.20 --deadline 36   hours and cost to train
  kubectl logs job/nearmetal-launcher > job.log && nearmetal report job.log

A file may hold several reports, one after another or within a log.
A comparison as HTML: nearmetal compare ... --html FILE.
otava: a line for each session, for the CSV importer of Apache Otava (time_column: time).
github-action-benchmark: for its tool customBiggerIsBetter. google-benchmark: for its compare.py.)";

struct ReportFormat {
  const char* name;
  void (*print)(std::ostream& out, const GroupedRuns& runs, bool charts);
  // Whether it has one value for all runs of an arm, without a word of what they are.
  bool means_alone = false;
  bool with_steps = false;   // whether it shows them
  bool of_own_runs = false;  // whether it cannot say that others published results
};

template <void (*print)(std::ostream&, const RunSet&)>
void without_charts(std::ostream& out, const GroupedRuns& runs, bool) {
  print(out, runs.all);
}

constexpr ReportFormat report_formats[] = {
    {"markdown", without_charts<print_markdown>},
    {"text", without_charts<print_text>},
    {"html",
     [](auto& out, const auto& runs, bool charts) { out << html_of(report_page(runs), charts); },
     false, true},
    {"github", without_charts<print_github_summary>},
    {"csv", without_charts<print_csv>},
    {"otava", without_charts<print_otava_csv>, false, false, true},
    {"junit", without_charts<print_junit>, false, false, true},
    {"prometheus", without_charts<print_prometheus>, true},
    {"tf_cnn_benchmarks", without_charts<print_tf_cnn_benchmarks>, false, true, true},
    {"go", without_charts<print_go_benchmark>, false, false, true},
    {"google-benchmark",
     [](auto& out, const auto& runs, bool) { out << google_benchmark_json(runs.all); }, true},
    {"github-action-benchmark",
     [](auto& out, const auto& runs, bool) { out << github_action_benchmark_json(runs.all); },
     true},
};

struct ReportForm {
  std::vector<std::string> places;
  const ReportFormat* format = nullptr;  // none: as the place that it is written to
  OutputFile output;
  CostRequest costs;
  bool charts = true;                    // of HTML
  std::optional<std::string> plot_data;  // folder for data and scripts of the charts
};

void add_report_options(Options& options, ReportForm& form) {
  options
      .paths("FILE", "FILE...", form.places, "Reports, FILE#ARM, folders; NAME=FILE... is a group")
      .required = true;
  options.row("--format", form.format, report_formats,
              "form of output [text on a terminal, else markdown]");
  options.path("--output", "FILE", form.output.path, "file to write; - is stdout [-]");
  options.toggle("--no-charts", "leave the charts out of the page; gnuplot draws them",
                 [&form] { form.charts = false; });
  options.path("--plot-data", "FOLDER", form.plot_data,
               "folder for data and script of every chart: NAME.csv, NAME.gp");
  options.toggle("--force", form.output.replace, "replace an existing file");
  add_cost_options(options, form.costs);
}

void write_plot_data(const std::filesystem::path& folder, const GroupedRuns& runs, bool force) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw OutputError(folder.string() + ": " + error.message());
  for (const Chart& chart : charts_of(runs)) {
    if (!chart.missing.empty()) continue;
    write_file_atomically(folder / (chart.name + ".csv"), chart.csv, force);
    write_file_atomically(folder / (chart.name + ".gp"), script_with_files(chart), force);
  }
}

ExitCode run_report(const ReportForm& form, const Context& context) {
  const bool on_terminal = context.terminal.is_read && form.output.is_stdout();
  const ReportFormat& format =
      form.format != nullptr ? *form.format
                             : find_row(report_formats, "", on_terminal ? "text" : "markdown");
  const GroupedPlaces places = grouped_places(form.places);
  for (const auto& [name, of_group] : places) {
    require_no_input(form.output, files_of(of_group));
  }
  check(form.costs, !format.means_alone && !format.of_own_runs);
  GroupedRuns runs = read_groups(places, format.with_steps || form.plot_data);
  add_costs(runs.all, form.costs);
  for (NamedRuns& group : runs.groups) add_costs(group.set, form.costs);
  remark_foreign(runs.all, context.terminal);
  if (format.means_alone) require_same_work(runs.all);
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

std::string html_of(Page page, bool charts) {
  try {
    for (const Chart& chart : page.charts) {
      if (!charts) break;
      page.images.push_back(chart.missing.empty() ? draw(script_with_data(chart)) : "");
    }
  } catch (const NotSupported& missing) {
    page.images.clear();
    page.remarks.insert(page.remarks.begin(), missing.what());
  }
  TextStream text;
  print_html(text, page);
  return text.str();
}

Command report_command() {
  return make_command("report", "Show runs as HTML, Markdown, CSV, ...", report_examples,
                      add_report_options, run_report);
}

}  // namespace nearmetal
