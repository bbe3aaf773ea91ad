#include "bench/cli/terminal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string_view>

namespace nearmetal {

void occupy_standard_descriptors() {
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(standard, F_GETFD) >= 0) continue;
    // The lowest that is free: this one. Not for the use that is made of it.
    open("/dev/null", standard == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

Terminal standard_terminal() {
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
