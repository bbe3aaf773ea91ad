// Surveys of fleets that are made up: who is named, by which runs, and why.
#include "reports/survey/survey.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/errors.h"
#include "reports/formats/survey_text.h"
#include "reports/json/json.h"
#include "reports/json/survey_fields.h"
#include "tests/support/sample_report.h"

namespace nearmetal {
namespace {

using testing::Contains;
using testing::Field;
using testing::HasSubstr;

constexpr double spread = 0.004;

// Hosts of eight GPUs at work for themselves and in pairs, each run with noise of its own.
class Fleet {
 public:
  explicit Fleet(int64_t hosts) : report_(sample_report()) {
    const Environment machine = report_.environments[0];
    report_.environments.clear();
    for (int64_t host = 0; host < hosts; ++host) {
      Environment& own = report_.environments.emplace_back(machine);
      own.host_name = "node" + std::to_string(host);
      own.gpus.assign(gpus_of_a_host, machine.gpus[0]);
      for (int64_t gpu = 0; gpu < gpus_of_a_host; ++gpu) {
        const int64_t number = gpus_of_a_host * host + gpu;
        own.gpus[gpu].uuid = "GPU-" + std::to_string(number);
        own.gpus[gpu].pci_id = "0000:0" + std::to_string(gpu) + ":00.0";
        own_speed_.push_back(std::exp(spread * noise_(random_)));
      }
    }
    report_.arms.clear();
    Arm& each = report_.arms.emplace_back();
    each.name = "each";
    each.config = report_.invocation.config;
    each.config->update = Update::independent;
    report_.arms.emplace_back().name = "pairs-1";
  }

  void slow(size_t gpu, double share) { own_speed_[gpu] *= 1 - share; }
  void slow_link(size_t gpu, double share) { slow_links_[gpu] = share; }
  Environment& host(size_t number) { return report_.environments[number]; }
  void watch(size_t gpu, double watts) { watts_[gpu] = watts; }

  void add_runs(int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      report_.arms[0].runs.push_back(run_of_all());
      report_.arms[1].runs.push_back(run_of_pairs());
    }
  }

  const Report& report() const { return report_; }
  Survey survey(int64_t repeats = 2, const Report* baseline = nullptr) const {
    return survey_of(report_, repeats, baseline);
  }
  Report surveyed(int64_t repeats = 2) const {
    Report report = report_;
    report.survey = survey(repeats);
    return report;
  }

 private:
  static constexpr int64_t gpus_of_a_host = 8;

  double measured(double value) { return value * std::exp(0.0005 * noise_(random_)); }

  Rank rank_of(int64_t gpu) {
    Rank rank = sample_rank();
    rank.rank = gpu;
    rank.environment = gpu / gpus_of_a_host;
    rank.gpu = gpu % gpus_of_a_host;
    const double seconds = measured(0.02 / own_speed_[gpu]);
    rank.step_seconds.assign(4, seconds);
    rank.step_time.value->median_seconds = seconds;
    rank.monitoring->series[0].mean = watts_.contains(gpu) ? watts_[gpu] : measured(650);
    return rank;
  }

  Run run_of_all() {
    Run run = sample_run();
    run.ranks.clear();
    for (size_t gpu = 0; gpu < own_speed_.size(); ++gpu) {
      run.ranks.push_back(rank_of(static_cast<int64_t>(gpu)));
    }
    run.world_size = std::ssize(run.ranks);
    return run;
  }

  // GPU i with GPU i + 4 of its host.
  Run run_of_pairs() {
    Run run = run_of_all();
    const std::vector<Rank> all = std::move(run.ranks);
    run.ranks.clear();
    for (size_t gpu = 0; gpu < all.size(); ++gpu) {
      if (gpu % gpus_of_a_host >= gpus_of_a_host / 2) continue;
      run.ranks.insert(run.ranks.end(), {all[gpu], all[gpu + gpus_of_a_host / 2]});
      const double slower = slow_links_.contains(gpu) ? slow_links_[gpu] : 0;
      const double noise = std::exp(spread * noise_(random_));
      run.jobs.push_back({.ranks = 2,
                          .throughput = 1000,
                          .bus_bandwidth_bytes_per_second = 3e11 * noise * (1 - slower)});
    }
    return run;
  }

  Report report_;
  std::vector<double> own_speed_;
  std::map<size_t, double> slow_links_, watts_;
  std::mt19937_64 random_{9};
  std::normal_distribution<double> noise_;
};

const SurveyFamily& family_of(const Survey& survey, SurveyPart part) {
  return *std::ranges::find(survey.families, part, &SurveyFamily::part);
}

TEST(Survey, NobodyIsSuspectedWhereAllIsWell) {
  Fleet fleet(2);
  fleet.add_runs(2);
  const Survey survey = fleet.survey();
  EXPECT_TRUE(survey.suspects.empty());
  const SurveyFamily& devices = family_of(survey, SurveyPart::device);
  EXPECT_EQ(devices.kind, "NVIDIA H200");
  EXPECT_EQ(devices.members.size(), 16);
  EXPECT_NEAR(devices.centre, 256 / 0.02, 100);
  EXPECT_NEAR(*devices.spread, spread, spread / 2);
  EXPECT_LT(*devices.found_from, 8 * spread);
  EXPECT_EQ(family_of(survey, SurveyPart::link).members.size(), 8);
  EXPECT_EQ(family_of(survey, SurveyPart::link).kind, "NVIDIA H200, inside a host");
  EXPECT_FALSE(family_of(survey, SurveyPart::host).found_from) << "two hosts tell nothing";
}

TEST(Survey, ASlowGpuIsNamedAndOnlyFreshRunsJudgeIt) {
  Fleet fleet(2);
  fleet.slow(11, 0.05);
  fleet.watch(11, 310);
  fleet.add_runs(2);
  Survey survey = fleet.survey();
  ASSERT_EQ(survey.suspects.size(), 1);
  EXPECT_FALSE(survey.suspects[0].confirmed);
  EXPECT_EQ(survey.suspects[0].difference.reason, "not looked at again");
  fleet.add_runs(2);
  survey = fleet.survey();
  ASSERT_EQ(survey.suspects.size(), 1);
  const SurveySuspect& suspect = survey.suspects[0];
  EXPECT_EQ(suspect.part, SurveyPart::device);
  EXPECT_EQ(units_text(fleet.report(), suspect.units), "GPU 0000:03:00.0 of node1");
  EXPECT_TRUE(suspect.confirmed);
  EXPECT_NEAR(*suspect.difference, -0.05, 3 * spread);
  EXPECT_LT(*suspect.lower, *suspect.difference);
  EXPECT_LT(*suspect.difference, *suspect.upper);
  EXPECT_LT(*suspect.upper, 0);
  ASSERT_THAT(suspect.causes, Contains(Field(&Finding::code, "power_watts")));
}

TEST(Survey, WhatPassedBeforeTheFreshRunsIsNotConfirmed) {
  Fleet fleet(2);
  fleet.slow(3, 0.06);
  fleet.add_runs(2);
  fleet.slow(3, -0.06 / 0.94);
  fleet.add_runs(2);
  const Survey survey = fleet.survey();
  ASSERT_EQ(survey.suspects.size(), 1);
  EXPECT_FALSE(survey.suspects[0].confirmed);
  EXPECT_TRUE(survey.suspects[0].difference) << "judged, and let go";
}

TEST(Survey, TwoSlowOnesOfOneHostAreFound) {
  Fleet fleet(1);
  fleet.slow(2, 0.08);
  fleet.slow(5, 0.07);
  fleet.add_runs(4);
  const Survey survey = fleet.survey();
  EXPECT_EQ(std::ranges::count(survey.suspects, true, &SurveySuspect::confirmed), 2);
}

TEST(Survey, ASlowLinkIsALink) {
  Fleet fleet(2);
  fleet.slow_link(1, 0.3);
  fleet.add_runs(4);
  const Survey survey = fleet.survey();
  ASSERT_FALSE(survey.suspects.empty());
  EXPECT_EQ(survey.suspects[0].part, SurveyPart::link);
  EXPECT_EQ(units_text(fleet.report(), survey.suspects[0].units),
            "GPU 0000:01:00.0 of node0 - GPU 0000:05:00.0 of node0");
  EXPECT_TRUE(survey.suspects[0].confirmed);
}

TEST(Survey, ASlowHostIsAHost) {
  Fleet fleet(8);
  for (size_t gpu = 16; gpu < 24; ++gpu) fleet.slow(gpu, 0.02);
  fleet.add_runs(4);
  const Survey survey = fleet.survey();
  const auto host = std::ranges::find(survey.suspects, SurveyPart::host, &SurveySuspect::part);
  ASSERT_NE(host, survey.suspects.end());
  EXPECT_EQ(units_text(fleet.report(), host->units), "node2");
  EXPECT_TRUE(host->confirmed);
}

TEST(Survey, UnlikeGpusAreJudgedApart) {
  Fleet fleet(2);
  for (size_t gpu = 0; gpu < 8; ++gpu) fleet.slow(gpu, 0.4);
  for (Gpu& gpu : fleet.host(0).gpus) gpu.name = "NVIDIA H100";
  fleet.add_runs(2);
  const Survey survey = fleet.survey();
  EXPECT_TRUE(survey.suspects.empty());
  EXPECT_EQ(std::ranges::count(survey.families, SurveyPart::device, &SurveyFamily::part), 2);
}

TEST(Survey, AConditionOfOneMachineIsNamedWhereOthersLackIt) {
  Fleet fleet(1);
  fleet.slow(6, 0.1);
  fleet.host(0).gpus[6].power_limit_watts = 300.0;
  for (Gpu& gpu : fleet.host(0).gpus) {
    gpu.default_power_limit_watts = 700.0;
    if (!gpu.power_limit_watts) gpu.power_limit_watts = 700.0;
  }
  fleet.add_runs(4);
  const Survey survey = fleet.survey();
  ASSERT_EQ(survey.suspects.size(), 1);
  EXPECT_THAT(survey.suspects[0].causes, Contains(Field(&Finding::code, "power_limit")));
}

TEST(Survey, ABaselineGivesItsSpread) {
  Fleet before(8);
  before.add_runs(2);
  const Report baseline = before.surveyed();
  Fleet fleet(1);
  fleet.slow(4, 0.025);
  fleet.add_runs(4);
  EXPECT_TRUE(fleet.survey().suspects.empty()) << "eight GPUs alone tell less";
  const Survey survey = fleet.survey(2, &baseline);
  ASSERT_EQ(survey.suspects.size(), 1);
  EXPECT_TRUE(survey.suspects[0].confirmed);
  EXPECT_FALSE(survey.suspects[0].known);
  EXPECT_TRUE(family_of(survey, SurveyPart::device).by_baseline);
}

TEST(Survey, OnlyNewSuspectsAreNew) {
  Fleet before(2);
  before.slow(11, 0.05);
  before.add_runs(4);
  const Report base = before.surveyed();
  EXPECT_TRUE(new_since(base, base).suspects.empty());
  Fleet after(2);
  after.slow(11, 0.05);
  after.slow(3, 0.08);
  after.add_runs(4);
  const Report next = after.surveyed();
  const Survey fresh = new_since(base, next);
  ASSERT_EQ(fresh.suspects.size(), 1);
  EXPECT_EQ(units_text(next, fresh.suspects[0].units), "GPU 0000:03:00.0 of node0");
  for (const SurveySuspect& suspect : survey_of(next, 2, &base).suspects) {
    EXPECT_EQ(suspect.known, units_text(next, suspect.units) == "GPU 0000:03:00.0 of node1");
  }
}

// All pairs of the GPUs of one host, each with noise of its own, and less of all links of one GPU.
Report pairs_of(int64_t gpus, double slower, std::mt19937_64& random) {
  std::normal_distribution<double> noise;
  Report report = sample_report();
  report.environments[0].gpus.assign(gpus, report.environments[0].gpus[0]);
  std::vector<Run>& runs = report.arms[0].runs;
  runs.clear();
  for (int64_t a = 0; a < gpus; ++a) {
    for (int64_t b = 0; b < a; ++b) {
      Run& run = runs.emplace_back();
      run.ranks.resize(2);
      run.ranks[0].gpu = a;
      run.ranks[1].gpu = b;
      run.communication.emplace().best_bus_bandwidth_bytes_per_second =
          3e11 * std::exp(spread * noise(random)) * (b == 0 ? 1 - slower : 1);
    }
  }
  return report;
}

bool are_links_suspected(const Report& report, int64_t gpu) {
  const Survey survey = survey_of(report, 1000);
  return std::ranges::any_of(survey.suspects, [&](const SurveySuspect& suspect) {
    return suspect.part == SurveyPart::links && (gpu < 0 || suspect.units[0].gpu == gpu);
  });
}

TEST(Survey, TheLinksOfAGpuRaiseNoMoreAlarmsThanStated) {
  constexpr int64_t fleets = 300;
  constexpr double stated = 0.05 * fleets, error = 3.8;  // of that many at 5 %
  std::mt19937_64 random(1);
  for (const int64_t gpus : {4, 8}) {
    int64_t alarms = 0;
    for (int64_t i = 0; i < fleets; ++i)
      alarms += are_links_suspected(pairs_of(gpus, 0, random), -1);
    EXPECT_LT(static_cast<double>(alarms), stated + 3 * error) << gpus;
  }
  int64_t found = 0;
  for (int64_t i = 0; i < 50; ++i) found += are_links_suspected(pairs_of(8, 0.05, random), 0);
  EXPECT_GE(found, 48);
}

TEST(Survey, WithoutNamesNobodyIsKnownAgain) {
  Fleet fleet(1);
  fleet.slow(6, 0.1);
  fleet.add_runs(4);
  Report report = fleet.report();
  report.environments[0].host_name = left_out_name;
  for (Gpu& gpu : report.environments[0].gpus) gpu.uuid = Unknown{"left out"};
  report.survey = survey_of(report, 2);
  const Survey again = survey_of(report, 2, &report);
  ASSERT_FALSE(again.suspects.empty());
  EXPECT_FALSE(again.suspects[0].known);
  EXPECT_THROW(new_since(report, report), NotComparable);
  EXPECT_EQ(units_text(report, again.suspects[0].units), "GPU 0000:06:00.0 of host 0");
}

TEST(Survey, ABaselineOfOtherWorkTellsNoSpread) {
  Fleet before(8);
  before.add_runs(2);
  Report baseline = before.surveyed();
  Fleet fleet(1);
  fleet.add_runs(2);
  EXPECT_TRUE(family_of(fleet.survey(2, &baseline), SurveyPart::device).by_baseline);
  EXPECT_FALSE(family_of(fleet.survey(1, &baseline), SurveyPart::device).by_baseline);
  baseline.invocation.config_sha256 = std::string(64, '0');
  EXPECT_FALSE(family_of(fleet.survey(2, &baseline), SurveyPart::device).by_baseline);
}

TEST(Survey, AHostThatGoesAndWhatWasNotLookedAtAgainAreTold) {
  Fleet fleet(1);
  fleet.slow(6, 0.1);
  fleet.add_runs(2);
  Report report = fleet.surveyed();
  EXPECT_FALSE(was_judged(*report.survey));
  EXPECT_FALSE(is_anybody_wrong(*report.survey));
  report.survey->silent_hosts = {"node7"};
  EXPECT_TRUE(is_anybody_wrong(*report.survey));
  Report before = report;
  before.survey->silent_hosts.clear();
  EXPECT_EQ(new_since(before, report).silent_hosts, std::vector<std::string>{"node7"});
  report.status = Status::partial;
  EXPECT_THAT(survey_page(report).headlines,
              testing::IsSupersetOf({std::string("the survey is not finished"),
                                     std::string("hosts that do not answer: node7"),
                                     std::string("GPU 0000:06:00.0 of node0 is suspected, and was "
                                                 "not looked at again")}));
}

TEST(Survey, ThePageSaysWhoAndWhy) {
  Fleet fleet(2);
  fleet.slow(11, 0.05);
  fleet.watch(11, 310);
  fleet.add_runs(4);
  const Report report = fleet.surveyed();
  const Page page = survey_page(report);
  EXPECT_THAT(page.headlines[0], HasSubstr("GPU 0000:03:00.0 of node1 is slow: -"));
  EXPECT_THAT(page.headlines[0], HasSubstr("power_watts 310, that of others 65"));
  EXPECT_THAT(page.headlines, Contains(HasSubstr("not judged, as fewer than 4 are of a kind")));
}

TEST(Survey, WhoComputesOtherBitsIsNamed) {
  Fleet fleet(2);
  fleet.add_runs(2);
  Report report = fleet.report();
  DigestGroup right;
  right.kernels = std::string(64, 'a');
  right.parameters = {"conv1.weight", "fc.weight"};
  for (int64_t step : {1, 2, 4}) right.steps.push_back({step, "0x1p+1", {"00ff", "11ee"}});
  DigestGroup wrong = right;
  for (int64_t rank = 0; rank < 16; ++rank) (rank == 9 ? wrong : right).ranks.push_back(rank);
  wrong.steps[2].sha256[1] = "11ef";
  for (auto& run : report.arms[0].runs) run.digests = {right, wrong};
  for (auto& run : report.arms[1].runs) run.digests.clear();
  report.survey = survey_of(report, 2);
  ASSERT_EQ(report.survey->faults.size(), 1);
  const SurveyFault& fault = report.survey->faults[0];
  EXPECT_EQ(units_text(report, {fault.unit}), "GPU 0000:01:00.0 of node1");
  EXPECT_EQ(std::pair(fault.step, fault.what), std::pair(int64_t{4}, std::string("fc.weight")));
  EXPECT_TRUE(fault.certain);
  EXPECT_EQ(fault.permanent, true);
  EXPECT_EQ(survey_page(report).headlines[0],
            "GPU 0000:01:00.0 of node1 computes wrong bits in each, from step 4 on (fc.weight), in "
            "every run");
  report.arms[0].runs[1].digests = {right};
  report.arms[0].runs[1].digests[0].ranks.push_back(9);
  report.survey = survey_of(report, 2);
  ASSERT_EQ(report.survey->faults.size(), 1);
  EXPECT_EQ(report.survey->faults[0].permanent, false) << "the fault passed";
}

TEST(Survey, IsReadAsItWasWritten) {
  Fleet fleet(1);
  fleet.slow(6, 0.1);
  fleet.add_runs(4);
  Report report = sample_report();
  report.survey = fleet.survey();
  report.environments = fleet.report().environments;
  const Report read = report_from_json(to_json(report));
  EXPECT_EQ(to_json(read), to_json(report));
  report.survey->suspects[0].units[0].gpu = 8;
  EXPECT_THROW(require_consistent_survey(report), InvalidReport);
}

}  // namespace
}  // namespace nearmetal
