#include "reports/json/consistency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/errors.h"
#include "reports/json/json_writer.h"
#include "reports/merge/merge.h"
#include "tests/support/made_up_runs.h"

namespace nearmetal {
namespace {

using json::Json;
using testing::HasSubstr;

std::string contradiction_of(const std::string& text) {
  try {
    consistent_report_from_json(text);
  } catch (const InvalidReport& error) {
    EXPECT_THAT(error.what(), testing::StartsWith("it contradicts itself: /"));
    return error.what();
  }
  return "";
}

std::string contradiction_with(const std::string& pointer, const Json& value) {
  Json document = Json::parse(to_json(sample_report()));
  document[Json::json_pointer(pointer)] = value;
  return contradiction_of(document.dump());
}

TEST(Consistency, TheExitCodeIsOneOfTheStatus) {
  const auto refusal = [](Status status, ExitCode code) {
    Report report = sample_report();
    report.status = status;
    report.exit_code = static_cast<int>(code);
    return contradiction_of(to_json(report));
  };
  using enum ExitCode;
  EXPECT_EQ(refusal(Status::partial, ok),
            "it contradicts itself: /exit_code is 0, but the status is partial");
  EXPECT_NE(refusal(Status::failed, ok), "");
  for (const ExitCode code : {usage, run_failed, timed_out, not_as_expected}) {
    EXPECT_NE(refusal(Status::complete, code), "");
    EXPECT_EQ(refusal(Status::failed, code), "");
  }
  for (const ExitCode code : {output_failed, hung_up, interrupted, terminated}) {
    EXPECT_EQ(refusal(Status::complete, code), "") << "of a sweep whose last run was through";
    EXPECT_EQ(refusal(Status::partial, code), "");
  }
}

TEST(Consistency, FiguresFollowFromWhatTheyAreOf) {
  EXPECT_EQ(contradiction_of(to_json(sample_report())), "");
  const std::string run = "/arms/0/runs/0", rank = run + "/ranks/0", time = rank + "/step_time";
  const Json two = Json::array({0.5, 0.1, 0.1, 3});
  const auto places = {
      std::pair(run + "/throughput_images_per_second", Json(1300)),
      std::pair(run + "/flops_per_second", Json(3e13)),
      std::pair(run + "/share_of_peak", Json(0.04)),
      std::pair(run + "/window/seconds", Json(0.41)),
      std::pair(run + "/window/images", Json(513)),
      std::pair(run + "/window/steps", Json(3)),
      std::pair(run + "/window/first_step", Json(9007199254740991)),
      std::pair(time + "/median_seconds", Json(0.21)),
      std::pair(time + "/p95_seconds", Json(0.28)),
      std::pair(time + "/p99_seconds", Json(0.3)),
      std::pair(time + "/jitter_seconds", Json(0.15)),
      std::pair(rank + "/plans_sha256", Json(std::string(64, 'a'))),
      std::pair(rank + "/monitoring/series/0/mean", Json(702)),
      std::pair(rank + "/set_up/total_seconds", Json(2.8)),
      std::pair(time + "/drift", Json(0.9)),
      std::pair(run + "/profile/sum_seconds", Json(2e-3)),
      std::pair(run + "/profile/share_of_roofline", Json(4.6e-4)),
      std::pair(std::string("/invocation/config_sha256"), Json(std::string(64, 'a')))};
  for (const auto& [place, value] : places) {
    EXPECT_NE(contradiction_with(place, value), "") << place;
  }
  const std::string per_joule = rank + "/monitoring/images_per_joule";
  EXPECT_EQ(contradiction_with(per_joule, 512 / 130.0), "");
  EXPECT_NE(contradiction_with(per_joule, 2 * 512 / 130.0), "");
  EXPECT_THAT(contradiction_with(rank + "/environment", 9),
              HasSubstr("the report has 1 environment"));
  EXPECT_THAT(contradiction_with(rank + "/gpu", 3), HasSubstr("the report has 1 GPU"));
  EXPECT_THAT(contradiction_with(rank + "/step_seconds", two), HasSubstr("/window/seconds is 0.4"));
  EXPECT_EQ(contradiction_with(run + "/throughput_images_per_second", 1300),
            "it contradicts itself: /arms/0/runs/0/throughput_images_per_second is 1300, but the "
            "window's samples / its seconds are 1280");
}

TEST(Consistency, DigitsThatWereNotWrittenAreNoContradiction) {
  EXPECT_EQ(contradiction_with("/arms/0/runs/0/window/seconds", 0.40002), "");
  EXPECT_EQ(contradiction_with("/arms/0/runs/0/throughput_images_per_second", 1279.8), "");
  Json earlier = Json::parse(to_json(sample_report()));
  earlier["invocation"]["config"]["attribute"]["value"] = true;
  EXPECT_EQ(contradiction_of(earlier.dump()), "") << "decides nothing of the work";
}

TEST(Consistency, RanksThatAreNotInStepHaveWindowsOfTheirOwn) {
  Report report = sample_report();
  nearmetal::Run& run = report.arms[0].runs[0];
  run.world_size = 2;
  run.pipeline.reset();
  run.ranks.push_back(run.ranks[0]);
  run.ranks[1].step_seconds = {0.2, 0.2, 0.2, 0.2, 0.2};
  run.throughput = 2600;
  EXPECT_EQ(contradiction_of(to_json(report)), "");
  run.ranks[0].step_time.value->median_seconds = 0.3;
  EXPECT_NE(contradiction_of(to_json(report)), "") << "of the first rank it is known";
}

TEST(Consistency, SpeedupsFollowFromTheRunsOfBothArms) {
  Report report = made_up_report({{"1x1x1", {1000, 1002}}, {"1x1x2", {1800, 1810}}});
  for (Arm& arm : report.arms) {
    for (auto& run : arm.runs) {
      run.pipeline.reset();
      run.world_size = arm.name == "1x1x1" ? 1 : 2;
      run.ranks[0].step_time = Unknown{"not told"};
      run.window = Unknown{"not told"};
    }
  }
  const double ratio = std::sqrt(1800. * 1810) / std::sqrt(1000. * 1002);
  ArmSpeedup& speedup = report.arms[1].speedup.emplace();
  speedup = {.against = "1x1x1", .ranks = 2, .speedup = ratio, .efficiency = ratio / 2};
  EXPECT_NO_THROW(require_consistent_runs(report));
  const auto refused = [&](const char* place) {
    EXPECT_THAT([&] { require_consistent_runs(report); },
                testing::ThrowsMessage<InvalidReport>(HasSubstr(place)));
  };
  speedup.efficiency *= 1.01;
  refused("/arms/1/speedup/efficiency is");
  speedup.speedup *= 2;
  refused("/arms/1/speedup/speedup is 3.60");
  // Of two sessions the mean is that of their means, and earlier that of all runs.
  report.arms[1].runs.push_back(report.arms[1].runs[0]);
  report.arms[1].runs[2].started_at = "2026-02-01T00:00:00Z";
  for (const double of_arm :
       {std::sqrt(std::sqrt(1800. * 1810) * 1800), std::cbrt(1800. * 1810 * 1800)}) {
    speedup.speedup = of_arm / std::sqrt(1000. * 1002);
    speedup.efficiency = speedup.speedup / 2;
    EXPECT_NO_THROW(require_consistent_runs(report));
  }
}

TEST(Consistency, RatesOfLinksFollowFromBytesAndSeconds) {
  Report report = sample_report();
  nearmetal::Run& run = report.arms[0].runs[0];
  run.pipeline.reset();
  run.world_size = 4;
  run.ranks.assign(4, run.ranks[0]);
  run.window.value->samples *= 4;
  set_throughput(throughput_of(*run.window), run);
  Communication& communication = run.communication.emplace();
  communication.buckets = {{1000, 1e-6, 1.5e9, {}}, {4000, 2e-6, 3e9, {}}};
  communication.bytes_per_step = 5000;
  communication.buckets_seconds = 3e-6;
  communication.best_bus_bandwidth_bytes_per_second = 3e9;
  communication.least_seconds_per_step = 1.5 * 5000 / 3e9;
  EXPECT_EQ(contradiction_of(to_json(report)), "");
  const std::string place = "/arms/0/runs/0/communication/";
  for (const auto& [key, value] :
       {std::pair("buckets/1/bus_bandwidth_bytes_per_second", Json(6e9)),
        std::pair("bytes_per_step", Json(10000)), std::pair("buckets_seconds", Json(6e-6)),
        std::pair("best_bus_bandwidth_bytes_per_second", Json(6e9)),
        std::pair("least_seconds_per_step", Json(5e-6))}) {
    Json document = Json::parse(to_json(report));
    document[Json::json_pointer(place + key)] = value;
    EXPECT_THAT(contradiction_of(document.dump()), HasSubstr(place + key));
  }
}

// A job of two ranks of one step each 0.1 s, whose window begins so long after that of the first.
Report job_of(int64_t pipeline, double start_seconds) {
  Report report = sample_report();
  report.invocation.config.pipeline = pipeline;
  report.invocation.config.batch = 10;
  nearmetal::Run& run = report.arms[0].runs[0];
  run.world_size = 2;
  run.window = TimedWindow{.first_step = 0, .steps = 10, .samples = 100, .seconds = 1};
  run.ranks[0].step_seconds.assign(10, 0.1);
  run.ranks[0].window_start_unix_seconds = 1e9 + start_seconds;
  run.ranks.push_back(run.ranks[0]);
  run.ranks[1].rank = 1;
  return report;
}

TEST(Consistency, RanksWithUpdatesOfTheirOwnCountInTheirOwnWindows) {
  std::vector<Report> jobs(2, job_of(1, 0));
  for (Report& job : jobs) {
    nearmetal::Run& run = job.arms[0].runs[0];
    job.invocation.config.update = Update::independent;
    job.invocation.config_sha256 = config_sha256(job.invocation.config);
    run.communication.reset();
    run.ranks[0].window_first_step = 0;
    run.ranks[1].window_first_step = 40;  // it warmed up for longer, by faster steps
    run.ranks[1].step_seconds.assign(60, 0.05);
    for (Rank& rank : run.ranks) rank.step_time = Unknown{"not told"};
  }
  Report report = jobs[0];
  report.arms[0].runs = {merge_jobs(jobs, false).first};
  nearmetal::Run& run = report.arms[0].runs[0];
  EXPECT_NEAR(run.window->seconds, 1, 1e-6);
  EXPECT_NEAR(run.jobs[0].throughput, 10 * 10 + 20 * 10, 1e-3);
  EXPECT_NO_THROW(require_consistent_runs(report));
  run.jobs[1].throughput *= 2;
  EXPECT_THAT([&] { require_consistent_runs(report); },
              testing::ThrowsMessage<InvalidReport>(HasSubstr("/jobs/1/")));
}

TEST(Consistency, JobsAtOnceCountTheSamplesOfAReplicaOnce) {
  for (const int64_t pipeline : {1, 2}) {
    auto [run, environments] = merge_jobs({job_of(pipeline, 0), job_of(pipeline, 0.5)}, false);
    const double of_a_job = 2.0 / static_cast<double>(pipeline) * 100;
    EXPECT_NEAR(run.jobs[0].throughput, of_a_job, 1e-3);
    EXPECT_NEAR(*run.throughput, 2 * of_a_job, 1e-3);
    EXPECT_NEAR(run.window->seconds, 0.5, 1e-6) << "as long as both ran";
    Report report = job_of(pipeline, 0);
    report.invocation.config_sha256 = config_sha256(report.invocation.config);
    report.arms[0].runs = {run};
    for (Rank& rank : report.arms[0].runs[0].ranks) rank.step_time = Unknown{"not told"};
    EXPECT_NO_THROW(require_consistent_runs(report));
    report.arms[0].runs[0].jobs[1].throughput *= 2;
    EXPECT_THAT([&] { require_consistent_runs(report); },
                testing::ThrowsMessage<InvalidReport>(HasSubstr("/jobs/1/")));
    nearmetal::Run& told = report.arms[0].runs[0];
    told.jobs[0].first_step.reset();
    EXPECT_THAT([&] { require_consistent_runs(report); },
                testing::ThrowsMessage<InvalidReport>(HasSubstr("/jain_fairness")));
    told.jain_fairness.reset();
    EXPECT_THAT([&] { require_consistent_runs(report); },
                testing::ThrowsMessage<InvalidReport>(HasSubstr("its jobs add up to")));
    told.jobs[0].throughput = 0.25 * told.jobs[1].throughput;
    told.jobs[1].throughput *= 0.75;
    EXPECT_NO_THROW(require_consistent_runs(report)) << "where its windows are is not told";
    told.jobs[0].first_step = 0;
    told.jobs[0].ranks = std::numeric_limits<int64_t>::max();
    EXPECT_NO_THROW(require_consistent_runs(report)) << "nor which ranks are whose";
    told.jobs[0].ranks = 2;
    report.schema_version = "1.13";
    EXPECT_NO_THROW(require_consistent_runs(report)) << "these are believed";
  }
}

}  // namespace
}  // namespace nearmetal
