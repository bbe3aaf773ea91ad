#include "bench/cli/terminal.h"

#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string_view>

namespace nearmetal {

Terminal standard_terminal() {
  const char* kind = std::getenv("TERM");
  const char* no_colour = std::getenv("NO_COLOR");
  const bool capable = kind != nullptr && std::string_view(kind) != "dumb";
  const bool wanted = no_colour == nullptr || no_colour[0] == '\0';
  return {.out = std::cout,
          .err = std::cerr,
          .colour = capable && wanted && isatty(STDOUT_FILENO) == 1,
          .rewrites = capable && isatty(STDERR_FILENO) == 1};
}

}  // namespace nearmetal
