// The rows that a comparison of unlike arms has.
#include <gtest/gtest.h>

#include "reports/compare/compare.h"
#include "reports/compare/gate.h"
#include "tests/support/made_up_runs.h"

namespace nearmetal {
namespace {

// "training", and "inference", which has a latency.
RunSet training_and_inference(int minute) {
  Report report = made_up_report({{"training", {1000, 1002}}, {"inference", {8000, 8010}}}, minute);
  report.arms[1].config = report.invocation.config;
  report.arms[1].config->inference = true;
  for (Run& run : report.arms[0].runs) run.ranks[0].latency = Unknown{"not inference"};
  for (Run& run : report.arms[1].runs) {
    run.ranks[0].latency =
        Latency{.steps = 1000, .median_seconds = 0.002, .p95_seconds = 0.003, .p99_seconds = 0.004};
  }
  RunSet set;
  add_runs(set, report, "made up");
  return set;
}

TEST(ComparedMetrics, LeaveOutRowsThatCannotHaveTheMetric) {
  CompareOptions options;
  options.metrics = {"p99_latency_seconds"};
  const RunSet base = training_and_inference(0), next = training_and_inference(60);
  const Comparison comparison = compare(base, next, options);
  ASSERT_EQ(comparison.rows.size(), 1U);
  EXPECT_EQ(comparison.rows[0].arm, "inference");
  ASSERT_FALSE(comparison.notes.empty());
  EXPECT_EQ(comparison.notes.front().code, "not_of_inference");
  EXPECT_EQ(comparison.notes.front().text,
            "no row of p99_latency_seconds for training: it is of inference");
  EXPECT_NE(judge(comparison, {}).exit_code, ExitCode::not_comparable);
  options.metrics = {all_of_runs};
  for (const ComparisonRow& row : compare(base, next, options).rows) {
    EXPECT_NE(row.verdict, Verdict::not_comparable) << row.arm << " " << row.metric;
  }
}

TEST(ComparedMetrics, WhereNoRowCanHaveTheMetricEachSaysWhy) {
  CompareOptions options;
  options.metrics = {"p99_latency_seconds"};
  RunSet base = training_and_inference(0), next = training_and_inference(60);
  for (RunSet* set : {&base, &next}) set->arms.pop_back();
  const Comparison comparison = compare(base, next, options);
  ASSERT_EQ(comparison.rows.size(), 1U);
  EXPECT_EQ(comparison.rows[0].verdict, Verdict::not_comparable);
}

}  // namespace
}  // namespace nearmetal
