#include "reports/forecast/forecast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iostream>

#include "base/errors.h"
#include "base/text.h"
#include "bench/cli/process.h"
#include "reports/forecast/step_time.h"
#include "reports/formats/forecast_text.h"
#include "reports/imports/published.h"
#include "reports/json/json.h"
#include "reports/statistics/statistics.h"
#include "tests/support/made_up_runs.h"
#include "tests/support/refusal.h"

namespace nearmetal {
namespace {

using testing::HasSubstr;

constexpr Link link_of_10_gb{.bytes_per_second = 1e10, .latency_seconds = 1e-5};

// 10 ms of computation, and 100 MB that is sent in four buckets.
SimulatedJob job_of(double ready, const Link& inside = link_of_10_gb) {
  SimulatedJob job{.compute_seconds = 0.01, .inside = inside, .per_host = 1 << 20};
  for (int i = 1; i <= 4; ++i) job.buckets.push_back({25e6, ready * i / 4});
  return job;
}

double step_of(const SimulatedJob& job, int64_t ranks) {
  return mean_step_seconds(job, ranks, 50, 1);
}

void expect_close(double found, double closed_form) {
  EXPECT_NEAR(found / closed_form, 1, 1e-3) << found << " | " << closed_form;
}

TEST(StepSimulation, SumsByRingsAndTrees) {
  const Link& link = link_of_10_gb;
  expect_close(ring_seconds(25e6, 8, link), 14 * 1e-5 + 2 * 7.0 / 8 * 25e6 / 1e10);
  expect_close(tree_seconds(25e6, 8, link), 6 * 1e-5 + 2 * 25e6 / 1e10);
  EXPECT_EQ(ring_seconds(25e6, 1, link), 0);
  const SimulatedJob job = job_of(1);
  EXPECT_EQ(sum_seconds(job, 25e6, 8), ring_seconds(25e6, 8, link)) << "few ranks: a ring";
  EXPECT_EQ(sum_seconds(job, 1e3, 4096), tree_seconds(1e3, 4096, link)) << "short messages: a tree";
}

TEST(StepSimulation, SumsInsideHostsAndBetweenThem) {
  SimulatedJob job = job_of(1);
  job.per_host = 8;
  job.between = {.bytes_per_second = 5e10, .latency_seconds = 3e-6};
  expect_close(sum_seconds(job, 25e6, 64),
               ring_seconds(25e6, 8, job.inside) + ring_seconds(25e6, 8, job.between));
}

TEST(StepSimulation, WithoutOverlapAddsUp) {
  SimulatedJob job = job_of(1);
  for (SentBucket& bucket : job.buckets) bucket.ready = 1;
  for (const int64_t ranks : {2, 8, 100}) {
    expect_close(step_of(job, ranks), 0.01 + 4 * sum_seconds(job, 25e6, ranks));
  }
  EXPECT_DOUBLE_EQ(step_of(job, 1), 0.01) << "one rank sums nothing";
}

TEST(StepSimulation, WhatComputationHidesCostsNothing) {
  SimulatedJob job = job_of(0.5, {1e11, 0});
  job.buckets.push_back({0, 1});  // the last gradient
  expect_close(step_of(job, 8), 0.01);
}

TEST(StepSimulation, TheLastBucketIsExposed) {
  const SimulatedJob job = job_of(1, {1e11, 0});  // a sum takes less than until the next is ready
  expect_close(step_of(job, 8), 0.01 + ring_seconds(25e6, 8, job.inside));
}

TEST(StepSimulation, SlowLinksAreBusyFromTheFirstBucketOn) {
  const SimulatedJob job = job_of(1, {1e9, 0});
  expect_close(step_of(job, 8), 0.01 / 4 + 4 * ring_seconds(25e6, 8, job.inside));
}

TEST(StepSimulation, ComputationIsSlowerBesideSums) {
  SimulatedJob job = job_of(0.5, {1e11, 0});
  job.buckets.push_back({0, 1});
  job.slowing = 0.5;
  // Each sum takes less than until the next bucket is ready, and 1 / 1.5 of it is computed.
  const double sum = ring_seconds(25e6, 8, job.inside);
  expect_close(step_of(job, 8), 0.01 + 4 * sum * (1 - 1 / 1.5));
}

TEST(StepSimulation, OnlyTheLastMicroBatchExchanges) {
  SimulatedJob job = job_of(1);
  for (SentBucket& bucket : job.buckets) bucket.ready = 1;
  job.accumulate = 8;
  expect_close(step_of(job, 8), 8 * 0.01 + 4 * sum_seconds(job, 25e6, 8));
}

TEST(StepSimulation, TheSlowestOfManyRanksCounts) {
  SimulatedJob job = job_of(1, {1e15, 0});
  job.speeds = {0.9, 1, 1.1};
  expect_close(step_of(job, 1000), 0.011);
  job.speeds = {1};
  job.jitter.assign(99, 1);
  job.jitter.push_back(1.5);
  expect_close(step_of(job, 4096), 0.015);
  const double of_two = mean_step_seconds(job, 2, 20'000, 1);
  EXPECT_NEAR(of_two, 0.01 * (1 + 0.5 * (1 - 0.99 * 0.99)), 2e-5) << "1 - 0.99^2 steps are long";
}

// Seconds of a step of a rank and bucket, the least of five.
double simulation_cost(int64_t ranks, int buckets) {
  SimulatedJob job = job_of(1);
  job.slowing = 0.1;
  job.buckets.assign(static_cast<size_t>(buckets), {1e6, 0.9});
  constexpr int64_t steps = 4;
  double least = INFINITY;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    mean_step_seconds(job, ranks, steps, 1);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    least = std::min(least, seconds.count() / static_cast<double>(steps * ranks * buckets));
  }
  return least;
}

TEST(StepSimulation, TakesTimeInProportionToRanksAndBuckets) {
  const double few = simulation_cost(64, 8);
  std::cout << "ns of a rank and bucket: " << 1e9 * few;
  for (const auto& [ranks, buckets] : {std::pair(1024, 8), {16'384, 8}, {1024, 64}}) {
    const double cost = simulation_cost(ranks, buckets);
    std::cout << ", " << ranks << " x " << buckets << ": " << 1e9 * cost;
    EXPECT_LT(cost, 8 * few) << ranks << " " << buckets;
  }
  std::cout << "\n";
}

TEST(StepSimulation, IsTheSameEachTime) {
  SimulatedJob job = job_of(1);
  job.jitter = {0.9, 1, 1.1};
  EXPECT_EQ(mean_step_seconds(job, 64, 10, 1), mean_step_seconds(job, 64, 10, 1));
}

constexpr double usual_cost = 0.07;

// Seconds that runs take.
std::vector<double> runs_at(const Growth& growth, int64_t ranks) {
  return transformed(growth.at({.ranks = ranks}),
                     [](const Possibility& one) { return total_seconds(one.seconds) * one.noise; });
}

TEST(Growth, FindsALawThatManySizesShow) {
  for (const bool ring : {true, false}) {
    const auto seconds = [&](double n) {
      return 1 + 0.1 * (ring ? 2 * (n - 1) / n : std::log2(n));
    };
    std::vector<StepPoint> points;
    for (const int64_t ranks : {1, 2, 4, 8, 16, 32}) {
      points.push_back({{.ranks = ranks}, seconds(static_cast<double>(ranks))});
    }
    const Growth growth(points, {{}}, 0.002, usual_cost);
    EXPECT_NEAR(median(runs_at(growth, 64)) / seconds(64), 1, 0.01) << ring;
  }
}

TEST(Growth, ItsBandWidensWithTheDistance) {
  const Growth growth({{{.ranks = 1}, 1}, {{.ranks = 2}, 1.05}}, {{}}, 0.01, usual_cost);
  double before = 0;
  for (const int64_t ranks : {2, 8, 64, 4096}) {
    const std::vector<double> runs = runs_at(growth, ranks);
    const double width = (quantile(runs, 0.95) - quantile(runs, 0.05)) / median(runs);
    EXPECT_GT(width, before) << ranks;
    before = width;
  }
}

TEST(Growth, ReproducesLargeCostsThatWereMeasured) {
  const Growth growth({{{.ranks = 1}, 1}, {{.ranks = 2}, 2}}, {{}}, 0.01, usual_cost);
  EXPECT_NEAR(median(runs_at(growth, 2)), 2, 0.1);
}

ForecastBasis basis_of(const RunSet& set, const ForecastRequest& request) {
  return forecast_of({set}, request).report.forecasts.at(0);
}

ForecastPoint point_of(const RunSet& set, const ForecastRequest& request) {
  return *forecast_of({set}, request).report.arms.at(0).forecast;
}

// Published series: sizes, and whether each rank has the same batch.
struct Series {
  const char* file;
  int64_t per_host;
  PublishedSide side;
  bool same_batch;
};
constexpr Series all_series[] = {
    {"four_nodes.json", 1, PublishedSide::vm, true},
    {"scaling/xe8545_a100.json", 4, PublishedSide::bare_metal, true},
    {"scaling/efficientnet_b4_a100.json", 8, PublishedSide::bare_metal, true},
    {"scaling/bert_large_a100.json", 8, PublishedSide::bare_metal, true},
    {"scaling/nemo_bert_4b_a100.json", 8, PublishedSide::bare_metal, false},
    {"scaling/xe8545_a100_batches.json", 4, PublishedSide::bare_metal, false},
    {"scaling/r750xa_a100.json", 4, PublishedSide::bare_metal, false},
    {"scaling/dgx_a100.json", 8, PublishedSide::bare_metal, false},
    {"scaling/dgx_h100.json", 8, PublishedSide::bare_metal, false},
    {"scaling/eos_h100.json", 8, PublishedSide::bare_metal, false}};

RunSet published(const Series& series) {
  const std::filesystem::path folder = std::filesystem::path(NM_TESTS_FOLDER) / "data/published";
  Report report = published_report({.format = ImportFormat::pairs,
                                    .files = {(folder / series.file).string()},
                                    .side = series.side});
  report.tool = build_info();
  return set_of(report);
}

// Each size as the smaller ones forecast it: of all points whose bands are counted, those of the
// same batch by two sizes or more have a bound of their error.
TEST(Forecast, PublishedSizesHeldOut) {
  std::vector<double> errors;
  int within = 0, all = 0;
  for (const Series& series : all_series) {
    const RunSet set = published(series);
    for (size_t known = 1; known < set.arms.size(); ++known) {
      for (size_t target = known; target < set.arms.size(); ++target) {
        RunSet part;
        part.arms.assign(set.arms.begin(), set.arms.begin() + static_cast<ptrdiff_t>(known));
        part.arms.push_back(set.arms[target]);
        const HoldOut held =
            basis_of(part, {.ranks = {1}, .per_host = series.per_host}).hold_outs.at(0);
        within += held.rate.holds(held.measured) ? 1 : 0;
        ++all;
        if (series.same_batch && known > 1) errors.push_back(std::abs(held.error()));
      }
    }
  }
  std::ranges::sort(errors);
  EXPECT_LE(errors[errors.size() / 2], 0.02);
  EXPECT_LE(errors.back(), 0.04);
  EXPECT_GE(within, std::ceil(0.9 * all)) << all;
}

// Reports as a sweep would write them, with two buckets whose sums take 0.2 ms in all.
Report made_up_sweep(const std::vector<std::pair<int64_t, std::vector<double>>>& sizes) {
  Report report = made_up_report({});
  int minute = 0;
  for (const auto& [ranks, throughputs] : sizes) {
    Arm& arm = report.arms.emplace_back();
    arm.name = "1x1x" + std::to_string(ranks);
    for (const double throughput : throughputs) {
      Run run = made_up_run(throughput, time_at(minute++));
      run.pipeline.reset();
      run.world_size = ranks;
      for (int64_t i = 1; i < ranks; ++i) {
        run.ranks.push_back(run.ranks[0]);
        run.ranks.back().rank = i;
      }
      if (ranks > 1) {
        const auto factor = 2 * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
        Communication& communication = run.communication.emplace();
        communication.library = "nccl 2.28.3";
        communication.bytes_per_step = 51'000'000;
        for (const double bytes : {50e6, 1e6}) {
          const double seconds = 2e-5 * static_cast<double>(ranks - 1) + factor * bytes / 3e11;
          communication.buckets.push_back(
              {static_cast<int64_t>(bytes), seconds, factor * bytes / seconds, Precision::fp16});
        }
      }
      arm.runs.push_back(std::move(run));
    }
  }
  return report;
}

RunSet set_of_sweep(const std::vector<std::pair<int64_t, std::vector<double>>>& sizes) {
  RunSet set;
  add_runs(set, made_up_sweep(sizes), "made up", true);
  return set;
}

// A test of arithmetic: reports are made up around the throughputs of docs/notes/scaling.md, four
// H200s at batch 256 and 64, fp16, with NCCL and through the host.
TEST(Forecast, FourGpusByOneAndTwo) {
  for (const auto& [one, two, four] :
       {std::array{11457.0, 22148.0, 43942.0}, std::array{11448.0, 22585.0, 44892.0},
        std::array{9076.0, 17776.0, 35289.0}, std::array{10989.0, 21672.0, 43199.0}}) {
    const ForecastBasis basis =
        basis_of(set_of_sweep({{1, {one}}, {2, {two}}, {4, {four}}}), {.ranks = {4}});
    const HoldOut& held = basis.hold_outs.at(0);
    EXPECT_TRUE(basis.has_exchange);
    EXPECT_EQ(held.arm, "1x1x4");
    EXPECT_LT(std::abs(held.error()), 0.01) << four;
    EXPECT_TRUE(held.rate.holds(four));
  }
}

const RunSet& two_sizes() {
  static const RunSet set = set_of_sweep({{1, {1000, 1002, 998}}, {2, {1960, 1963, 1957}}});
  return set;
}

ForecastRequest request_of(std::vector<int64_t> ranks) {
  return {.ranks = std::move(ranks), .per_host = 8, .network = Link{5e10, 3e-6}};
}

TEST(Forecast, TellsWhatASlowNetworkCosts) {
  const RunSet set = set_of_sweep({{1, {1000, 1001, 999}}, {2, {1997, 1999, 1998}}});
  ForecastRequest request = request_of({64});
  const ForecastPoint fast = point_of(set, request);
  request.network = Link{1.25e8, 3e-6};
  const ForecastPoint slow = point_of(set, request);
  EXPECT_EQ(fast.hosts, 8);
  EXPECT_LT(slow.rate.median, 0.7 * fast.rate.median);
  EXPECT_EQ(slow.dominant, "bytes of sums");
  ASSERT_TRUE(fast.enough_bits_per_second);
  EXPECT_GT(*fast.enough_bits_per_second, 1e9);
  EXPECT_LT(*fast.enough_bits_per_second, 4e11);
  request.network = Link{*fast.enough_bits_per_second / 8, 3e-6};
  EXPECT_NEAR(point_of(set, request).efficiency, 0.95, 0.02);
  double sum = 0;
  for (const ForecastTerm& term : slow.terms) sum += term.seconds;
  EXPECT_NEAR(64 * 256 / slow.rate.median / sum, 1, 0.05) << "the terms add up to a step";
}

TEST(Forecast, SumsOfSeveralHostsAloneTellTheirNetwork) {
  for (const int64_t per_host : {1, 4}) {
    RunSet set = set_of_sweep({{1, {1000, 1001, 999}}, {8, {7900, 7905, 7910}}});
    for (SetRun& run : set.arms[1].runs) {
      for (Rank& rank : run.run.ranks) rank.environment = rank.rank / per_host;
    }
    const ForecastPoint point = point_of(set, {.ranks = {16}, .per_host = 4});
    EXPECT_EQ(point.hosts, 4);
    EXPECT_NEAR(point.rate.median, 15'600, 400) << per_host;
    EXPECT_TRUE(point.rate.holds(point.rate.median)) << per_host;
  }
}

TEST(Forecast, MicroBatchesAndTypesOfGradientsChangeTheExchange) {
  ForecastRequest request = request_of({64});
  request.network = Link{5e8, 3e-6};
  const auto median = [&] { return point_of(two_sizes(), request).rate.median; };
  const double plain = median();
  request.accumulate = 8;
  EXPECT_GT(median(), 1.2 * plain);
  request.accumulate.reset();
  request.gradient_type = GradientType::fp32;
  EXPECT_LT(median(), 0.8 * plain);
  request.gradient_type = GradientType::fp16;
  EXPECT_EQ(median(), plain);
}

TEST(Forecast, RefusesWhatTheRunsDoNotTell) {
  const auto refused = [](const RunSet& set, const ForecastRequest& request) {
    return refusal_of([&] { basis_of(set, request); });
  };
  EXPECT_THAT(refused(set_of_sweep({{2, {1960}}}), {.ranks = {4}}),
              HasSubstr("needs two numbers of ranks"));
  EXPECT_THAT(refused(two_sizes(), {.ranks = {64}}), HasSubstr("give --network"));
  EXPECT_THAT(refused(two_sizes(), {.ranks = {2}, .batch = 64}),
              HasSubstr("all sizes have batch 256"));
  const RunSet throughputs = published(all_series[0]);
  EXPECT_THAT(refused(throughputs, request_of({8})), HasSubstr("throughput alone"));
  EXPECT_THAT(refused(throughputs, {.ranks = {8}, .gradient_type = GradientType::fp32}),
              HasSubstr("throughput alone"));
  EXPECT_THAT(refused(throughputs, {.ranks = {8}, .accumulate = 2}), HasSubstr("micro-batches"));
  EXPECT_THAT(refused(throughputs, {.ranks = {8}, .batch = 64}), HasSubstr("batch 1024"));
  RunSet without_type = two_sizes();
  for (SetRun& run : without_type.arms[1].runs) run.run.communication->buckets[0].type.reset();
  EXPECT_THAT(refused(without_type, {.ranks = {2}, .gradient_type = GradientType::fp32}),
              HasSubstr("type of gradients"));
}

TEST(Forecast, LeavesOutWhatIsNoDataParallelTraining) {
  RunSet set = two_sizes();
  for (SetRun& run : set.arms[1].runs) run.run.pipeline.emplace();
  EXPECT_THAT(refusal_of([&] { basis_of(set, {.ranks = {2}}); }), HasSubstr("1x1x1 (1 rank"));
}

TEST(Forecast, SumsThatTookNoTimeTellNothing) {
  RunSet set = two_sizes();
  for (SetRun& run : set.arms[1].runs) run.run.communication->buckets[1].seconds = 0;
  EXPECT_FALSE(basis_of(set, {.ranks = {2}}).has_exchange);
  set = two_sizes();
  for (RunArm& arm : set.arms) {
    for (SetRun& run : arm.runs) run.run.ranks.clear();  // of a report that does not tell hosts
  }
  const ForecastPoint point = point_of(set, {.ranks = {4}});
  EXPECT_FALSE(point.hosts);
  EXPECT_GT(point.rate.median, 3500);
}

TEST(Forecast, IsTheSameEachTime) {
  const auto text = [] { return to_json(forecast_of({two_sizes()}, request_of({8, 64})).report); };
  EXPECT_EQ(text(), text());
}

TEST(Forecast, OfThousandsOfRanksTakesSeconds) {
  const auto start = std::chrono::steady_clock::now();
  basis_of(two_sizes(), request_of({4096}));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_LT(seconds.count(), 10);
}

TEST(Forecast, SaysFromWhichSizeOnAVmLosesMuch) {
  const RunSet vm = set_of_sweep({{1, {990, 991, 989}}, {2, {1880, 1882, 1878}}});
  const Forecast pair = forecast_of({two_sizes(), vm}, request_of({64}));
  EXPECT_FALSE(pair.report.arms.at(0).forecast->loss);
  ASSERT_TRUE(pair.report.arms.at(1).forecast->loss);
  ASSERT_TRUE(pair.large_loss);
  EXPECT_GT(pair.large_loss->first, 2) << "1 % of one and 4.1 % of two ranks";
  EXPECT_LT(pair.large_loss->first, 32);
  const Forecast same = forecast_of({two_sizes(), two_sizes()}, {.ranks = {2}});
  EXPECT_FALSE(same.large_loss);
  EXPECT_NEAR(same.report.arms.at(1).forecast->loss->median, 0, 1e-3);
  EXPECT_THAT(forecast_page(pair).headlines.back(), HasSubstr("the VM loses 5 % or more from "));
}

Report sample_forecast() {
  Report report = forecast_of({two_sizes()}, request_of({2, 64})).report;
  report.tool = build_info();
  report.invocation.started_at = "2026-01-31T12:00:00Z";
  return report;
}

TEST(Forecast, IsAReportOfItsOwnKind) {
  const Report report = sample_forecast();
  const std::string text = to_json(report);
  EXPECT_EQ(to_json(consistent_report_from_json(text)), text);
  RunSet set;
  EXPECT_THAT(refusal_of<HoldsForecasts>([&] { add_runs(set, report, "f.json"); }),
              HasSubstr("f.json holds forecasts"));
  const auto refused = [&](const auto& change) {
    Report changed = report;
    change(changed);
    return refusal_of<InvalidReport>([&] { consistent_report_from_json(to_json(changed)); });
  };
  EXPECT_THAT(refused([](Report& r) { r.kind = Kind::measured; }), HasSubstr("must be"));
  EXPECT_THAT(refused([](Report& r) { r.arms[0].kind = Kind::measured; }),
              HasSubstr("/arms/0/kind"));
  EXPECT_THAT(refused([](Report& r) { r.arms[0].forecast.reset(); }),
              HasSubstr("/arms/0/forecast"));
  EXPECT_THAT(refused([](Report& r) { r.forecasts.clear(); }), HasSubstr("/forecasts"));
  EXPECT_THAT(refused([](Report& r) { r.arms[1].forecast->basis = 1; }), HasSubstr("no index"));
  EXPECT_THAT(refused([](Report& r) { r.arms[1].forecast->rate.band.upper = 1; }),
              HasSubstr("outside its band"));
  Report measured = made_up_sweep({{1, {1000}}});
  measured.arms[0].forecast = report.arms[0].forecast;
  EXPECT_THAT(refusal_of<InvalidReport>([&] { report_from_json(to_json(measured)); }),
              HasSubstr("/arms/0/forecast"));
}

TEST(Forecast, IsCheckedAgainstWhatWasMeasuredLater) {
  const Report report = sample_forecast();
  const std::vector<HoldOut> checks = check_forecast(report, two_sizes(), {});
  ASSERT_EQ(checks.size(), 1u) << "one rank was not forecast, and 64 were not measured";
  EXPECT_EQ(checks[0].arm, "1x1x2");
  EXPECT_LT(std::abs(checks[0].error()), 0.02);
  EXPECT_THAT(forecast_check_page(checks, SampleUnit::image).headlines.at(0),
              HasSubstr("1 of 1 measured size within"));
  const auto refused = [&](const RunSet& set) {
    return refusal_of<NotComparable>([&] { check_forecast(report, set, {}); });
  };
  EXPECT_THAT(refused(set_of_sweep({{4, {4000}}})), HasSubstr("with so many ranks"));
  Report other = made_up_sweep({{2, {2000}}});
  other.invocation.config.batch = 64;
  RunSet set;
  add_runs(set, other, "other");
  EXPECT_THAT(refused(set), HasSubstr("batch: 256 | 64"));
  EXPECT_EQ(check_forecast(report, set, {"batch", "learning_rate"}).size(), 1u);
}

TEST(Forecast, PrintsItsErrorFirst) {
  TextStream text;
  print_text(text, forecast_page(forecast_of({two_sizes()}, request_of({64}))));
  EXPECT_TRUE(text.str().starts_with("error ")) << text.str();
  EXPECT_THAT(text.str(), HasSubstr("at '1x1x2', held out"));
}

}  // namespace
}  // namespace nearmetal
