#include "bench/commands/html_output.h"

#include <array>
#include <csignal>
#include <cstdio>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include "bench/environment/child_process.h"
#include "models/errors.h"

namespace nearmetal {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

// A file without a name, at its start: gnuplot may read and write at its own pace.
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

std::string content_of(std::FILE* file) {
  std::rewind(file);
  std::string content;
  std::array<char, 65536> part{};
  while (const size_t count = std::fread(part.data(), 1, part.size(), file)) {
    content.append(part.data(), count);
  }
  return content;
}

pid_t start_gnuplot(int script, int image) try {
  const char* no_settings_of_the_user = "-d";
  return start_child({"gnuplot", no_settings_of_the_user},
                     {.in = script, .out = image, .signal_at_our_end = SIGKILL});
} catch (const std::system_error& error) {
  if (error.code() == std::errc::resource_unavailable_try_again) throw;
  throw NotSupported("charts are left out, as gnuplot is not here: install gnuplot-nox");
}

// The text that gnuplot writes to its standard output for this script.
std::string draw(const std::string& script) {
  const File input = scratch_file(script);
  const File output = scratch_file("");
  const pid_t child = start_gnuplot(fileno(input.get()), fileno(output.get()));
  if (wait_for_child(child) != 0) {
    throw std::runtime_error("gnuplot failed; --no-charts does without");
  }
  return content_of(output.get());
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
