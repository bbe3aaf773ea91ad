#include "reports/compare/run_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "base/errors.h"
#include "reports/compare/baseline.h"
#include "reports/compare/compare.h"
#include "reports/compare/read_runs.h"
#include "reports/document/metric.h"
#include "tests/support/made_up_runs.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string report_text(const std::vector<double>& throughputs, int minute = 0) {
  return to_json(made_up_report({{"1x1", throughputs}, {"1x2", throughputs}}, minute));
}

std::string refusal_of_runs(const Places& places) {
  return refusal_of<std::exception>([&] { read_runs(places); });
}

TEST(RunSet, ReadsFilesArmsAndFolders) {
  const TemporaryFolder folder;
  const std::string a = folder.write("set/a.json", report_text({1, 2}));
  folder.write("set/deep/b.json", report_text({3}, 10));
  folder.write("set/readme.txt", "not a report");
  EXPECT_EQ(read_runs({a}).arms.size(), 2U);
  const RunSet arm = read_runs({a + "#1x2"});
  ASSERT_EQ(arm.arms.size(), 1U);
  EXPECT_EQ(arm.arms[0].name, "1x2");
  const RunSet all = read_runs({(folder / "set").string()});
  EXPECT_EQ(all.arms[0].runs.size(), 3U);
  EXPECT_EQ(all.environments.size(), 1U) << "the same one";
  EXPECT_TRUE(all.arms[0].runs[0].run.ranks[0].step_seconds.empty());
}

TEST(RunSet, NamesTheBuildThatRanARunNotThatOfTheReport) {
  Report report = made_up_report({{"run", {1, 2}}});
  Tool other = report.tool;
  other.git_commit = std::string(40, 'b');
  report.arms[0].runs[1].tool = other;
  RunSet set;
  add_runs(set, report, "sweep");
  EXPECT_EQ(set.arms[0].runs[0].tool, report.tool);
  EXPECT_EQ(set.arms[0].runs[1].tool, other);
}

TEST(RunSet, BuildsOfOneCommitAreDistinguishedWhereItDoesNotNameTheirSources) {
  Tool tool = made_up_report({{"run", {1}}}).tool;
  tool.git_commit = std::string(40, 'a');
  tool.dirty = false;
  Tool other = tool;
  tool.build_id = std::string(64, '1');
  other.build_id = std::string(64, '2');
  EXPECT_EQ(build_text(tool), build_text(other));
  tool.dirty = other.dirty = true;
  EXPECT_NE(build_text(tool), build_text(other));
}

TEST(RunSet, TwoMachinesOfOneRunStayTwoEvenWhereNothingDistinguishesThem) {
  Report report = made_up_report({{"2x1x1", {1, 2}}});
  report.environments.push_back(report.environments[0]);
  for (nearmetal::Run& run : report.arms[0].runs) {
    run.ranks.push_back(run.ranks[0]);
    run.ranks[1].environment = 1;
  }
  RunSet set;
  add_runs(set, report, "a.json");
  EXPECT_EQ(set.environments.size(), 2U);
  for (const SetRun& run : set.arms[0].runs) {
    EXPECT_NE(run.run.ranks[0].environment, run.run.ranks[1].environment);
  }
}

TEST(RunSet, ANameWithAHashIsAFileIfThereIsOne) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_runs({folder.write("a#1.json", report_text({1}))}).arms.size(), 2U);
}

TEST(RunSet, ManyFilesKeepTheirOrder) {
  const TemporaryFolder folder;
  Places places;
  for (int i = 0; i < 40; ++i) {
    places.push_back(folder.write(std::to_string(i) + ".json", report_text({1.0 + i}, i)));
  }
  const std::vector<RunSet> sides = read_sides({places, {places[7]}});
  ASSERT_EQ(sides.size(), 2U);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(sides[0].arms[0].runs[i].source, places[i]);
  EXPECT_EQ(sides[1].arms[0].runs.size(), 1U) << "a run may be on both sides";
}

TEST(RunSet, RefusalsNameTheFile) {
  const TemporaryFolder folder;
  const std::string a = folder.write("a.json", report_text({1}));
  const std::string copy = folder.write("copy.json", report_text({1}));
  EXPECT_THAT(refusal_of_runs({a, copy}), HasSubstr("would count twice"));
  EXPECT_THAT(refusal_of_runs({a, copy}), HasSubstr("copy.json"));
  EXPECT_THAT(refusal_of_runs({a + "#4x4"}), HasSubstr("no arm '4x4'; it has: 1x1, 1x2"));
  EXPECT_THAT(refusal_of_runs({a, folder.write("bad.json", "{")}),
              HasSubstr("bad.json is not a valid"));
  EXPECT_THAT(refusal_of_runs({(folder / "none.json").string()}),
              HasSubstr("none.json cannot be read"));
  folder.write("empty/x.txt", "");
  EXPECT_THAT(refusal_of_runs({(folder / "empty").string()}), HasSubstr("holds no report"));
}

TEST(Baseline, AddsCopiesAndOverwritesNothing) {
  const TemporaryFolder folder;
  const auto file = folder.write("a.json", report_text({1}));
  const auto add = [&](const std::string& report) {
    return add_to_baseline(folder / "baselines", "main", {report}).changed.at(0);
  };
  const auto added = add(file);
  EXPECT_EQ(content_of(added), content_of(file));
  EXPECT_THROW(add(file), std::invalid_argument);
  const auto other = add(folder.write("b.json", report_text({2}, 9)));
  EXPECT_EQ(other.parent_path(), added.parent_path()) << "the same fingerprint";
  Report elsewhere = made_up_report({{"1x1", {3}}});
  elsewhere.environments[0].gpus[0].name = "NVIDIA A30";
  EXPECT_NE(add(folder.write("c.json", to_json(elsewhere))).parent_path(), added.parent_path());
  EXPECT_THAT(baseline_names(folder / "baselines"), ElementsAre("main"));
  EXPECT_TRUE(baseline_names(folder / "none").empty());
}

TEST(Baseline, RefusesBadNamesAndReportsWithoutACompleteRun) {
  const TemporaryFolder folder;
  const auto file = folder.write("a.json", report_text({1}));
  for (const char* name : {"", "..", "a/b", "-x", ".hidden", "a b", "a\n"}) {
    EXPECT_THROW(add_to_baseline(folder.path(), name, {file}), std::invalid_argument) << name;
  }
  Report failed = made_up_report({{"1x1", {1}}});
  failed.arms[0].runs[0].status = Status::failed;
  const auto bad = folder.write("f.json", to_json(failed));
  EXPECT_THROW(add_to_baseline(folder.path(), "x", {file, bad}), InvalidReport)
      << "nor is the good one before it added";
  EXPECT_TRUE(baseline_names(folder.path()).empty());
}

std::vector<double> values_of(const RunSet& set) {
  std::vector<double> values;
  for (const SetRun& run : set.arms.at(0).runs) values.push_back(*run.run.throughput);
  return values;
}

TEST(Baseline, TheWindowHoldsTheLatestRuns) {
  const RunSet history = made_up_set({{"run", {1, 2, 3, 4, 5}}});
  const RunSet next = made_up_set({{"run", {9}}}, 60);
  const Baseline latest = matching_runs(history, next, {.recent_runs = 3});
  EXPECT_THAT(values_of(latest.recent), ElementsAre(3, 4, 5));
  EXPECT_THAT(values_of(latest.anchor), ElementsAre(1, 2, 3)) << "the window has left the first";
  const Baseline all = matching_runs(history, next, {});
  EXPECT_THAT(values_of(all.recent), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_TRUE(all.anchor.arms.empty()) << "these are all, of one session";
}

// Sessions of 2 runs, one a day.
TEST(Baseline, TheAnchorIsTheFirstRuns) {
  RunSet history;
  for (int day = 0; day < 4; ++day) {
    Report report = made_up_report({{"run", {10.0 * day + 1, 10.0 * day + 2}}});
    for (auto& run : report.arms[0].runs) run.started_at[9] = static_cast<char>('1' + day);
    add_runs(history, report, "made up");
  }
  const RunSet next = made_up_set({{"run", {9}}}, 60);
  const Baseline all = matching_runs(history, next, {.recent_runs = 3});
  EXPECT_THAT(values_of(all.recent), ElementsAre(22, 31, 32));
  EXPECT_THAT(values_of(all.anchor), ElementsAre(1, 2, 11));
  const Baseline small = matching_runs(history, next, {.anchor_runs = 2});
  EXPECT_THAT(values_of(small.anchor), ElementsAre(1, 2));
  const Baseline later = matching_runs(history, next, {.since = "2026-01-33", .anchor_runs = 2});
  EXPECT_THAT(values_of(later.recent), ElementsAre(21, 22, 31, 32));
  EXPECT_THAT(values_of(later.anchor), ElementsAre(21, 22));
  EXPECT_TRUE(matching_runs(history, next, {.since = "2027"}).recent.arms.empty());
}

TEST(Baseline, OfSeveralSessionsIsPlannedByThem) {
  const auto series = [](const std::vector<double>& levels) {
    RunSet history;
    for (size_t day = 0; day < levels.size(); ++day) {
      Report report = made_up_report({{"run", {levels[day], levels[day] + 2}}});
      for (auto& run : report.arms[0].runs) run.started_at[9] = static_cast<char>('1' + day);
      add_runs(history, report, "made up");
    }
    return series_of(history, "main", {}).at(0);
  };
  const BaselineSeries four = series({1000, 1010, 1005, 995});
  EXPECT_EQ(four.sessions, 4);
  EXPECT_NEAR(*four.lower, 1003.47 - 10.3, .5) << "3 degrees of freedom of 4 means";
  ASSERT_EQ(four.needed_runs.size(), 3u);
  EXPECT_FALSE(four.needed_runs[2].runs);
  const double deviation = four.spread.value.value_or(0);
  ASSERT_GT(deviation, 0);
  ASSERT_TRUE(four.needed_runs[2].sessions);
  const auto power = [](int64_t sessions) {  // of means that spread by 0.645 %, margin 2 %, 4 %
    const std::vector<RunGroup> groups = {{.00642, 4}, {.00642, sessions}};
    return chance_of_deciding(groups, std::log(.96), {});
  };
  EXPECT_GE(power(*four.needed_runs[2].sessions), .95);
  EXPECT_LT(power(*four.needed_runs[2].sessions - 1), .95);
  EXPECT_FALSE(four.needed_runs[0].sessions) << "2.5 %: four sessions of a base tell too little";
  EXPECT_THAT(series({1000, 1000}).needed_runs[0].sessions.reason, HasSubstr("are equal"));
}

RunSet runs_on(const std::vector<std::pair<std::string, double>>& hosts) {
  RunSet set;
  int minute = 0;
  for (const auto& [host, level] : hosts) {
    Report report = made_up_report({{"run", {level, level + 1, level + 2}}}, minute += 10);
    Environment& machine = report.environments[0];
    machine.host_name = host;
    machine.boot_id = "boot of " + host;
    machine.machine_id = Unknown{"not told"};
    machine.gpus[0].name = "GPU of " + host;
    add_runs(set, report, "made up");
  }
  return set;
}

TEST(Baseline, GatesEachMachineAgainstItsOwn) {
  const RunSet history = runs_on({{"a", 1000}, {"b", 500}});
  RunSet next = runs_on({{"b", 510}, {"a", 1010}, {"c", 700}});
  EXPECT_THAT(new_hosts(history, next), ElementsAre("c"));
  const Baseline base = matching_runs_by_machine(history, next, {});
  ASSERT_EQ(next.arms.size(), 3U);
  EXPECT_EQ(next.arms[1].name, "run on b");
  ASSERT_EQ(base.recent.arms.size(), 2U) << "c has none";
  EXPECT_EQ(base.recent.arms[1].name, "run on b");
  EXPECT_EQ(*base.recent.arms[1].runs[0].run.throughput, 500);
  for (const ComparisonRow& row : compare(base.recent, next, {}).rows) {
    const bool is_new = row.arm == "run on c";
    EXPECT_EQ(row.verdict == Verdict::not_comparable, is_new) << row.arm << ", " << row.reason;
  }
  RunSet namesakes = runs_on({{"vm1", 1}, {"vm2", 2}});
  for (const size_t i : {0, 1}) {
    namesakes.environments.at(i).host_name = "vm";
    namesakes.environments.at(i).machine_id = std::string(16, i == 0 ? '1' : '2');
  }
  EXPECT_EQ(by_machine(namesakes).count("vm (22222222)"), 1U) << "two machines of one name";
  RunSet renamed = runs_on({{"d", 1}});
  renamed.environments[0].boot_id = std::string("boot of a");
  EXPECT_TRUE(new_hosts(history, renamed).empty()) << "a container of the same machine";
}

// The drop at which each of the splits turns SLOWER, found again by comparing.
TEST(Baseline, TestsItself) {
  const auto tested = [](const RunSet& set) {
    return series_of(set, "main", {}, true).at(0).self_test.value();
  };
  const std::vector<double> runs = {1000, 1003, 998, 1001, 996, 1004, 999, 1002};
  const SelfTest one = tested(made_up_set({{"run", runs}}));
  EXPECT_EQ(one.splits, 1000);
  EXPECT_EQ(one.slower, 0);
  EXPECT_GT(*one.detectable_drop, .022);
  EXPECT_LT(*one.detectable_drop, .035);
  RunSet days;
  const std::vector<double> levels = {1000, 1004, 997, 900};
  for (size_t day = 0; day < levels.size(); ++day) {
    Report report = made_up_report({{"run", {levels[day], levels[day] + 2}}});
    for (auto& run : report.arms[0].runs) run.started_at[9] = static_cast<char>('1' + day);
    add_runs(days, report, "made up");
  }
  const SelfTest sessions = tested(days);
  EXPECT_EQ(sessions.splits, 4);
  EXPECT_EQ(sessions.slower, 1) << "the last day, of the others";
  EXPECT_EQ(tested(made_up_set({{"run", {1000, 1001, 1002}}})).splits, 0);
  RunSet two = made_up_set({{"run", {1000, 1001, 1002, 1000, 1001, 1002}}});
  for (size_t i = 3; i < 6; ++i) two.arms[0].runs[i].session = "another";
  EXPECT_FALSE(tested(two).detectable_drop) << "two sessions, one a side";
  EXPECT_FALSE(tested(made_up_set({{"run", {1000, 1001, 1002}}})).detectable_drop);
}

TEST(Baseline, TakesTheRunsOfTheSameMachineOrElseTheNearest) {
  Report a30 = made_up_report({{"run", {30, 31}}});
  a30.environments[0].gpus[0].name = "NVIDIA A30";
  Report a30_of_old_work = made_up_report({{"run", {20}}}, 10);
  a30_of_old_work.environments[0].gpus[0].name = "NVIDIA A30";
  a30_of_old_work.invocation.config.batch = 1;
  RunSet history = made_up_set({{"run", {1, 2}}}, 20);
  add_runs(history, a30, "a30.json");
  add_runs(history, a30_of_old_work, "old.json");
  RunSet next;
  add_runs(next, a30, "new.json");
  const RunSet matching = matching_runs(history, next, {}).recent;
  EXPECT_THAT(values_of(matching), ElementsAre(30, 31));
  ASSERT_EQ(matching.environments.size(), 1U) << "not those of other machines";
  EXPECT_EQ(matching.environments[0].gpus[0].name, "NVIDIA A30");
  EXPECT_EQ(matching.arms[0].runs[0].run.ranks[0].environment, 0);
  EXPECT_THAT(values_of(matching_runs(history, made_up_set({{"run", {9}}}), {}).recent),
              ElementsAre(1, 2));
  Report newer = a30;
  newer.environments[0].libraries["cuDNN"] = "10";
  RunSet upgraded;
  add_runs(upgraded, newer, "newer.json");
  EXPECT_THAT(values_of(matching_runs(history, upgraded, {}).recent), ElementsAre(30, 31))
      << "to say what differs";
}

}  // namespace
}  // namespace nearmetal
