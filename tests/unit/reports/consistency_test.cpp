#include "reports/json/consistency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/errors.h"
#include "reports/json/json_writer.h"
#include "tests/support/sample_report.h"

namespace nearmetal {
namespace {

using json::Json;
using testing::HasSubstr;
using testing::StartsWith;

std::string contradiction_of(const std::string& text) {
  try {
    consistent_report_from_json(text);
  } catch (const InvalidReport& error) {
    EXPECT_THAT(error.what(), StartsWith("it contradicts itself: /"));
    return error.what();
  }
  return "";
}

std::string contradiction_with(const std::string& pointer, const Json& value) {
  Json document = Json::parse(to_json(sample_report()));
  document[Json::json_pointer(pointer)] = value;
  return contradiction_of(document.dump());
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
      std::pair(std::string("/invocation/config_sha256"), Json(std::string(64, 'a')))};
  for (const auto& [place, value] : places) {
    EXPECT_NE(contradiction_with(place, value), "") << place;
  }
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

}  // namespace
}  // namespace nearmetal
