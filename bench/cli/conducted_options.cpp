#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <stdexcept>

#include "bench/cli/command_options.h"
#include "bench/cli/parse_value.h"

namespace nearmetal {
namespace {

// "1:25,75": the second of two parts, with three quarters of the multiprocessors.
GpuPart gpu_part_of(const std::string& text) {
  const char* flag = "--gpu-part";
  const size_t colon = text.find(':');
  if (colon == text.npos) {
    throw std::invalid_argument("--gpu-part: '" + text + "' is no INDEX:PERCENT,PERCENT,...");
  }
  GpuPart part;
  for (const std::string& percent : comma_separated(text.substr(colon + 1))) {
    part.percents.push_back(parse_number<int64_t>(flag, percent, {1, 100}));
  }
  const double last = static_cast<double>(part.percents.size()) - 1;
  part.index = parse_number<int64_t>(flag, text.substr(0, colon), {0, last});
  return part;
}

}  // namespace

void add_conducted_options(CLI::App& command, CommandLine& line) {
  command.add_flag("--conducted", line.conducted)->group("");
  command.add_option("--arm", line.arm)->group("");
  command.add_option("--sharers", line.sharers)->group("");
  command.add_flag("--through-mps", line.through_mps)->group("");
  command
      .add_option_function<std::string>(
          "--gpu-part", [&line](const std::string& text) { line.gpu_part = gpu_part_of(text); })
      ->group("");
}

}  // namespace nearmetal
