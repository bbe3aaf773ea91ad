#include "bench/cli/output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "base/text.h"
#include "bench/cli/command_line.h"

namespace nearmetal {
namespace {

constexpr int usual_columns = 80;
constexpr const char* clear_line = "\r\033[K";

std::optional<int> columns_of(int descriptor) {
  winsize size{};
  const bool known = ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? std::optional<int>(size.ws_col) : std::nullopt;
}

std::optional<int> columns_asked_for() {
  const char* text = std::getenv("COLUMNS");
  const int columns = text != nullptr ? std::atoi(text) : 0;
  return columns > 0 ? std::optional(columns) : std::nullopt;
}

}  // namespace

void Terminal::show_progress(const std::string& text) const {
  if (!rewrites) return;
  const int columns =
      columns_of(STDERR_FILENO).value_or(columns_asked_for().value_or(usual_columns));
  err << clear_line << cut(printable(text), columns - 1) << std::flush;
}

void Terminal::clear_progress() const {
  if (rewrites) err << clear_line << std::flush;
}

Terminal standard_terminal() {
  const std::optional<int> asked = columns_asked_for();
  const std::optional<int> columns = asked ? asked : columns_of(STDOUT_FILENO);
  if (columns) limit_columns(std::cout, *columns);
  const char* kind = std::getenv("TERM");
  const char* no_colour = std::getenv("NO_COLOR");
  const bool capable = kind != nullptr && std::string_view(kind) != "dumb";
  const bool wanted = no_colour == nullptr || no_colour[0] == '\0';
  return {.out = std::cout,
          .err = std::cerr,
          .colour = capable && wanted && isatty(STDOUT_FILENO) == 1,
          .rewrites = capable && isatty(STDERR_FILENO) == 1,
          .is_read = isatty(STDOUT_FILENO) == 1};
}

// A name with milliseconds, so that runs started in the same second do not meet in one name.
std::string default_report_name(const std::string& first, const std::string& second) {
  using std::chrono::system_clock;
  const system_clock::time_point now = system_clock::now();
  const auto since_epoch = std::chrono::floor<std::chrono::milliseconds>(now.time_since_epoch());
  char fraction[8];
  std::snprintf(fraction, sizeof fraction, "%03d", static_cast<int>(since_epoch.count() % 1000));
  return "nearmetal-" + first + "-" + second + "-" +
         utc_text("%Y%m%dT%H%M%S", system_clock::to_time_t(now)) + "." + fraction + "Z.report.json";
}

std::string time_stamp() {
  using std::chrono::system_clock;
  return utc_text("%Y-%m-%dT%H:%M:%SZ", system_clock::to_time_t(system_clock::now()));
}

std::vector<std::string> files_read_by(const RunConfig& config) {
  std::vector<std::string> files;
  for (const auto& file : {config.plans, config.plan_cache, config.host_facts}) {
    if (file) files.push_back(*file);
  }
  return files;
}

void write_report_file(const std::filesystem::path& file, const std::string& text, bool replace,
                       const std::string& other_name) {
  try {
    return write_file_atomically(file, text, replace);
  } catch (const OutputError& error) {
    std::error_code ignored;
    const auto place = std::filesystem::temp_directory_path(ignored) / other_name;
    try {
      write_file_atomically(place, text, false);
    } catch (const OutputError& other) {
      throw OutputError(std::string(error.what()) + "; " + other.what());
    }
    throw OutputError(std::string(error.what()) + "; the report is in " + place.string() +
                      " instead");
  }
}

void add_output_options(Options& options, OutputFile& output) {
  options.path("--output", "FILE", output.path, "file to write; - is stdout [-]");
  options.toggle("--force", output.replace, "replace an existing file");
}

void require_no_input(const OutputFile& output, std::span<const std::string> inputs) {
  if (output.path) require_no_input(*output.path, inputs);
}

void write_output(const OutputFile& output, const Terminal& terminal,
                  const std::function<void(std::ostream& out)>& print) {
  TextStream text;
  const size_t columns = column_limit(terminal.out);
  if (output.is_stdout() && columns > 0) limit_columns(text, columns);
  print(text);
  if (output.is_stdout()) {
    terminal.out << text.str();
  } else {
    write_file_atomically(*output.path, text.str(), output.replace);
  }
}

}  // namespace nearmetal
