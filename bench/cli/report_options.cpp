#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "bench/cli/command_options.h"
#include "bench/cli/parse_value.h"

namespace nearmetal {
namespace {

constexpr const char* report_examples = R"(
Examples:
  nearmetal report run*.json                                 a table in Markdown
  nearmetal report run*.json --format csv --output runs.csv  a line for each run and metric
  nearmetal report run*.json --format html --output runs.html
  nearmetal report run*.json --format github >> "$GITHUB_STEP_SUMMARY"
  nearmetal report run*.json --format go > runs.txt          for benchstat

A comparison as HTML: nearmetal compare ... --html FILE.
github-action-benchmark: for its tool customBiggerIsBetter. google-benchmark: for its compare.py.)";

}  // namespace

CLI::App* add_report_command(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("report", "Show runs as HTML, Markdown, CSV, ...");
  command->footer(report_examples);
  ReportForm& form = line.report;
  const auto take_places = [&](const std::vector<std::string>& places) {
    for (const std::string& place : places) form.places.push_back(checked_path("FILE", place));
  };
  command
      ->add_option_function<std::vector<std::string>>("FILE", take_places,
                                                      "Reports, FILE#ARM or folders")
      ->option_text("FILE...")
      ->required();
  const auto take_format = [&](const std::string& text) {
    require_choice("--format", text,
                   {"markdown", "html", "github", "csv", "junit", "prometheus", "go",
                    "google-benchmark", "github-action-benchmark"});
    form.format = text;
  };
  command->add_option_function<std::string>("--format", take_format, "[markdown]")
      ->option_text(
          "markdown|html|github|csv|junit|prometheus|go|google-benchmark|"
          "github-action-benchmark");
  const auto take_output = [&](const std::string& text) {
    form.output = checked_path("--output", text);
  };
  command->add_option_function<std::string>("--output", take_output, "file; - is stdout [-]")
      ->option_text("FILE");
  command->add_flag_callback(
      "--no-charts", [&] { form.charts = false; }, "HTML without gnuplot");
  const auto take_plot_data = [&](const std::string& text) {
    form.plot_data = checked_path("--plot-data", text);
  };
  command
      ->add_option_function<std::string>("--plot-data", take_plot_data,
                                         "for NAME.csv and NAME.gp (gnuplot) of every chart")
      ->option_text("FOLDER");
  command->add_flag("--force", form.force, "replace an existing file");
  return command;
}

}  // namespace nearmetal
