#include "bench/commands/report.h"

#include <filesystem>
#include <sstream>
#include <stdexcept>

#include "bench/commands/html_output.h"
#include "models/errors.h"
#include "reports/compare/work_text.h"
#include "reports/files/atomic_file.h"
#include "reports/formats/benchmark_json.h"
#include "reports/formats/benchmark_text.h"
#include "reports/formats/charts/charts.h"
#include "reports/formats/junit.h"
#include "reports/formats/report_text.h"

namespace nearmetal {
namespace {

void print(std::ostream& out, const RunSet& set, const ReportForm& form) {
  const std::string& format = form.format;
  if (format == "html") {
    out << html_of(report_page(set), form.charts);
  } else if (format == "markdown") {
    print_markdown(out, set);
  } else if (format == "github") {
    print_github_summary(out, set);
  } else if (format == "csv") {
    print_csv(out, set);
  } else if (format == "junit") {
    print_junit(out, set);
  } else if (format == "prometheus") {
    print_prometheus(out, set);
  } else if (format == "go") {
    print_go_benchmark(out, set);
  } else if (format == "google-benchmark") {
    out << google_benchmark_json(set);
  } else if (format == "github-action-benchmark") {
    out << github_action_benchmark_json(set);
  } else {
    throw std::logic_error("a format without a function");
  }
}

// Whether the format has one value for all runs of an arm, without a word of what they are.
bool shows_means_alone(const std::string& format) {
  return format == "prometheus" || format == "github-action-benchmark" ||
         format == "google-benchmark";
}

// Of each chart that has something to show NAME.csv and NAME.gp.
void write_plot_data(const std::filesystem::path& folder, const RunSet& set, bool force) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw OutputError(folder.string() + ": " + error.message());
  for (const Chart& chart : charts_of(set)) {
    if (!chart.missing.empty()) continue;
    write_file_atomically(folder / (chart.name + ".csv"), chart.csv, force);
    write_file_atomically(folder / (chart.name + ".gp"), script_with_files(chart), force);
  }
}

}  // namespace

ExitCode cmd_report(const ReportForm& form, const Terminal& terminal) {
  const bool shows_steps = form.format == "html" || form.plot_data;
  const RunSet set = read_runs(form.places, shows_steps ? Keep::steps_and_profile : Keep::figures);
  if (shows_means_alone(form.format)) require_same_work(set);
  if (form.plot_data) write_plot_data(*form.plot_data, set, form.force);
  if (!form.output || *form.output == "-") {
    print(terminal.out, set, form);
    return ExitCode::ok;
  }
  std::ostringstream text;
  print(text, set, form);
  write_file_atomically(*form.output, text.str(), form.force);
  return ExitCode::ok;
}

}  // namespace nearmetal
