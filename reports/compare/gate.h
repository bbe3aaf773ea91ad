// The answer of a gate: what a comparison means for a change that wants in.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "reports/compare/baseline.h"
#include "reports/compare/compare.h"

namespace nearmetal {

/// regression: fails where worse by more than the margin is shown. not_equivalent: beyond that, not
/// worse must be shown. any: beyond that, neither worse nor better.
enum class FailOn { regression, not_equivalent, any };
constexpr auto names_of(FailOn) { return std::array{"regression", "not-equivalent", "any"}; }

struct GateOptions {
  FailOn fail_on = FailOn::regression;
  int64_t minimum_runs = 3;                         // a side
  bool require_clean = false;                       // each run shown by its monitor to be clean
  std::optional<double> largest_detectable_drop{};  // a gate that would miss more is inconclusive
};

/// The answer for one row. tolerated: inconclusive, which the policy lets pass; unshown: what the
/// policy asks for was not shown, or could not be.
enum class RowAnswer { passed, tolerated, unshown, failed };

struct GateResult {
  GateOptions options;
  ExitCode exit_code = ExitCode::ok;
  std::string verdict;             // one line
  bool inconclusive = false;       // more runs could change the answer
  std::vector<RowAnswer> answers;  // of each row of the comparison
  std::vector<double> adjusted_p;  // Holm's, of p_regression, in the order of the rows with one
  int64_t reruns = 0;              // taken because of earlier answers: a sequential test
  int64_t looks = 1;               // planned, that share alpha
  double alpha = 0;                // of all looks; the comparison has what its look took
};

/// The same with verdicts that hold for all rows together: where SLOWER or FASTER does not stay
/// after Holm's correction over the rows, it becomes INCONCLUSIVE, and says so.
Comparison corrected_for_rows(Comparison comparison);

/// The answer that verdicts after corrected_for_rows() give, the first that holds: 5, a side
/// without a complete run; 4, not comparable, missing, or not clean; 3, too few runs, or none that
/// vary; 1, a regression (with `any`: a change); 3, not shown what the policy asks for; 0. That all
/// rows are equivalent needs no correction, as each must be.
GateResult judge(const Comparison& comparison, const GateOptions& options);

/// Compares, corrects for the number of rows and judges, and while the answer is inconclusive takes
/// another run, by `take_run`, `most_reruns` times at most. All looks at the runs together err no
/// more often than one would, as they share alpha: the last takes nine tenths of it, those before
/// the rest in equal parts, so that clear cases end early and others are judged almost as if there
/// had been one look (after Haybittle and Peto). Where regressions alone fail, it also ends once
/// all rows are equivalent at the whole alpha, of that look alone: an end that passes fails nothing
/// wrongly. A look at too few runs decides nothing and takes no part; where the base has too few,
/// none is taken.
std::pair<Comparison, GateResult> judge_sequentially(const Baseline& base, RunSet& next,
                                                     CompareOptions options,
                                                     const GateOptions& gate_options,
                                                     int64_t most_reruns,
                                                     const std::function<void(RunSet&)>& take_run);

/// "a, b: only in the base; c: ...": these rows by their reasons, each with those that have it.
std::string with_own_reasons(std::vector<const ComparisonRow*> rows, const Comparison& comparison);

/// "a drop of 2.6 % would have been found with 80 % chance"; empty where nothing can be said.
std::string power_text(const Comparison& comparison);

}  // namespace nearmetal
