#include "reports/compare/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "reports/formats/benchmark_text.h"
#include "reports/formats/comparison_text.h"
#include "reports/formats/headline.h"
#include "tests/support/made_up_runs.h"

namespace nearmetal {
namespace {

using testing::HasSubstr;
using Sides = std::vector<std::pair<std::string, std::vector<double>>>;

GateResult gate(const RunSet& base, const RunSet& next, FailOn fail_on = FailOn::regression,
                double margin = 0.02) {
  CompareOptions options;
  options.rule.margin = margin;
  return judge(corrected_for_rows(compare(base, next, options)), {.fail_on = fail_on});
}

std::vector<double> around(double level) {
  return {level, level * 1.004, level * 0.996, level * 1.002, level * 0.998};
}
RunSet set_at(double level, int minute = 0) {
  return made_up_set({{"run", around(level)}}, minute);
}

ExitCode code(double level, FailOn fail_on, double margin = 0.02) {
  return gate(set_at(1000), set_at(level, 60), fail_on, margin).exit_code;
}

TEST(Gate, Policies) {
  using enum FailOn;
  using enum ExitCode;
  EXPECT_EQ(code(1000, regression), ok);
  EXPECT_EQ(code(1000, not_equivalent), ok);
  EXPECT_EQ(code(1000, any), ok);
  EXPECT_EQ(code(950, regression), gate_failed);
  EXPECT_EQ(code(950, not_equivalent), gate_failed);
  EXPECT_EQ(code(950, any), gate_failed);
  EXPECT_EQ(code(980, regression), ok) << "not shown to be worse";
  EXPECT_EQ(code(980, not_equivalent), inconclusive) << "not shown not to be worse";
  EXPECT_EQ(code(980, any), inconclusive);
  EXPECT_EQ(code(1050, regression), ok);
  EXPECT_EQ(code(1050, not_equivalent), ok) << "better is not worse";
  EXPECT_EQ(code(1050, any), gate_failed);
  EXPECT_EQ(code(1020, not_equivalent), ok);
  EXPECT_EQ(code(1020, any), inconclusive);
}

TEST(Gate, MoreRunsCouldChangeThePassOfARegressionAlone) {
  const auto is_open = [](FailOn fail_on) {
    return gate(set_at(1000), set_at(1020, 60), fail_on).inconclusive;
  };
  EXPECT_TRUE(is_open(FailOn::regression));
  EXPECT_FALSE(is_open(FailOn::not_equivalent)) << "shown not to be worse";
  EXPECT_TRUE(is_open(FailOn::any));
}

TEST(Gate, TooFewRunsAreNeverAPass) {
  const auto few = [](int count, double level, int minute) {
    std::vector<double> runs = around(level);
    runs.resize(count);
    return made_up_set({{"run", runs}}, minute);
  };
  for (const double level : {1000.0, 500.0}) {
    const GateResult result = gate(set_at(1000), few(2, level, 60));
    EXPECT_EQ(result.exit_code, ExitCode::inconclusive);
    EXPECT_TRUE(result.inconclusive);
    EXPECT_THAT(result.verdict,
                HasSubstr("too few runs (3 of each are needed): run: 5 base runs and 2 new "
                          "runs"));
  }
  EXPECT_EQ(gate(few(1, 1000, 0), set_at(1000, 60)).exit_code, ExitCode::inconclusive);
}

// Five runs whose monitors saw nothing, but for the second, which is as `change` leaves it.
template <class Change>
RunSet monitored_set(int minute, const Change& change) {
  RunSet set = set_at(1000, minute);
  for (SetRun& run : set.arms[0].runs) {
    run.run.ranks.at(0).monitoring.emplace().verdict = MonitorVerdict::clean;
  }
  change(set.arms[0].runs[1].run.ranks.at(0).monitoring);
  return set;
}

TEST(Gate, OnlyCleanRunsPassWhereTheyAreAskedFor) {
  using Found = std::optional<Monitoring>;
  const auto judged = [](auto change, bool require_clean = true) {
    const RunSet base = monitored_set(0, [](Found&) {}), next = monitored_set(60, change);
    return judge(compare(base, next, {}), {.require_clean = require_clean});
  };
  EXPECT_EQ(judged([](Found&) {}).exit_code, ExitCode::ok);
  const auto throttled = [](Found& found) {
    found->verdict = MonitorVerdict::throttled;
    found->reasons = {
        {.code = "clocks_heat_driver", .figure = Figure{0.5, 0.01, FigureUnit::share}}};
  };
  EXPECT_EQ(judged(throttled, false).exit_code, ExitCode::ok) << "told alone";
  EXPECT_EQ(judged(throttled).exit_code, ExitCode::not_comparable);
  EXPECT_EQ(judged(throttled).verdict,
            "not clean: run: a run of made up was throttled: clocks lowered by the driver for "
            "heat in 50.0 % of the samples");
  const auto lost = [](Found& found) {
    found->verdict = MonitorVerdict::unknown;
    found->reasons = {{.code = "unknown", .subject = "cpu_steal_share", .why = "no /proc/stat"}};
  };
  EXPECT_EQ(judged(lost).verdict,
            "not clean: run: a run of made up was not shown to be clean: cpu_steal_share is not "
            "known: no /proc/stat");
  const GateResult blind = judged([](Found& found) { found.reset(); });
  EXPECT_EQ(blind.exit_code, ExitCode::not_comparable) << "what was not watched is not clean";
  EXPECT_THAT(blind.verdict, HasSubstr("was not monitored"));
  const GateResult no_nvml =
      judged([](Found& found) { found->not_monitored["sm_clock_hertz"] = "no NVML"; });
  EXPECT_THAT(no_nvml.verdict, HasSubstr("reports no clock of its GPU: no NVML"));
}

TEST(Gate, EachRowHasItsOwnReason) {
  const auto monitored = [](int minute) {
    RunSet set = made_up_set({{"a", around(1000)}, {"b", around(900)}, {"c", around(800)}}, minute);
    for (RunArm& arm : set.arms) {
      for (SetRun& run : arm.runs) run.run.ranks.at(0).monitoring.emplace();
    }
    return set;
  };
  RunSet next = monitored(60);
  next.arms[1].runs[0].run.ranks[0].monitoring.reset();
  next.arms[0].runs[0].run.ranks[0].monitoring.reset();
  Monitoring& shared = *next.arms[2].runs[0].run.ranks[0].monitoring;
  shared.verdict = MonitorVerdict::shared;
  shared.reasons = {{.code = "cpu_steal", .figure = Figure{0.4, 0.01, FigureUnit::share}}};
  const GateResult result = judge(compare(monitored(0), next, {}), {.require_clean = true});
  EXPECT_THAT(result.verdict, HasSubstr("a, b: a run of made up was not monitored"));
  EXPECT_THAT(result.verdict,
              HasSubstr("c: a run of made up was shared: the hypervisor gave 40.0 %"));
  next.arms[1].runs.resize(2);
  next.arms[2].runs.resize(1);
  EXPECT_THAT(judge(compare(monitored(0), next, {}), {}).verdict,
              HasSubstr(": c: 5 base runs and 1 new run; b: 5 base runs and 2 new runs"));
}

TEST(Gate, NamesThreeReasonsAndCountsOtherRows) {
  std::vector<std::pair<std::string, std::vector<double>>> arms;
  for (const char* name : {"a", "b", "c", "d", "e"}) arms.emplace_back(name, around(1000));
  RunSet base = made_up_set(arms);
  for (size_t i = 0; i < base.arms.size(); ++i)
    base.arms[i].runs[0].source = "file " + std::to_string(i);
  for (RunArm& arm : base.arms) arm.runs[0].run.ranks.at(0).monitoring.reset();
  EXPECT_THAT(judge(compare(base, made_up_set(arms, 60), {}), {.require_clean = true}).verdict,
              HasSubstr("c: a run of file 2 was not monitored; 2 more rows"));
}

// Numbers without any spread are not measurements: a drop must not pass for lack of an interval.
TEST(Gate, EqualRunsAreNeverAPass) {
  const RunSet base = made_up_set({{"run", {1000, 1000, 1000}}});
  EXPECT_EQ(gate(base, made_up_set({{"run", {500, 500, 500}}}, 60)).exit_code,
            ExitCode::inconclusive);
  EXPECT_EQ(gate(base, set_at(1000, 60)).exit_code, ExitCode::inconclusive);
}

TEST(Gate, WhatCannotBeComparedIsNotAPass) {
  const RunSet two = made_up_set({{"a", around(1000)}, {"b", around(1000)}});
  const GateResult missing = gate(two, made_up_set({{"a", around(1000)}, {"c", around(1)}}, 60));
  EXPECT_EQ(missing.exit_code, ExitCode::not_comparable);
  RunSet failed = set_at(1000, 60);
  for (SetRun& run : failed.arms[0].runs) run.run.status = Status::failed;
  EXPECT_EQ(gate(set_at(1000), failed).exit_code, ExitCode::invalid_report);
  EXPECT_EQ(gate({}, {}).exit_code, ExitCode::invalid_report);
  CompareOptions options;
  RunSet without_metric = set_at(1000, 60);
  for (SetRun& run : without_metric.arms[0].runs) run.run.ranks[0].set_up = Unknown{"lost"};
  options.metrics = {"set_up_seconds"};
  const GateResult lacking = judge(compare(set_at(1000), without_metric, options), {});
  EXPECT_EQ(lacking.exit_code, ExitCode::not_comparable);
  EXPECT_THAT(lacking.verdict, HasSubstr("no run of the new set has set_up_seconds: lost"));
}

// One of 40 rows is worse by a hair: alone it would fail the gate.
TEST(Gate, SeveralRowsAreCorrectedForTheirNumber) {
  const auto arms = [](int count, double last) {
    Sides sides;
    for (int i = 0; i < count; ++i) {
      sides.push_back({"arm " + std::to_string(i), around(i + 1 == count ? last : 1000)});
    }
    return sides;
  };
  const double level = 974;
  EXPECT_EQ(gate(made_up_set(arms(1, 1000)), made_up_set(arms(1, level), 60)).exit_code,
            ExitCode::gate_failed);
  const GateResult many = gate(made_up_set(arms(40, 1000)), made_up_set(arms(40, level), 60));
  EXPECT_EQ(many.exit_code, ExitCode::ok);
  EXPECT_EQ(many.adjusted_p.size(), 40U);
  EXPECT_EQ(gate(made_up_set(arms(40, 1000)), made_up_set(arms(40, 900), 60)).exit_code,
            ExitCode::gate_failed);
  EXPECT_EQ(
      gate(made_up_set(arms(40, 1000)), made_up_set(arms(40, level), 60), FailOn::not_equivalent)
          .exit_code,
      ExitCode::inconclusive)
      << "not shown, and not shown otherwise";
}

// The table, JUnit and the exit code say one thing.
TEST(Gate, VerdictsOfSeveralRowsAreThoseAfterHolm) {
  const auto arms = [](double first) {
    return Sides{{"a", around(first)}, {"b", around(1000)}, {"c", around(1000)}};
  };
  const Comparison single = compare(made_up_set(arms(1000)), made_up_set(arms(975.3), 60), {});
  ASSERT_EQ(single.rows[0].verdict, Verdict::slower);
  const Comparison comparison = corrected_for_rows(single);
  EXPECT_EQ(comparison.rows[0].verdict, Verdict::inconclusive);
  const GateResult result = judge(comparison, {});
  EXPECT_EQ(result.exit_code, ExitCode::ok);
  EXPECT_TRUE(result.inconclusive) << "another look may show it";
  std::ostringstream table, junit;
  print_text(table, page_of(comparison));
  print_junit(junit, comparison, result, made_up_set(arms(975.3), 60));
  EXPECT_THAT(table.str(), testing::Not(HasSubstr(" SLOWER (")));
  EXPECT_THAT(table.str(), HasSubstr("verdicts after Holm's correction for 3 rows"));
  EXPECT_THAT(table.str(), HasSubstr("SLOWER by itself, but not after Holm's correction for 3"));
  EXPECT_THAT(junit.str(), HasSubstr("failures=\"0\" errors=\"0\" skipped=\"1\""));
  EXPECT_EQ(corrected_for_rows(compare(made_up_set(arms(1000)), made_up_set(arms(900), 60), {}))
                .rows[0]
                .verdict,
            Verdict::slower);
}

TEST(Gate, JunitHasATestCaseForEachRow) {
  const RunSet base =
      made_up_set({{"a", around(1000)}, {"b<", around(1000)}, {"c", around(1000)}, {"d", {1000}}});
  const RunSet next = made_up_set(
      {{"a", around(1000)}, {"b<", around(900)}, {"c", around(980)}, {"d", {1000}}}, 60);
  const Comparison comparison = corrected_for_rows(compare(base, next, {}));
  const GateResult result = judge(comparison, {});
  EXPECT_EQ(result.exit_code, ExitCode::inconclusive) << "one row has too few runs";
  std::ostringstream text;
  print_junit(text, comparison, result, next);
  EXPECT_THAT(text.str(), HasSubstr("tests=\"4\" failures=\"1\" errors=\"1\" skipped=\"1\""));
  EXPECT_THAT(text.str(), HasSubstr("<testcase classname=\"nearmetal.b&lt;\""));
  EXPECT_THAT(text.str(),
              testing::ContainsRegex(
                  "<failure type=\"failure\" message=\"The new set is slower than the base, "
                  "-10.00 % \\[.*\\]: SLOWER, worse by more than the margin\"/>"));
  EXPECT_THAT(text.str(), testing::ContainsRegex("<skipped message=\"The new set is .*: INCONCL"));
  EXPECT_THAT(
      text.str(),
      testing::ContainsRegex(
          "<error type=\"error\" message=\"The new set differs from the base by .*: INCONCLUSIVE, "
          "an interval needs 2 runs"));
  EXPECT_THAT(text.str(), HasSubstr("<system-out>resnet50 training, fp16, batch 256, 224x224, "));
  EXPECT_THAT(text.str(), HasSubstr("\nOn the mean of 3 rows the new set is "));
}

std::pair<Comparison, GateResult> sequential(const std::vector<double>& runs, int64_t most_reruns,
                                             double level, FailOn fail_on = FailOn::regression) {
  RunSet next = made_up_set({{"run", runs}}, 60);
  const auto take_run = [&](RunSet& set) {
    const auto count = set.arms[0].runs.size();
    set.arms[0].runs.push_back(
        made_up_set({{"run", {level + 0.1 * static_cast<double>(count)}}}, 120 + count)
            .arms[0]
            .runs[0]);
  };
  return judge_sequentially({set_at(1000)}, next, {}, {.fail_on = fail_on}, most_reruns, take_run);
}

TEST(Gate, RerunsShareAlpha) {
  const auto once = sequential(around(1000), 0, 1000);
  EXPECT_EQ(once.second.looks, 1);
  EXPECT_DOUBLE_EQ(once.first.options.rule.alpha, 0.05);
  const auto decided = sequential(around(900), 4, 900);
  EXPECT_EQ(decided.second.looks, 5);
  EXPECT_EQ(decided.second.reruns, 0) << "already decided";
  EXPECT_NEAR(decided.first.options.rule.alpha, 0.05 * 0.1 / 4, 1e-12);
  EXPECT_DOUBLE_EQ(decided.second.alpha, 0.05);
  const auto open = sequential(around(980), 4, 980);
  EXPECT_EQ(open.second.reruns, 4);
  EXPECT_NEAR(open.first.options.rule.alpha, 0.045, 1e-12);
  EXPECT_TRUE(open.second.inconclusive);
}

// At the share of alpha that a first look has, the same runs are open.
TEST(Gate, RerunsEndWhereEqualityIsShown) {
  const auto equal = sequential({1000, 1012, 991, 1003}, 4, 1000);
  EXPECT_EQ(equal.first.rows.at(0).verdict, Verdict::inconclusive);
  EXPECT_EQ(equal.second.reruns, 0);
  EXPECT_EQ(equal.second.exit_code, ExitCode::ok);
  EXPECT_THAT(equal.second.verdict, HasSubstr("equivalent at alpha 5 % of this look alone, which"));
  EXPECT_GT(sequential({1000, 1012, 991, 1003}, 4, 1000, FailOn::not_equivalent).second.reruns, 0)
      << "where equality is the claim, each look would err";
}

TEST(Gate, LooksAtTooFewRunsTakeNoPartOfAlpha) {
  EXPECT_EQ(sequential({1000}, 4, 1000).second.looks, 3) << "at 3, 4 and 5 runs";
  EXPECT_EQ(sequential({1000}, 1, 1000).second.looks, 1) << "too few to the end";
}

// Each step is within the margin of the one before.
TEST(Gate, SmallLossesAddUpFromTheAnchorOn) {
  const Baseline baseline = {set_at(985, 30), set_at(1000)};
  const Comparison comparison =
      corrected_for_rows(compare(baseline.recent, set_at(970, 60), {}, baseline.anchor));
  ASSERT_EQ(comparison.rows.size(), 2U);
  EXPECT_EQ(title_of(comparison.rows[0]), "run since 2026-01-31");
  const GateResult result = judge(comparison, {});
  EXPECT_EQ(result.exit_code, ExitCode::gate_failed);
  EXPECT_THAT(result.verdict, HasSubstr("worse by more than 2 %: run since 2026-01-31"));
  EXPECT_EQ(judge(compare(baseline.recent, set_at(970, 60), {}), {}).exit_code, ExitCode::ok);
  EXPECT_TRUE(comparison.geometric_means.empty()) << "they are of one arm";
}

TEST(Gate, OneThatCouldNotSeeIsNotAPass) {
  const Comparison comparison = compare(set_at(1000), set_at(1000, 60), {});
  const auto judged = [&](double drop) {
    return judge(comparison, {.largest_detectable_drop = drop});
  };
  EXPECT_EQ(judged(0.05).exit_code, ExitCode::ok);
  EXPECT_EQ(judged(0.021).exit_code, ExitCode::inconclusive);
  EXPECT_TRUE(judged(0.021).inconclusive) << "more runs would see more";
  EXPECT_THAT(judged(0.021).verdict,
              HasSubstr("--max-detectable (within one session); a drop of 2.6 %"));
  const Comparison equal =
      compare(made_up_set({{"run", {1000, 1000, 1000}}}), set_at(1000, 60), {});
  EXPECT_EQ(judge(equal, {.largest_detectable_drop = 0.5}).exit_code, ExitCode::inconclusive);
}

// One bad run must not switch a gate off, nor fail it.
TEST(Gate, AVerdictThatDependsOnOneRunIsNone) {
  const RunSet base = made_up_set({{"run", {1000, 1001, 999, 1002, 5}}});
  const RunSet next = made_up_set({{"run", {700, 701, 699, 702, 698}}}, 60);
  const Comparison comparison = compare(base, next, {});
  const ComparisonRow& row = comparison.rows.at(0);
  EXPECT_GT(*row.difference, 0) << "the mean says faster";
  EXPECT_NEAR(*row.median_difference, -0.3, 0.01);
  EXPECT_EQ(row.verdict, Verdict::inconclusive);
  ASSERT_TRUE(row.doubt);
  EXPECT_THAT(*row.doubt, HasSubstr("the difference is -30.0"));
  EXPECT_THAT(*row.doubt, HasSubstr("SLOWER, and with it INCONCLUSIVE"));
  EXPECT_THAT(headlines(comparison), testing::Not(testing::Contains(HasSubstr("faster"))));
  EXPECT_EQ(judge(comparison, {}).exit_code, ExitCode::inconclusive);
  // Nor does a mean of rows say what one of them does not.
  const std::vector<double> steady = {500, 501, 499, 500.5, 499.5};
  const Comparison two =
      compare(made_up_set({{"a", steady}, {"b", {1000, 1001, 999, 1002, 5}}}),
              made_up_set({{"a", steady}, {"b", {700, 701, 699, 702, 698}}}, 60), {});
  EXPECT_TRUE(two.geometric_means.at(0).doubt);
  EXPECT_THAT(headlines(two), Not(testing::Contains(HasSubstr("faster"))));
  const RunSet straggling = made_up_set({{"run", {1000, 1001, 999, 1002, 700}}}, 60);
  EXPECT_TRUE(compare(made_up_set({{"run", {1000, 1001, 999, 1002, 998}}}), straggling, {})
                  .rows.at(0)
                  .doubt);
  const RunSet few = made_up_set({{"run", {700, 701, 699, 702}}}, 60);
  EXPECT_FALSE(compare(made_up_set({{"run", {1000, 1001, 999, 5}}}), few, {}).rows.at(0).doubt)
      << "with fewer than five a side the run is named alone";
}

TEST(Gate, RunsInTwoGroupsAreNamed) {
  const RunSet base = made_up_set({{"run", {551, 500, 552, 550, 501, 551}}});
  const RunSet next = made_up_set({{"run", {500, 501, 499, 500.5, 501.5, 500}}}, 60);
  const Comparison comparison = compare(base, next, {});
  const auto& notes = comparison.rows.at(0).notes;
  const auto found = std::ranges::find(notes, "two_groups", &Warning::code);
  ASSERT_NE(found, notes.end());
  EXPECT_EQ(found->text,
            "the runs of the base fall into two groups, about 500 and 551 (2 and 4 runs); those of "
            "the new set all lie in the lower one: look for what the groups differ in");
}

TEST(Gate, ReportsItsPower) {
  const Comparison comparison = compare(set_at(1000), set_at(1000, 60), {});
  EXPECT_THAT(power_text(comparison), HasSubstr("would have been found with 80 % chance"));
  EXPECT_THAT(judge(comparison, {}).verdict, HasSubstr(power_text(comparison)));
  EXPECT_EQ(power_text(compare(set_at(1000), made_up_set({{"run", {1}}}, 60), {})), "");
}

}  // namespace
}  // namespace nearmetal
