#include "bench/cmd_report.h"

#include <sstream>
#include <stdexcept>

#include "bench/gnuplot.h"
#include "reports/atomic_file.h"
#include "reports/chart.h"
#include "reports/html.h"
#include "reports/report_text.h"

namespace nearmetal {
namespace {

void print_html_with_charts(std::ostream& out, const RunSet& set, bool charts) {
  std::vector<Figure> figures;
  const Chart chart = throughput_chart(set);
  if (charts && !chart.script.empty()) figures.push_back({chart.caption, draw(chart.script)});
  print_html(out, set, figures);
}

void print(std::ostream& out, const RunSet& set, const ReportForm& form) {
  const std::string& format = form.format;
  if (format == "html") return print_html_with_charts(out, set, form.charts);
  if (format == "markdown") return print_markdown(out, set);
  if (format == "github") return print_github_summary(out, set);
  if (format == "csv") return print_csv(out, set);
  if (format == "junit") return print_junit(out, set);
  throw std::logic_error("a format without a function");
}

}  // namespace

ExitCode cmd_report(const ReportForm& form, const Terminal& terminal) {
  const RunSet set = read_runs(form.places);
  if (form.plot_data) {
    write_file_atomically(*form.plot_data, throughput_chart(set).script, form.force);
  }
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
