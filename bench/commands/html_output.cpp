#include "bench/commands/html_output.h"

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "base/errors.h"
#include "bench/environment/child_process.h"

namespace nearmetal {
namespace {

constexpr double may_take_seconds = 300;  // a chart, on a busy machine

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

// A file without a name, at its start: gnuplot may read at its own pace.
File scratch_file(const std::string& content) {
  File file(std::tmpfile(), std::fclose);
  if (!file) throw std::runtime_error("no temporary file for gnuplot");
  const bool written = std::fwrite(content.data(), 1, content.size(), file.get()) == content.size();
  if (!written || std::fflush(file.get()) != 0) {
    throw std::runtime_error("the temporary file for gnuplot cannot be written");
  }
  std::rewind(file.get());
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
  std::ostringstream text;
  print_html(text, page);
  return text.str();
}

}  // namespace nearmetal
