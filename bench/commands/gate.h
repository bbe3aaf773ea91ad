// `nearmetal gate`: the answer of a comparison as an exit code.
#pragma once

#include <cstdint>
#include <string>

#include "bench/commands/compare.h"
#include "bench/commands/rerun.h"
#include "reports/compare/baseline.h"
#include "reports/compare/gate.h"

namespace nearmetal {

struct GateForm {
  CompareRequest request;
  GateOptions gate;
  int64_t reruns = 0;    // at most
  RepeatOptions repeat;  // of those
  BaselineWindow window;
  bool per_machine = false;
  std::string baselines_folder = "baselines";
};

void add_gate_options(Options& options, GateForm& form);

}  // namespace nearmetal
