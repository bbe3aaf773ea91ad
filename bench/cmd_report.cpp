#include "bench/cmd_report.h"

#include <sstream>
#include <stdexcept>

#include "reports/atomic_file.h"
#include "reports/report_text.h"

namespace nearmetal {
namespace {

void print(std::ostream& out, const RunSet& set, const std::string& format) {
  if (format == "markdown") return print_markdown(out, set);
  if (format == "github") return print_github_summary(out, set);
  if (format == "csv") return print_csv(out, set);
  if (format == "junit") return print_junit(out, set);
  throw std::logic_error("a format without a function");
}

}  // namespace

ExitCode cmd_report(const ReportForm& form, const Terminal& terminal) {
  const RunSet set = read_runs(form.places);
  if (!form.output || *form.output == "-") {
    print(terminal.out, set, form.format);
    return ExitCode::ok;
  }
  std::ostringstream text;
  print(text, set, form.format);
  write_file_atomically(*form.output, text.str(), form.force);
  return ExitCode::ok;
}

}  // namespace nearmetal
