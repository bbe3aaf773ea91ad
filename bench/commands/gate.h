// `nearmetal gate`: new runs against a baseline, by exit code.
#pragma once

#include <optional>
#include <string>

#include "bench/cli/command_line.h"
#include "bench/commands/compare.h"
#include "bench/commands/rerun.h"

namespace nearmetal {

struct GateForm {
  CompareRequest request;
  GateOptions gate;
  int64_t reruns = 0;    // at most
  RepeatOptions repeat;  // of those
  BaselineWindow window;
  std::string baselines_folder = "baselines";
};

void add_gate_options(Options& options, GateForm& form);

}  // namespace nearmetal
