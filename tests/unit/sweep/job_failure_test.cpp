#include "bench/sweep/job_failure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <thread>

#include "models/errors.h"

namespace nearmetal {
namespace {

using testing::StartsWith;

std::string heartbeat(int64_t rank, RankPhase phase, int64_t steps) {
  Event event;
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
  print(script, heartbeat(1, RankPhase::window, 8), to_err);
  print(script, "nearmetal: rank 0 (vm0) failed in the window, step 9: MPI_Allreduce", to_err);
  print(script,
        "mpirun noticed that process rank 1 with PID 5 on node vm1 exited on signal 9 (Killed).",
        to_err);
  ScriptedJob job(script + "exit 137");
  job.update_for(long_enough);
  ASSERT_TRUE(job.process.ended());
  EXPECT_EQ(reason_of_end(job.process),
            "process rank 1 with PID 5 on node vm1 exited on signal 9 (Killed). "
            "(exit code 137; window, step 8)");
}

TEST(JobFailure, OfALauncherThatFailsItsReasonIsTold) {
  const auto reason_of = [](std::initializer_list<const char*> lines) {
    std::string script;
    for (const char* line : lines) print(script, line, to_err);
    ScriptedJob job(script + "exit 255");
    job.update_for(long_enough);
    return reason_of_end(job.process);
  };
  const std::string end = " (exit code 255; before it said anything)";
  EXPECT_EQ(reason_of({"Warning: added vm0", "ssh: connect to host vm1: no route", "-----",
                       "ORTE was unable", "-----"}),
            "ssh: connect to host vm1: no route" + end);
  EXPECT_EQ(reason_of({"-----", "There are not enough slots", "for all", "-----"}),
            "There are not enough slots" + end);
  EXPECT_EQ(reason_of({"bash: mpirun: not found"}), "bash: mpirun: not found" + end);
  EXPECT_EQ(reason_of({}), "it said nothing" + end);
}

TEST(JobFailure, TheRankThatSpeaksFirstIsNamedWithItsOwnStep) {
  std::string script;
  print(script, heartbeat(0, RankPhase::window, 10));
  print(script, heartbeat(1, RankPhase::warm_up, 3), to_err);
  print(script, "nearmetal: rank 1 (vm1) failed in the warm-up, step 4: broken", to_err);
  print(script, "nearmetal: rank 0 (vm0) failed in the window, step 11: consequence", to_err);
  ScriptedJob job(script + "exit 6");
  job.update_for(long_enough);
  EXPECT_EQ(reason_of_end(job.process),
            "rank 1 (vm1) failed in the warm-up, step 4: broken (exit code 6; warm-up, step 3)");
}

TEST(JobFailure, AnyRankMayTellWhichExpectationDoesNotHold) {
  Event event;
  event.kind = EventKind::failure;
  event.rank = 1;
  event.failure = Failure{FailureCode::expect_mig, 2, "no MIG device"};
  for (const char* where : {"", to_err}) {
    std::string script;
    print(script, to_json_line(event), where);
    print(script, "nearmetal: rank 1 (vm1): no MIG device", to_err);
    ScriptedJob job(script + "exit 2");
    job.update_for(long_enough);
    EXPECT_EQ(job.process.failure_code(), FailureCode::expect_mig);
    EXPECT_THAT(reason_of_end(job.process), StartsWith("rank 1 (vm1): no MIG device"));
  }
  ScriptedJob older("echo 'nearmetal: --expect-gpu H200: host a has an L4' >&2; exit 2");
  older.update_for(long_enough);
  EXPECT_EQ(older.process.failure_code(), std::nullopt) << "what it says is not searched";
}

TEST(JobFailure, AJobThatSaysNothingHasAnEndingAllTheSame) {
  ScriptedJob job("kill -9 $$");
  job.update_for(long_enough);
  EXPECT_EQ(reason_of_end(job.process), "it said nothing (signal 9; before it said anything)");
}

TEST(JobFailure, TheSilentRankStandsStill) {
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
  EXPECT_EQ(reason_of_end(job.process), "it said nothing (exit code 6; before it said anything)");
}

TEST(JobFailure, LinesThatOnlyLookLikeProgressAreKept) {
  ScriptedJob job("echo '{ \"a library\" }' >&2; exit 6");
  job.update_for(long_enough);
  EXPECT_THAT(reason_of_end(job.process), StartsWith("{ \"a library\" } (exit code 6"));
}

}  // namespace
}  // namespace nearmetal
