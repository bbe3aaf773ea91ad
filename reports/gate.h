// The answer of a gate: what a comparison means for a change that wants in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reports/compare.h"
#include "reports/exit_code.h"

namespace nearmetal {

/// regression: fails where worse by more than the margin is shown. not_equivalent: beyond that, not
/// worse must be shown. any: beyond that, neither worse nor better.
enum class FailOn { regression, not_equivalent, any };

const char* to_string(FailOn fail_on);

struct GateOptions {
  FailOn fail_on = FailOn::regression;
  int64_t minimum_runs = 3;  // a side
};

struct GateResult {
  GateOptions options;
  ExitCode exit_code = ExitCode::ok;
  std::string verdict;             // one line
  bool inconclusive = false;       // more runs could change the answer
  std::vector<double> adjusted_p;  // Holm's, of p_regression, in the order of the rows with one
  int64_t reruns = 0;              // taken because of earlier answers: a sequential test
};

/// The first that holds: 5, a side without a complete run; 4, not comparable or missing; 3, too few
/// runs, or none that vary; 1, a regression (with `any`: a change) that holds after Holm's
/// correction for several rows; 3, not shown what the policy asks for; 0. That all rows are
/// equivalent needs no correction, as each must be.
GateResult judge(const Comparison& comparison, const GateOptions& options);

/// "A drop of 2.6 % would have been found with 80 % chance."; empty where nothing can be said.
std::string power_text(const Comparison& comparison);

}  // namespace nearmetal
