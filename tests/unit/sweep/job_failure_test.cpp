#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <thread>

#include "base/errors.h"
#include "bench/sweep/job_process.h"
#include "reports/document/metric.h"
#include "tests/support/sample_report.h"
#include "tests/support/temporary_folder.h"

namespace nearmetal {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string heartbeat(int64_t rank, RankPhase phase, int64_t steps,
                      std::optional<std::string> stage = {}) {
  Event event;
  event.stage = std::move(stage);
  event.kind = EventKind::progress;
  event.rank = rank;
  event.host = "vm" + std::to_string(rank);
  event.phase = phase;
  event.steps = steps;
  return to_json_line(event);
}

void print(std::string& script, const std::string& line, const char* where = "") {
  script += "echo '" + line + "'" + where + "\n";
}

// A shell in place of mpirun.
struct ScriptedJob {
  explicit ScriptedJob(const std::string& script) : process({"bash", "-c", script}) {}

  void update_for(std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (!process.ended() && std::chrono::steady_clock::now() < end) {
      process.update();
      poll(nullptr, 0, 10);
    }
    process.update();
  }

  JobProcess process;
};

constexpr const char* to_err = " >&2";
constexpr std::chrono::seconds long_enough{20};

TEST(JobFailure, AKilledRankIsTheCauseOfWhatOthersSay) {
  std::string script;
  print(script, heartbeat(0, RankPhase::window, 9));
  print(script, heartbeat(1, RankPhase::window, 8, "stage 1 of 2"), to_err);
  print(script, "nearmetal: rank 0 (vm0) failed in the window, step 9: MPI_Allreduce", to_err);
  print(script,
        "mpirun noticed that process rank 1 with PID 5 on node vm1 exited on signal 9 (Killed).",
        to_err);
  ScriptedJob job(script + "exit 137");
  job.update_for(long_enough);
  ASSERT_TRUE(job.process.ended());
  EXPECT_EQ(failure_of_job(job.process).text,
            "process rank 1 with PID 5 on node vm1 exited on signal 9 (Killed). "
            "(exit code 137; stage 1 of 2, window, step 8)");
}

TEST(JobFailure, TheMessageOfOpenMpi5GoesOnInTheNextLine) {
  std::string script;
  print(script, "prterun noticed that process rank 1 with PID 42 on node vm exited on", to_err);
  print(script, "signal 9 (Killed).", to_err);
  ScriptedJob job(script + "exit 137");
  job.update_for(long_enough);
  EXPECT_THAT(failure_of_job(job.process).text,
              StartsWith("process rank 1 with PID 42 on node vm exited on signal 9 (Killed). ("));
}

TEST(JobFailure, ALauncherThatFailsIsReportedWithItsReason) {
  const auto reason_of = [](std::initializer_list<const char*> lines) {
    std::string script;
    for (const char* line : lines) print(script, line, to_err);
    ScriptedJob job(script + "exit 255");
    job.update_for(long_enough);
    return failure_of_job(job.process).text;
  };
  const std::string end = " (exit code 255; before it said anything)";
  EXPECT_EQ(reason_of({"Warning: added vm0", "ssh: connect to host vm1: no route", "-----",
                       "ORTE was unable", "-----"}),
            "ssh: connect to host vm1: no route" + end);
  EXPECT_EQ(reason_of({"no route to vm1",
                       "[vm0:04773] plm:rsh: Warning: setpgid(4778,4778) failed in parent with "
                       "errno=Permission denied(13)",
                       "-----", "ORTE was unable", "-----"}),
            "no route to vm1" + end);
  EXPECT_EQ(reason_of({"-----", "There are not enough slots", "for all", "-----"}),
            "There are not enough slots for all" + end);
  EXPECT_EQ(
      reason_of({"Warning: Permanently added vm1 to the list of known hosts.", "Welcome to vm1",
                 "-----", "mpirun was unable to find the specified executable file, and therefore",
                 "did not launch the job.  This error was first reported for process", "rank 1.",
                 "", "NOTE: A common cause is misspelling", "", "Node:       vm1",
                 "Executable: /opt/nearmetal", "-----"}),
      "mpirun was unable to find the specified executable file, and therefore did not launch "
      "the job. Node: vm1, Executable: /opt/nearmetal" +
          end);
  EXPECT_EQ(reason_of({"Warning: added vm0", "debug1: Exit status 255", "-----", "ORTE was unable",
                       "to start", "-----"}),
            "ORTE was unable to start" + end);
  EXPECT_EQ(reason_of({"bash: mpirun: not found"}), "bash: mpirun: not found" + end);
  EXPECT_EQ(reason_of({}), "it said nothing" + end);
  const char* const remark = "stopping after this step; once more stops at once";
  EXPECT_EQ(reason_of({remark, "mpirun was aborted"}), "mpirun was aborted" + end);
  EXPECT_EQ(reason_of({remark, remark}), "it was told to end" + end);
}

TEST(JobFailure, WhatIsSaidAtTheEndIsReadWholeHoweverMuchAPipeHolds) {
  JobProcess process({"bash", "-c", "read order; exec seq 100000 >&2"});
  constexpr int pipe_bytes = 1 << 20;  // as where pages are 64 KiB
  if (fcntl(process.err(), F_SETPIPE_SZ, pipe_bytes) < pipe_bytes) {
    GTEST_SKIP() << "no pipe may be that large here";
  }
  process.order("go");
  pollfd closed{process.err(), 0, 0};
  poll(&closed, 1, -1);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // until it has ended
  while (!process.ended()) process.update();
  EXPECT_EQ(process.errors().back(), "100000");
}

TEST(JobFailure, WhatAKilledProcessSaidBeforeIsNoReason) {
  std::string script;
  print(script, "nearmetal: device cpu (asked for)", to_err);
  ScriptedJob job(script + "kill -9 $$");
  job.update_for(long_enough);
  EXPECT_EQ(failure_of_job(job.process).text, "it was killed (signal 9; before it said anything)");
}

TEST(JobFailure, AKilledLauncherMayLeaveProcessesOnOtherHosts) {
  std::string script;
  print(script, heartbeat(0, RankPhase::window, 9));
  print(script, heartbeat(1, RankPhase::window, 9), to_err);
  ScriptedJob killed(script + "kill -9 $$"), ended(script + "exit 6");
  killed.update_for(long_enough);
  ended.update_for(long_enough);
  const auto remark = HasSubstr("; what the launcher started on vm0, vm1 may go on there");
  EXPECT_THAT(failure_of_job(killed.process).text, remark);
  EXPECT_THAT(failure_of_job(ended.process).text, Not(remark));
}

// Ranks have process groups of their own, and no parent once their launcher was killed.
TEST(JobProcess, EndsWhatAKilledLauncherLeavesOnThisHost) {
  ScriptedJob job("set -m; sleep 1000 & echo $! >&2; kill -9 $$");
  job.update_for(long_enough);
  ASSERT_TRUE(job.process.ended());
  const std::string left = "/proc/" + job.process.errors().at(0);
  const auto runs = [&] {  // nobody may have waited for one that has ended
    const std::string stat = content_of(left + "/stat");
    return stat.find(") ") != stat.npos && stat.find(") Z") == stat.npos;
  };
  const auto end = std::chrono::steady_clock::now() + long_enough;
  while (runs() && std::chrono::steady_clock::now() < end) poll(nullptr, 0, 10);
  EXPECT_FALSE(runs());
}

TEST(JobFailure, TheRankThatSpeaksFirstIsNamedWithItsOwnStep) {
  std::string script;
  print(script, heartbeat(0, RankPhase::window, 10));
  print(script, heartbeat(1, RankPhase::warm_up, 3), to_err);
  print(script, "nearmetal: rank 1 (vm1) failed in the warm-up, step 4: broken", to_err);
  print(script, "nearmetal: rank 0 (vm0) failed in the window, step 11: consequence", to_err);
  ScriptedJob job(script + "exit 6");
  job.update_for(long_enough);
  EXPECT_EQ(failure_of_job(job.process).text,
            "rank 1 (vm1) failed in the warm-up, step 4: broken (exit code 6; warm-up, step 3)");
}

std::string failure_line(int64_t rank, const Failure& failure) {
  Event event;
  event.kind = EventKind::failure;
  event.rank = rank;
  event.failure = failure;
  return to_json_line(event);
}

TEST(JobFailure, IsWhatARankSentWhateverElseIsSaid) {
  const Failure sent{FailureCode::expect_mig, 2, "rank 1 (vm1): no MIG device"};
  std::string script;
  print(script, heartbeat(0, RankPhase::set_up, 0));
  print(script, heartbeat(1, RankPhase::warm_up, 3), to_err);
  print(script, "nearmetal: rank 0 (vm0) is spoken of by a library", to_err);
  print(script, failure_line(1, sent), to_err);
  print(script, failure_line(0, {{}, 6, "a consequence"}));
  ScriptedJob job(script + "exit 1");
  job.update_for(long_enough);
  const Failure failure = failure_of_job(job.process);
  EXPECT_EQ(failure.text, "rank 1 (vm1): no MIG device (exit code 1; warm-up, step 3)");
  EXPECT_EQ(failure.code, FailureCode::expect_mig);
  EXPECT_EQ(failure.exit_code, 2) << "that of the rank, not of its launcher";
}

TEST(JobFailure, ACodeBelongsToTheTextThatARankSentAlone) {
  std::string script;
  print(script, failure_line(0, {FailureCode::expect_gpu, 2, "an L4"}));
  print(script, "mpirun noticed that process rank 1 with PID 5 exited on signal 9.", to_err);
  ScriptedJob killed(script + "exit 137");
  killed.update_for(long_enough);
  EXPECT_THAT(failure_of_job(killed.process).text, StartsWith("process rank 1"));
  EXPECT_EQ(failure_of_job(killed.process).code, std::nullopt);
  ScriptedJob silent("echo 'nearmetal: --expect-gpu H200: host a has an L4' >&2; exit 2");
  silent.update_for(long_enough);
  EXPECT_EQ(failure_of_job(silent.process).code, std::nullopt) << "what it says is not searched";
}

TEST(JobFailure, IsWhatAReportThatIsNotCompleteSays) {
  Event event;
  event.kind = EventKind::result;
  event.report = sample_report();
  fail_run("the network did not learn", event.report->arms[0].runs[0]);
  event.report->status = Status::failed;
  std::string script;
  print(script, heartbeat(0, RankPhase::proof, 9));
  script += "cat <<'END'\n" + to_json_line(event) + "\nEND\n";
  print(script, "nearmetal: said by another", to_err);
  ScriptedJob job(script + "exit 6");
  job.update_for(long_enough);
  EXPECT_EQ(failure_of_job(job.process).text,
            "the run is failed: the network did not learn (exit code 6; proof)");
}

TEST(JobFailure, OnStandardErrorRanksOnlySendProgressAndFailure) {
  Event event;
  event.kind = EventKind::ready;
  std::string script;
  print(script, to_json_line(event), to_err);
  ScriptedJob job(script + "exit 6");
  job.update_for(long_enough);
  EXPECT_FALSE(job.process.ready());
}

TEST(JobFailure, AJobThatSaysNothingHasAnEndingAllTheSame) {
  ScriptedJob job("kill -9 $$");
  job.update_for(long_enough);
  EXPECT_EQ(failure_of_job(job.process).text, "it was killed (signal 9; before it said anything)");
}

TEST(JobFailure, TheSilentRankHangs) {
  std::string script;
  print(script, heartbeat(1, RankPhase::window, 7), to_err);
  script += "while sleep 0.2; do\n";
  print(script, heartbeat(0, RankPhase::window, 7));
  ScriptedJob job(script + "done");
  job.update_for(std::chrono::milliseconds(500));
  EXPECT_EQ(place_of_standstill(job.process), " (window, step 7)") << "too early to tell";
  job.update_for(std::chrono::milliseconds(2500));
  EXPECT_EQ(place_of_standstill(job.process), ": rank 1 (vm1) is silent (window, step 7)");
  EXPECT_GT(job.process.seconds_without_step(), 2);
}

TEST(JobFailure, TheFirstStepIsNamedBeforeItIsDone) {
  const std::vector<std::pair<RankPhase, std::string>> cases{
      {RankPhase::set_up, " (set-up)"},
      {RankPhase::warm_up, " (warm-up, step 0)"},
      {RankPhase::proof, " (proof)"}};
  for (const auto& [phase, expected] : cases) {
    std::string script;
    print(script, heartbeat(0, phase, 0));
    ScriptedJob job(script + "sleep 2");
    job.update_for(std::chrono::milliseconds(500));
    EXPECT_EQ(place_of_standstill(job.process), expected);
  }
}

TEST(JobFailure, EventsOfAnotherVersionArePassedOver) {
  std::string line = heartbeat(0, RankPhase::window, 7);
  const std::string known = "\"progress\"";
  line.replace(line.find(known), known.size(), "\"cooled\"");
  std::string script;
  print(script, line);
  ScriptedJob job(script + "exit 6");
  job.update_for(long_enough);
  EXPECT_EQ(failure_of_job(job.process).text,
            "it said nothing (exit code 6; before it said anything)");
}

TEST(JobFailure, LinesThatOnlyLookLikeProgressAreKept) {
  ScriptedJob job("echo '{ \"a library\" }' >&2; exit 6");
  job.update_for(long_enough);
  EXPECT_THAT(failure_of_job(job.process).text, StartsWith("{ \"a library\" } (exit code 6"));
}

}  // namespace
}  // namespace nearmetal
