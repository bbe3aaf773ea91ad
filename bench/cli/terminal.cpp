#include "bench/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <optional>
#include <string_view>

#include "reports/text/text_table.h"

namespace nearmetal {

namespace {

constexpr int usual_columns = 80;
constexpr const char* clear_line = "\r\033[K";

// The width of the terminal behind a descriptor, as it is now.
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

}  // namespace nearmetal
