#include "bench/sweep/sweep_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "base/sha256.h"
#include "reports/json/json.h"
#include "reports/json/report_files.h"
#include "tests/support/refusal.h"
#include "tests/support/sample_report.h"
#include "tests/support/temporary_folder.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class SweepRunsTest : public testing::Test {
 protected:
  SweepRunsTest() : origin{sha256("plan"), "nearmetal sweep 1x1x1", sample_report().tool} {
    plan.placements.resize(2);
    for (const size_t layout : {0, 1}) {
      plan.placements[layout].layout = "layout " + std::to_string(layout);
      for (const int64_t repeat : {1, 2, 3}) plan.launches.push_back({layout, repeat});
    }
  }

  SweepRuns begun(bool replace = false) { return {none, report, replace, plan, origin, terminal}; }
  SweepRuns resumed() { return {options, report, false, plan, origin, terminal}; }

  // Ended so, by the build at hand.
  JournalEntry entry(int64_t repeat, ExitCode code = ExitCode::ok, int64_t layout = 0) const {
    Report run = sample_report();
    run.arms.resize(1);
    run.arms[0].name = plan.placements.at(layout).layout;
    run.arms[0].runs[0].tool = origin.tool;
    run.exit_code = static_cast<int>(code);
    if (code != ExitCode::ok) run.status = run.arms[0].runs[0].status = Status::failed;
    return {layout, repeat, run};
  }

  TemporaryFolder folder;
  const std::string report = (folder.path() / "s.json").string();
  const std::string journal = report + "l";
  LaunchPlan plan;
  JournalOrigin origin;
  const ResumeOptions none;
  ResumeOptions options{.journal = journal};
  std::ostringstream out, err;
  const Terminal terminal{.out = out, .err = err};
};

TEST_F(SweepRunsTest, FailedOnesAreTakenAgainAndTheLastCounts) {
  {
    SweepRuns runs = begun();
    runs.add(entry(1), false);
    runs.add(entry(2, ExitCode::timed_out), false);
    EXPECT_TRUE(runs.any_failed());
    EXPECT_EQ(runs.exit_code(), ExitCode::timed_out);
  }
  options.keep_failed = true;
  EXPECT_TRUE(resumed().done({0, 2}));
  EXPECT_EQ(resumed().exit_code(), ExitCode::timed_out);
  options.keep_failed = false;
  {
    SweepRuns runs = resumed();
    EXPECT_TRUE(runs.done({0, 1}));
    EXPECT_FALSE(runs.done({0, 2}));
    EXPECT_THAT(err.str(), HasSubstr("2 runs are in the journal, of which 1 failed"));
    runs.add(entry(2), false);
  }
  EXPECT_EQ(resumed().entries().size(), 2);
  EXPECT_FALSE(resumed().any_failed());
}

TEST_F(SweepRunsTest, ACombinationThatCannotRunIsDoneAndNoFailure) {
  JournalEntry refused = entry(1, ExitCode::run_failed);
  refused.report.arms[0].unsupported = "out of memory";
  {
    SweepRuns runs = begun();
    runs.add(refused, false);
    EXPECT_TRUE(runs.done({0, 1}));
    EXPECT_TRUE(runs.done({0, 2})) << "it would be no different";
    EXPECT_FALSE(runs.done({1, 1}));
    EXPECT_FALSE(runs.any_failed());
    EXPECT_EQ(runs.exit_code(), ExitCode::run_failed) << "nothing ran";
    runs.add(entry(1, ExitCode::ok, 1), false);
    EXPECT_EQ(runs.exit_code(), ExitCode::ok);
  }
  SweepRuns runs = resumed();
  EXPECT_TRUE(runs.done({0, 2})) << "also by the journal";
  EXPECT_FALSE(runs.any_failed());
  EXPECT_TRUE(runs.has_run(1));
}

// A plan of two layouts of one job, which leave their choices open.
LaunchPlan plan_with_choices(AllReduceKind all_reduce) {
  LayoutWorkloads workload;
  workload.config.batch = largest_that_fits;
  workload.config.bucket_mib.reset();
  workload.config.pipeline = 2;
  workload.config.all_reduce = all_reduce;
  LaunchPlan plan{.file = {},
                  .placements = {},
                  .workloads = {workload, workload},
                  .launches = {},
                  .options = {}};
  plan.placements.resize(2);
  for (Placement& placement : plan.placements) placement.jobs.resize(1);
  for (LayoutWorkloads& workloads : plan.workloads) workloads.of_jobs[0] = workload;
  return plan;
}

TEST_F(SweepRunsTest, TheFirstRunOfALayoutThatChoseChoosesForAll) {
  const auto chosen_by = [&](int64_t repeat, AllReduceKind chosen) {
    JournalEntry found = entry(repeat);
    found.report.invocation.config.all_reduce = chosen;
    found.report.invocation.config_sha256 = config_sha256(found.report.invocation.config);
    return found;
  };
  const auto pinned = [](const SweepRuns& runs, size_t layout,
                         AllReduceKind asked = AllReduceKind::automatic) {
    LaunchPlan plan = plan_with_choices(asked);
    runs.pin_choices(plan, layout);
    EXPECT_EQ(plan.workloads[1 - layout].config.all_reduce, asked) << "another layout";
    EXPECT_EQ(plan.workloads[layout].config, plan.workloads[layout].of(0).config);
    return plan.workloads[layout].config.all_reduce;
  };
  {
    SweepRuns runs = begun();
    EXPECT_EQ(pinned(runs, 0), AllReduceKind::automatic);
    runs.add(chosen_by(1, AllReduceKind::automatic), false);  // it ended before
    EXPECT_EQ(pinned(runs, 0), AllReduceKind::automatic);
    runs.add(chosen_by(2, AllReduceKind::host), false);
    EXPECT_EQ(pinned(runs, 0), AllReduceKind::host);
    EXPECT_EQ(pinned(runs, 0, AllReduceKind::hierarchical), AllReduceKind::hierarchical);
    EXPECT_EQ(pinned(runs, 1), AllReduceKind::automatic);
  }
  EXPECT_EQ(pinned(resumed(), 0), AllReduceKind::host) << "also by the journal";
}

TEST_F(SweepRunsTest, AllThatIsMeasuredIsChosenOnce) {
  SweepRuns runs = begun();
  for (const int64_t repeat : {1, 2}) {
    JournalEntry found = entry(repeat);
    RunConfig& config = found.report.invocation.config;
    config.batch = 16 * repeat;
    config.all_reduce = AllReduceKind::nccl;
    config.bucket_mib = 4 * repeat;
    config.cuts = "layer" + std::to_string(repeat);
    runs.add(found, false);
  }
  LaunchPlan plan = plan_with_choices(AllReduceKind::automatic);
  LayoutWorkloads& workloads = plan.workloads[0];
  EXPECT_THAT(options_left_open(workloads.config),
              ElementsAre("--batch", "--all-reduce", "--bucket-mib", "--cuts"));
  runs.pin_choices(plan, 0);
  EXPECT_THAT(options_left_open(workloads.config), IsEmpty());
  EXPECT_EQ(workloads.config.batch, 16) << "as the first run chose";
  EXPECT_EQ(workloads.config.bucket_mib, 4);
  EXPECT_EQ(workloads.config.cuts, "layer1");
  EXPECT_THAT(workloads.given, ElementsAre("cuts")) << "the others were asked for";
}

TEST_F(SweepRunsTest, AnotherBuildIsRefusedUnlessTold) {
  begun().add(entry(1), false);
  const Tool first = origin.tool;
  origin.tool.build_id = sha256("another");
  EXPECT_THAT([&] { resumed(); },
              testing::ThrowsMessage<std::invalid_argument>(
                  AllOf(HasSubstr("the journal of another build of nearmetal (" + first.version),
                        HasSubstr(*origin.tool.build_id), HasSubstr("--allow-other-build"))));
  options.any_build = true;
  SweepRuns runs = resumed();
  EXPECT_EQ(runs.add(entry(2), false), ExitCode::ok);
}

TEST_F(SweepRunsTest, ARunOfAProgramThatWasBuiltAnewIsDropped) {
  SweepRuns runs = begun();
  runs.add(entry(1), false);
  origin.tool.build_id = sha256("another");
  EXPECT_EQ(runs.add(entry(2), false), ExitCode::usage);
  EXPECT_THAT(err.str(), HasSubstr("--allow-other-build"));
  JournalEntry elsewhere = entry(1, ExitCode::ok, 1);
  EXPECT_EQ(runs.add(elsewhere, false), ExitCode::usage) << "it runs the program of the sweep";
  elsewhere.report.arms[0].executable = Executable{"old/nearmetal", sha256("old"), {}};
  EXPECT_EQ(runs.add(elsewhere, false), ExitCode::ok) << "it names its own";
  EXPECT_EQ(runs.entries().size(), 2);
}

TEST_F(SweepRunsTest, AJournalThatWasCutInItsHeaderIsBegunAnew) {
  begun();
  const std::string header = file_text(journal);
  for (size_t size = 0; size + 1 < header.size(); size += size < 34 ? 11 : 150) {
    folder.write("s.jsonl", header.substr(0, size));
    EXPECT_EQ(resumed().add(entry(1), false), ExitCode::ok) << size;
    EXPECT_TRUE(resumed().done({0, 1})) << size;
  }
  EXPECT_THAT(err.str(), HasSubstr("ended before its first run: begun anew"));
  folder.write("s.jsonl", "something else");
  EXPECT_THROW(resumed(), InvalidReport);
  EXPECT_EQ(file_text(journal), "something else");
}

TEST_F(SweepRunsTest, AnEntryThatNoSweepOfThePlanWritesIsRefused) {
  const auto refusal = [&](const std::vector<JournalEntry>& entries) {
    {
      Journal written = Journal::create(journal, origin, true);
      for (const JournalEntry& one : entries) written.append(one);
    }
    const std::string text = file_text(journal);
    const std::string why = refusal_of<InvalidReport>([&] { resumed(); });
    EXPECT_EQ(file_text(journal), text) << "nothing is lost";
    const std::string place = journal + " line " + std::to_string(entries.size() + 1) + ": ";
    return why.starts_with(place) ? why.substr(place.size()) : why;
  };
  const auto changed = [&](const auto& change) {
    JournalEntry one = entry(2);
    change(one, one.report.arms[0]);
    return refusal({entry(1), one});
  };
  EXPECT_EQ(refusal({entry(1), entry(2), entry(1, ExitCode::ok, 1)}), "");
  EXPECT_EQ(refusal({entry(1, ExitCode::timed_out), entry(1, ExitCode::run_failed), entry(1)}), "")
      << "failed ones are taken again";
  EXPECT_EQ(refusal({entry(1), entry(1)}), "run 1 of 'layout 0' (layout 0) is there twice");
  EXPECT_EQ(refusal({entry(1), entry(4)}),
            "run 4 of 'layout 0' (layout 0) is not asked for: give as many --repeats as before");
  EXPECT_THAT(changed([](JournalEntry& one, Arm&) { one.layout = 2; }),
              HasSubstr("run 2 of 'layout 0' (layout 2) is not asked for"));
  EXPECT_EQ(changed([](JournalEntry&, Arm& arm) { arm.name = "\033other"; }),
            "/report/arms/0/name is '?other', but that of the layout is 'layout 0'");
  const std::string no_run = "its report is not of one run";
  EXPECT_EQ(changed([](JournalEntry&, Arm& arm) { arm.runs.clear(); }), no_run);
  EXPECT_EQ(changed([](JournalEntry&, Arm& arm) { arm.runs.push_back(arm.runs[0]); }), no_run);
  EXPECT_EQ(changed([](JournalEntry& one, Arm& arm) { one.report.arms.push_back(arm); }), no_run);
  EXPECT_THAT(changed([](JournalEntry& one, Arm&) { one.report.arms.clear(); }),
              HasSubstr("/arms must hold at least one arm"));
  EXPECT_THAT(changed([](JournalEntry&, Arm& arm) { arm.runs[0].status = Status::failed; }),
              HasSubstr("/report/status is complete, but the run is failed"));
  EXPECT_THAT(changed([](JournalEntry&, Arm& arm) { arm.unsupported = "made up"; }),
              HasSubstr("/report/status is complete, but the run is failed"));
  EXPECT_THAT(changed([](JournalEntry& one, Arm&) { one.report.exit_code = 7; }),
              HasSubstr("it contradicts itself: /exit_code is 7"));
  EXPECT_THAT(changed([](JournalEntry& one, Arm&) {
                one.report.invocation.config_sha256 = sha256("another");
              }),
              HasSubstr("it contradicts itself: /invocation/config_sha256"));
  EXPECT_THAT(changed([](JournalEntry& one, Arm&) { one.report.invocation.origins.clear(); }),
              HasSubstr("/invocation/config must be there"));
}

TEST_F(SweepRunsTest, NothingFollowsACombinationThatCannotRun) {
  JournalEntry refused = entry(1, ExitCode::run_failed);
  refused.report.arms[0].unsupported = "out of memory";
  {
    SweepRuns runs = begun();
    runs.add(refused, false);
    runs.add(entry(2), false);
  }
  EXPECT_THAT([&] { resumed(); }, testing::ThrowsMessage<InvalidReport>(
                                      HasSubstr("run 2 of 'layout 0' (layout 0) is there")));
}

// A header and two runs, cut at every so many bytes and around the ends of lines.
class CutJournal : public SweepRunsTest {
 protected:
  void cut_every(size_t bytes) {
    write_two_runs();
    const std::string whole = file_text(journal);
    int64_t lines = 0;  // with their ends
    for (size_t size = 0; size <= whole.size(); ++size) {
      if (size > 0 && whole[size - 1] == '\n') ++lines;
      const std::string around = whole.substr(size < 2 ? 0 : size - 2, 4);
      if (size % bytes != 0 && around.find('\n') == around.npos) continue;
      folder.write("s.jsonl", whole.substr(0, size));
      ASSERT_EQ(std::ssize(resumed().entries()), std::max<int64_t>(0, lines - 1)) << size;
      if (size % (8 * bytes) != 0) continue;
      resumed().add(entry(2), false);
      ASSERT_TRUE(resumed().done({0, 2})) << size;
    }
  }

 private:
  void write_two_runs() {
    SweepRuns runs = begun();
    for (const int64_t repeat : {1, 2}) runs.add(entry(repeat), false);
  }
};

TEST_F(CutJournal, KeepsTheRunsThatAreWhole) { cut_every(211); }

// Minutes: ctest -C slow -R cut_journal
TEST_F(CutJournal, DISABLED_KeepsTheRunsThatAreWholeAtEveryByte) { cut_every(1); }

TEST_F(SweepRunsTest, AJournalIsReplacedWhereTheReportHoldsIt) {
  begun();
  EXPECT_THROW(begun(true), OutputError) << "there is no report";
  folder.write("s.json", "");
  EXPECT_THROW(begun(false), OutputError);
  EXPECT_NO_THROW(begun(true));
  begun(true).add(entry(1), false);
  EXPECT_THROW(begun(true), OutputError) << "it has runs that the report lacks";
  Report held = entry(1).report;
  folder.write("s.json", to_json(held));
  EXPECT_NO_THROW(begun(true));
  begun(true).add(entry(1), false);
  held.arms[0].runs[0].started_at = "2020-01-01T00:00:00Z";
  folder.write("s.json", to_json(held));
  EXPECT_THROW(begun(true), OutputError) << "the report has another run";
  folder.write("s.jsonl", "something else");
  EXPECT_THROW(begun(true), OutputError);
}

}  // namespace
}  // namespace nearmetal
