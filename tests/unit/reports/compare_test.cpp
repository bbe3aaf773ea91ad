#include "reports/compare/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <stdexcept>

#include "reports/compare/run_set.h"
#include "reports/formats/comparison_json.h"
#include "reports/formats/comparison_text.h"
#include "tests/support/made_up_runs.h"

namespace nearmetal {
namespace {

using testing::Contains;
using testing::Field;
using testing::HasSubstr;
using testing::Not;

const std::vector<double> base_runs = {1000, 1004, 996, 1002, 998};

std::vector<double> scaled(double factor) {
  std::vector<double> runs;
  for (const double run : base_runs) runs.push_back(factor * run);
  std::swap(runs[0], runs[3]);  // not the same differences in every pair
  return runs;
}

RunSet base_set() { return made_up_set({{"run", base_runs}}); }
RunSet new_set(double factor) { return made_up_set({{"run", scaled(factor)}}, 60); }

ComparisonRow row_of(const RunSet& base, const RunSet& next, const CompareOptions& options = {}) {
  const Comparison comparison = compare(base, next, options);
  EXPECT_EQ(comparison.rows.size(), 1U);
  return comparison.rows.at(0);
}

auto has_note(const std::string& code) { return Contains(Field(&Warning::code, code)); }

TEST(Compare, VerdictsFollowTheIntervalAndTheMargin) {
  EXPECT_EQ(row_of(base_set(), new_set(1)).verdict, Verdict::equivalent);
  EXPECT_EQ(row_of(base_set(), new_set(0.99)).verdict, Verdict::equivalent) << "yet not equal";
  EXPECT_LT(*row_of(base_set(), new_set(0.99)).p, 0.01);
  EXPECT_EQ(row_of(base_set(), new_set(0.95)).verdict, Verdict::slower);
  EXPECT_EQ(row_of(base_set(), new_set(1.05)).verdict, Verdict::faster);
  EXPECT_EQ(row_of(base_set(), new_set(0.98)).verdict, Verdict::inconclusive);
  CompareOptions wide;
  wide.rule.margin = 0.1;
  EXPECT_EQ(row_of(base_set(), new_set(0.95), wide).verdict, Verdict::equivalent);
}

TEST(Compare, ARowHoldsBothSidesAndTheDifference) {
  const ComparisonRow row = row_of(base_set(), new_set(0.97));
  EXPECT_EQ(row.method, Method::welch);
  EXPECT_EQ(row.base_side.runs, 5);
  EXPECT_NEAR(*row.base_side.geometric_mean, 1000, 0.01);
  EXPECT_LT(row.base_side.interval->lower, 998);
  EXPECT_GT(row.base_side.interval->upper, 1002);
  EXPECT_NEAR(*row.difference, -0.03, 1e-12);
  EXPECT_LT(row.difference_interval->lower, -0.03);
  EXPECT_GT(row.difference_interval->upper, -0.03);
  EXPECT_NEAR(*row.rank_test_p, 2.0 / 252, 1e-12) << "no overlap: 2 of 10 over 5";
  EXPECT_LT(*row.p_regression, 0.01);
  EXPECT_GT(*row.p_worse, 0.99);
}

TEST(Compare, WhereLowerIsBetterMoreIsSlower) {
  RunSet slow = new_set(1);
  for (SetRun& run : slow.arms[0].runs) run.run.ranks[0].set_up.value->total_seconds *= 1.1;
  RunSet base = base_set();
  for (RunSet* set : {&slow, &base}) {
    const double factors[] = {1.003, 1.001, 1.004, 1, 1.002};
    for (size_t i = 0; i < std::size(factors); ++i) {
      set->arms[0].runs[i].run.ranks[0].set_up.value->total_seconds *= factors[i];
    }
  }
  CompareOptions options;
  options.metrics = {"set_up_seconds"};
  const ComparisonRow row = row_of(base, slow, options);
  EXPECT_EQ(row.verdict, Verdict::slower);
  EXPECT_NEAR(*row.difference, 0.1, 1e-9);
  EXPECT_EQ(row_of(slow, base, options).verdict, Verdict::faster);
}

TEST(Compare, OneRunHasADifferenceAndNoInterval) {
  const ComparisonRow row =
      row_of(made_up_set({{"run", {1000}}}), made_up_set({{"run", {500}}}, 60));
  EXPECT_EQ(row.verdict, Verdict::inconclusive);
  EXPECT_NEAR(*row.difference, -0.5, 1e-12);
  EXPECT_FALSE(row.difference_interval);
  EXPECT_FALSE(row.base_side.interval);
  EXPECT_FALSE(row.p);
  EXPECT_FALSE(row.more_runs);
}

TEST(Compare, EqualRunsGiveNoIntervalOfZeroWidth) {
  const ComparisonRow row = row_of(made_up_set({{"run", {1000, 1000, 1000}}}), new_set(1));
  EXPECT_EQ(row.verdict, Verdict::inconclusive);
  EXPECT_FALSE(row.difference_interval);
  EXPECT_THAT(row.reason, HasSubstr("equal"));
}

TEST(Compare, PlansMoreRunsWhereInconclusive) {
  const auto noisy = [](double factor, int minute) {
    return made_up_set({{"run", {980 * factor, 1020 * factor, 1000 * factor}}}, minute);
  };
  const ComparisonRow row = row_of(noisy(1, 0), noisy(1.001, 60));
  EXPECT_EQ(row.verdict, Verdict::inconclusive);
  ASSERT_TRUE(row.more_runs);
  EXPECT_GT(*row.more_runs, 3);
  EXPECT_LT(*row.more_runs, 40);
  EXPECT_FALSE(row_of(base_set(), new_set(1)).more_runs) << "decided";
}

TEST(Compare, PromisesNoRunsWhereTheDifferenceLiesAtTheMargin) {
  const ComparisonRow row = row_of(base_set(), new_set(0.98));
  EXPECT_FALSE(row.more_runs);
  EXPECT_THAT(row.more_runs.reason, HasSubstr("no number of runs can be promised"));
}

TEST(Compare, RunsInPairsAreComparedInPairs) {
  // A drift of 1 % a run would drown the difference of 0.5 % in Welch's test.
  std::vector<double> base;
  std::vector<double> next;
  for (int i = 0; i < 6; ++i) {
    base.push_back(1000 * std::pow(0.99, i));
    next.push_back(995 * std::pow(0.99, i) + 0.1 * (i % 3));
  }
  const RunSet second = [&] {
    RunSet set = made_up_set({{"run", next}});
    for (SetRun& run : set.arms[0].runs) run.run.started_at[18] = '9';
    return set;
  }();
  const ComparisonRow paired = row_of(made_up_set({{"run", base}}), second);
  EXPECT_EQ(paired.method, Method::paired);
  EXPECT_EQ(paired.verdict, Verdict::equivalent);
  std::ostringstream text;
  print_text(text, page_of(compare(made_up_set({{"run", base}}), second, {})));
  EXPECT_THAT(text.str(), HasSubstr("  6 pairs  ")) << "not 6|6, as of Welch's test";
  EXPECT_LT(*paired.p, 0.001);
  for (auto* side : {&base, &next}) {
    std::swap(side->at(0), side->at(5));
    std::swap(side->at(1), side->at(3));
  }
  const ComparisonRow apart =
      row_of(made_up_set({{"run", base}}), made_up_set({{"run", next}}, 60));
  EXPECT_EQ(apart.method, Method::welch);
  EXPECT_EQ(apart.verdict, Verdict::inconclusive);
}

// By least squares of ln(run) on order and side, in Python.
TEST(Compare, ATrendOfBothSidesIsTakenOff) {
  std::vector<double> base, next;
  for (int i = 0; i < 8; ++i) {
    base.push_back(1000 * std::exp(-.005 * i + (i % 2 == 0 ? .0004 : -.0004)));
    next.push_back(1000 * std::exp(-.005 * (8 + i) + (i % 3 == 0 ? .0006 : -.0003)));
  }
  const ComparisonRow row = row_of(made_up_set({{"run", base}}), made_up_set({{"run", next}}, 60));
  EXPECT_EQ(row.method, Method::trend);
  EXPECT_EQ(row.verdict, Verdict::inconclusive);
  EXPECT_THAT(row.doubt.value_or(""),
              HasSubstr("EQUIVALENT if the second went on where the first ended, SLOWER if each "
                        "began anew"));
  EXPECT_NEAR(row.log_difference->value, 0.000318452381, 1e-9);
  EXPECT_NEAR(row.log_difference->standard_error, 0.000458025353, 1e-9);
  EXPECT_EQ(row.log_difference->degrees_of_freedom, 13);
  EXPECT_THAT(row.notes, has_note("trend"));
  // Sides that overlap in time share their trend, whatever it is.
  RunSet mixed = made_up_set({{"run", base}}), other = made_up_set({{"run", next}}, 2);
  const ComparisonRow overlapping = row_of(mixed, other);
  EXPECT_EQ(overlapping.method, Method::trend);
  EXPECT_FALSE(overlapping.doubt);
  // A warm-up of each side, which begins anew, is no gain.
  const ComparisonRow anew = row_of(made_up_set({{"run", base}}), made_up_set({{"run", base}}, 60));
  EXPECT_EQ(anew.verdict, Verdict::inconclusive) << "4 % faster beside the trend";
  EXPECT_FALSE(row.rank_test_p);
  const ComparisonRow one_side =
      row_of(made_up_set({{"run", base}}),
             made_up_set({{"run", {960, 962, 961, 960.5, 961.5, 962, 960, 961}}}, 60));
  EXPECT_EQ(one_side.verdict, Verdict::inconclusive);
  EXPECT_THAT(one_side.doubt.value_or(""), HasSubstr("the runs of the base change as they go"));
}

// Pairs in one order leave a half of what each run drifts in their difference.
TEST(Compare, PairsInOneOrderGiveNoVerdictThatHangsOnTheirTrend) {
  std::vector<double> base, next, level;
  for (int i = 0; i < 8; ++i) {
    const double noise = i % 3 == 0 ? .0003 : -.0002;
    base.push_back(1000 * std::exp(-.01 * i + noise));
    next.push_back(982 * std::exp(-.01 * i - .005 - noise));
    level.push_back(979 * std::exp(noise));
  }
  const auto after = [](const std::vector<double>& values) {
    RunSet set = made_up_set({{"run", values}});
    for (SetRun& run : set.arms[0].runs) run.run.started_at[17] = '3';
    return set;
  };
  const ComparisonRow row = row_of(made_up_set({{"run", base}}), after(next));
  EXPECT_EQ(row.method, Method::paired);
  EXPECT_THAT(row.doubt.value_or(""), HasSubstr("EQUIVALENT if the second went on where"));
  RunSet first = made_up_set({{"run", base}}), second = after(next);
  for (int i = 0; i < 8; i += 2) {
    std::swap(first.arms[0].runs[i].run.started_at, second.arms[0].runs[i].run.started_at);
  }
  EXPECT_FALSE(row_of(first, second).doubt) << "each is first as often";
}

TEST(Compare, PairsThatAreEqualUpToRoundingHaveNoInterval) {
  RunSet base = made_up_set({{"run", {1000, 1003, 1001}}});
  RunSet next = made_up_set({{"run", {900, 902.7, 900.9}}});
  for (SetRun& run : next.arms[0].runs) run.run.started_at[17] = '3';
  const ComparisonRow row = row_of(base, next);
  EXPECT_EQ(row.verdict, Verdict::inconclusive);
  EXPECT_FALSE(row.difference_interval);
  EXPECT_EQ(row.difference_interval.reason, "all pairs differ by the same");
}

TEST(Compare, OneStepHasNoQuantiles) {
  CompareOptions options;
  options.metrics = {"p95_step_seconds", "jitter_seconds"};
  RunSet set = made_up_set({{"run", {1000, 1003, 1001}}});
  for (SetRun& run : set.arms[0].runs) run.run.window.value->steps = 1;
  for (const ComparisonRow& row : compare(set, set, options).rows) {
    EXPECT_EQ(row.verdict, Verdict::not_comparable);
    EXPECT_THAT(row.reason, HasSubstr("its window is one step"));
  }
}

TEST(Compare, RunsLikeTheirNeighboursGiveNoVerdict) {
  std::vector<double> wave, other, mixed;
  for (int i = 0; i < 12; ++i) {
    wave.push_back(1000 * std::exp(.003 * std::sin(.6 * i)));
    other.push_back(960 * std::exp(.003 * std::cos(.6 * i)));
    mixed.push_back(1000 * std::exp(.003 * std::sin(.6 * (i * 5 % 12))));
  }
  const RunSet next = made_up_set({{"run", other}}, 60);
  const ComparisonRow row = row_of(made_up_set({{"run", wave}}), next);
  EXPECT_EQ(row.verdict, Verdict::inconclusive);
  EXPECT_THAT(row.doubt.value_or(""), HasSubstr("serial correlation"));
  EXPECT_EQ(row_of(made_up_set({{"run", mixed}}), next).verdict, Verdict::slower);
}

TEST(Compare, NotesTellWhatIsBehindTheRuns) {
  EXPECT_THAT(row_of(base_set(), new_set(1)).notes, has_note("not_interleaved"));
  EXPECT_THAT(row_of(base_set(), made_up_set({{"run", scaled(1)}}, 2)).notes,
              Not(has_note("not_interleaved")));
  EXPECT_THAT(row_of(base_set(), base_set()).notes, has_note("shared_runs"));
  EXPECT_THAT(row_of(base_set(), new_set(1)).notes, Not(has_note("shared_runs")));
  RunSet next = new_set(1);
  std::vector<SetRun>& runs = next.arms[0].runs;
  runs[0].run.warnings = {{"throttled", "the clock was held down"}};
  runs[1].run.ranks[0].kernel_choices_sha256 = std::string(64, 'a');
  runs[2].tool.version = "0.2";
  const ComparisonRow row = row_of(base_set(), next);
  for (const char* code : {"different_plans", "different_tool"}) {
    EXPECT_THAT(row.notes, has_note(code)) << code;
  }
  const auto tools = std::ranges::find(row.notes, "different_tool", &Warning::code);
  EXPECT_THAT(tools->text, testing::EndsWith("| " + builds_text({runs[0].tool, runs[2].tool})));
  ASSERT_EQ(row.new_side.warnings.size(), 1U);
  EXPECT_EQ(row.new_side.warnings[0].warning.code, "throttled");
  EXPECT_THAT(to_json(compare(base_set(), next, {}), std::nullopt, ExitCode::ok),
              HasSubstr("1 of 5 runs of the new set warned: the clock was held down"));
  EXPECT_EQ(row.new_side.runs, 5) << "what is noted still counts";
  std::vector<double> many = {1000, 1004, 996, 1002, 998, 1001, 999, 1003, 997, 500};
  const ComparisonRow outlying = row_of(base_set(), made_up_set({{"run", many}}, 60));
  EXPECT_THAT(outlying.notes, has_note("outlier"));
  EXPECT_EQ(outlying.new_side.runs, 10);
  EXPECT_THAT(row_of(made_up_set({{"run", {1, 2, 3}}}), base_set()).notes, has_note("few_runs"));
}

TEST(Compare, RunsThatAreNotCompleteAreLeftOutWhateverTheirSpeed) {
  RunSet next = new_set(1);
  next.arms[0].runs[1].run.status = Status::partial;
  next.arms[0].runs[2].run.status = Status::failed;
  next.arms[0].runs[2].run.throughput = Unknown{"the run failed"};
  const ComparisonRow row = row_of(base_set(), next);
  EXPECT_EQ(row.new_side.runs, 3);
  EXPECT_EQ(row.new_side.left_out, 2);
  EXPECT_THAT(row.notes, has_note("left_out"));
  for (SetRun& run : next.arms[0].runs) run.run.status = Status::failed;
  EXPECT_EQ(row_of(base_set(), next).verdict, Verdict::invalid);
  EXPECT_EQ(row_of(next, base_set()).verdict, Verdict::invalid);
}

TEST(Compare, OtherWorkIsRefusedUnlessAllowed) {
  Report report = made_up_report({{"run", scaled(1)}}, 60);
  report.invocation.config.batch = 128;
  report.environments[0].libraries["cuDNN"] = "9.20";
  RunSet next;
  add_runs(next, report, "other.json");
  const Comparison refused = compare(base_set(), next, {});
  EXPECT_EQ(refused.rows[0].verdict, Verdict::not_comparable);
  EXPECT_FALSE(refused.rows[0].difference) << "no arithmetic";
  ASSERT_EQ(refused.key_differences.size(), 2U);
  EXPECT_EQ(refused.key_differences[0].name, "batch");
  EXPECT_EQ(refused.key_differences[0].source, "other.json");
  CompareOptions options;
  options.allow_differ = {"batch"};
  EXPECT_EQ(compare(base_set(), next, options).rows[0].verdict, Verdict::not_comparable);
  options.allow_differ = {"batch", "libraries"};
  const Comparison allowed = compare(base_set(), next, options);
  EXPECT_EQ(allowed.rows[0].verdict, Verdict::equivalent);
  EXPECT_TRUE(allowed.key_differences[0].allowed) << "still listed";
}

TEST(Compare, RunsOfOneSideMustAgreeWithOneAnother) {
  Report report = made_up_report({{"run", {999}}}, 30);
  report.invocation.config.batch = 128;
  RunSet mixed = base_set();
  add_runs(mixed, report, "stray.json");
  const Comparison comparison = compare(mixed, new_set(1), {});
  EXPECT_EQ(comparison.rows[0].verdict, Verdict::not_comparable);
  EXPECT_EQ(comparison.key_differences[0].source, "stray.json");
}

TEST(Compare, KindsAreMixedOnDemandAndLabelled) {
  const auto of_kind = [](Kind kind) {
    Report report = made_up_report({{"run", scaled(1)}}, 60);
    report.arms[0].kind = kind;
    RunSet set;
    add_runs(set, report, "e.json");
    return set;
  };
  const RunSet emulated = of_kind(Kind::emulated);
  EXPECT_EQ(row_of(emulated, emulated).notes.front().code, "emulated");
  CompareOptions options;
  options.form = ComparisonForm::vm;
  EXPECT_EQ(row_of(base_set(), emulated, options).verdict, Verdict::not_comparable);
  options.allow_differ = {"kind"};
  EXPECT_THAT(row_of(base_set(), emulated, options).notes.front().text, HasSubstr("VM emulated"));
}

TEST(Compare, TheVmFormTakesTheSplitAsTreatment) {
  Report report = made_up_report({{"run", scaled(1)}}, 60);
  report.environments.push_back(report.environments[0]);
  for (nearmetal::Run& run : report.arms[0].runs) {
    run.world_size = 2;
    run.ranks.push_back(run.ranks[0]);
    run.ranks[1].environment = 1;
  }
  Report bare = report;
  bare.environments[0].hypervisor_cpu_flag = false;
  for (nearmetal::Run& run : bare.arms[0].runs) run.ranks[1].environment = 0;
  RunSet bare_set;
  add_runs(bare_set, bare, "bare.json");
  RunSet vm_set;
  add_runs(vm_set, report, "vm.json");
  EXPECT_EQ(row_of(bare_set, vm_set).verdict, Verdict::not_comparable);
  CompareOptions options;
  options.form = ComparisonForm::vm;
  const Comparison comparison = compare(bare_set, vm_set, options);
  EXPECT_NE(comparison.rows[0].verdict, Verdict::not_comparable);
  EXPECT_TRUE(comparison.key_differences[0].allowed);
  EXPECT_THAT(comparison.environment_differences,
              Contains(Field(&EnvironmentDifference::name, "hypervisor_cpu_flag")));
  EXPECT_THAT(compare(vm_set, bare_set, options).notes, has_note("claim_bare"));
}

TEST(Compare, ArmsArePairedByNameAndTheMissingOnesShown) {
  const RunSet base = made_up_set({{"1x1", base_runs}, {"1x2", scaled(1.9)}, {"old", base_runs}});
  const RunSet next =
      made_up_set({{"1x2", scaled(1.8)}, {"1x1", scaled(1)}, {"new", base_runs}}, 60);
  const Comparison comparison = compare(base, next, {});
  std::vector<std::string> shown;
  for (const ComparisonRow& row : comparison.rows) {
    shown.push_back(row.arm + ": " + to_string(row.verdict));
  }
  EXPECT_THAT(shown, testing::ElementsAre("old: NOT-COMPARABLE", "new: NOT-COMPARABLE",
                                          "1x2: SLOWER", "1x1: EQUIVALENT"))
      << "the worst first";
  EXPECT_EQ(comparison.rows[0].reason, "only in the base");
  EXPECT_EQ(comparison.rows[1].reason, "only in the new set");
  ASSERT_EQ(comparison.geometric_means.size(), 1U);
  EXPECT_NEAR(*comparison.geometric_means[0].difference, std::sqrt(1.8 / 1.9) - 1, 1e-9);
}

TEST(Compare, TheOnlyArmOfEachSideIsComparedWhateverItsName) {
  const ComparisonRow row =
      row_of(made_up_set({{"bare", base_runs}}), made_up_set({{"vm", scaled(1)}}, 60));
  EXPECT_EQ(row.arm, "bare | vm");
  EXPECT_EQ(row.verdict, Verdict::equivalent);
}

TEST(Compare, AnUnknownMetricIsRefused) {
  CompareOptions options;
  options.metrics = {"speed"};
  EXPECT_THROW(compare(base_set(), new_set(1), options), std::invalid_argument);
}

}  // namespace
}  // namespace nearmetal
