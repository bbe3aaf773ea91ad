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

const ComparisonRow& row_of(const Comparison& comparison, const std::string& metric) {
  return *std::ranges::find(comparison.rows, metric, &ComparisonRow::metric);
}

TEST(ComparedMetrics, OfEnergyMemoryJitterAndCommunicationHaveIntervals) {
  const auto set_of = [](double factor, int minute) {
    RunSet set = made_up_set({{"run", {1000, 1001, 999}}}, minute);
    for (size_t i = 0; i < 3; ++i) {
      auto& run = set.arms[0].runs[i].run;
      const double value = factor * (1 + .001 * static_cast<double>(i));
      run.ranks[0].gpu = 0;
      run.ranks[0].monitoring->joules = 100 * value;
      run.ranks[0].device_bytes = static_cast<int64_t>(4e9 * value);
      run.ranks[0].step_time.value->jitter_seconds = 1e-4 * value;
      run.communication.emplace().exposed_seconds_per_step = 1e-3 * value;
    }
    return set;
  };
  CompareOptions options;
  options.metrics = {"images_per_joule", "device_bytes", "jitter_seconds",
                     "exposed_communication_seconds"};
  const Comparison comparison = compare(set_of(1, 0), set_of(1.1, 60), options);
  ASSERT_EQ(comparison.rows.size(), 4U);
  for (const ComparisonRow& row : comparison.rows) {
    EXPECT_EQ(row.verdict, Verdict::slower) << row.metric << ", " << row.reason;
    EXPECT_TRUE(row.difference_interval) << row.metric;
  }
  EXPECT_NEAR(*row_of(comparison, "images_per_joule").base_side.geometric_mean, 512 / 100.1, .01);
  EXPECT_NEAR(*row_of(comparison, "images_per_joule").difference, 1 / 1.1 - 1, 1e-6);
  EXPECT_EQ(judge(comparison, {}).exit_code, ExitCode::gate_failed);
}

// Runs of one program hold the same memory.
TEST(ComparedMetrics, OfMemoryAreKnownWhereRunsAgree) {
  const auto set_of = [](int64_t bytes, int minute) {
    RunSet set = made_up_set({{"run", {1000, 1001, 999}}}, minute);
    for (SetRun& run : set.arms[0].runs) run.run.ranks[0].device_bytes = bytes;
    return set;
  };
  CompareOptions options;
  options.metrics = {"device_bytes"};
  const auto verdict = [&](int64_t bytes) {
    return compare(set_of(4'000'000'000, 0), set_of(bytes, 60), options).rows.at(0).verdict;
  };
  EXPECT_EQ(verdict(4'000'000'000), Verdict::equivalent);
  EXPECT_EQ(verdict(5'000'000'000), Verdict::slower);
  RunSet unlike = set_of(4'000'000'000, 60);
  unlike.arms[0].runs[1].run.ranks[0].device_bytes = 5'000'000'000;
  const Comparison mixed = compare(set_of(4'000'000'000, 0), unlike, options);
  EXPECT_FALSE(mixed.rows.at(0).difference_interval) << "runs of one side differ";
}

TEST(ComparedMetrics, OfNothingAreUnknown) {
  CompareOptions options;
  options.metrics = {all_of_runs};
  RunSet set = made_up_set({{"run", {1000, 1001, 999}}});
  for (SetRun& run : set.arms[0].runs) {
    run.run.ranks[0].step_time.value->jitter_seconds = 0;
    run.run.ranks[0].monitoring.reset();
  }
  for (const ComparisonRow& row : compare(set, set, options).rows) {
    EXPECT_NE(row.verdict, Verdict::invalid) << row.metric;
    EXPECT_NE(row.metric, "jitter_seconds");
  }
}

// What is known within a run is the error of its mean step.
TEST(ComparedMetrics, HaveTheirOwnNoise) {
  CompareOptions options;
  options.metrics = {throughput_of_runs, "set_up_seconds", "p99_step_seconds"};
  RunSet base = made_up_set({{"run", {1000, 1001, 999}}});
  RunSet next = made_up_set({{"run", {1000, 1001, 999}}}, 60);
  for (RunSet* set : {&base, &next}) {
    for (SetRun& run : set->arms[0].runs) run.run.window.value->steps = 100;
  }
  for (SetRun& run : base.arms[0].runs) {
    run.run.ranks[0].step_time.value->relative_standard_error = .002;
  }
  const Comparison comparison = compare(base, next, options);
  EXPECT_GT(row_of(comparison, "throughput_images_per_second").base_side.spread->within, 0);
  EXPECT_EQ(row_of(comparison, "set_up_seconds").base_side.spread->within, 0);
  EXPECT_EQ(row_of(comparison, "p99_step_seconds").base_side.spread->within, 0);
}

TEST(ComparedMetrics, OfAStepAreNotThoseOfAnotherBatch) {
  for (const char* field : {"batch", "accumulate"}) {
    Report larger = made_up_report({{"run", {1000, 1001, 999}}}, 60);
    RunConfig& config = larger.invocation.config;
    (field == std::string("batch") ? config.batch.value() : config.accumulate) *= 2;
    config.learning_rate = 2 * *config.learning_rate;
    CompareOptions options;
    options.allow_differ = {field};
    options.metrics = {throughput_of_runs, "p95_step_seconds"};
    const RunSet base = made_up_set({{"run", {1000, 1001, 999}}}), next = set_of(larger);
    const Comparison named = compare(base, next, options);
    EXPECT_EQ(row_of(named, "throughput_images_per_second").verdict, Verdict::equivalent)
        << field << " brings its learning rate";
    EXPECT_EQ(row_of(named, "p95_step_seconds").reason, "a step of another batch has other work");
    options.metrics = {all_of_runs};
    for (const ComparisonRow& row : compare(base, next, options).rows) {
      EXPECT_EQ(row.metric.find("step"), std::string::npos) << row.metric;
    }
  }
}

}  // namespace
}  // namespace nearmetal
