#include "bench/commands/html_output.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <sstream>
#include <stdexcept>

#include "models/errors.h"

namespace nearmetal {
namespace {

constexpr int not_found = 127;  // as shells say it

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

[[noreturn]] void become_gnuplot(int script, int image) {
  dup2(script, STDIN_FILENO);
  dup2(image, STDOUT_FILENO);
  execlp("gnuplot", "gnuplot", "-d", nullptr);  // -d: none of the user's settings
  _exit(not_found);
}

// The text that gnuplot writes to its standard output for this script.
std::string draw(const std::string& script) {
  const File input = scratch_file(script);
  const File output = scratch_file("");
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("no new process for gnuplot");
  if (child == 0) become_gnuplot(fileno(input.get()), fileno(output.get()));
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) throw std::runtime_error("gnuplot was lost");
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == not_found) {
    throw NotSupported("charts are left out, as gnuplot is not here: install gnuplot-nox");
  }
  if (status != 0) throw std::runtime_error("gnuplot failed; --no-charts does without");
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
