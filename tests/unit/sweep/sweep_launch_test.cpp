#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include "bench/run/sweep_control.h"
#include "bench/sweep/job_process.h"
#include "bench/sweep/run_layout.h"
#include "reports/json/event_json.h"
#include "tests/support/sample_report.h"
#include "tests/support/temporary_folder.h"

namespace nearmetal {
namespace {

using testing::HasSubstr;

// The command of a shell, in place of mpirun, that prints an event of a job.
std::string telling(EventKind kind, const std::string& host, double unix_seconds) {
  Event event;
  event.kind = kind;
  event.host = host;
  event.phase = RankPhase::warm_up;
  event.unix_seconds = unix_seconds;
  return "echo '" + to_json_line(event) + "'\n";
}

std::string ready(const std::string& host, double unix_seconds) {
  return telling(EventKind::progress, host, unix_seconds) +
         telling(EventKind::ready, host, unix_seconds);
}

LaunchOutcome launch(const std::vector<std::string>& scripts, const TimeLimits& limits = {},
                     int stop = 0) {
  std::vector<std::vector<std::string>> commands;
  for (const std::string& script : scripts) commands.push_back({"bash", "-c", script});
  const std::atomic<int> stopped = stop;
  return run_launch(
      commands, limits, stopped, [](const auto&) {}, true);
}

TEST(SweepLaunch, HostsWhoseClocksAreApartAreNamed) {
  const double now = unix_seconds();
  const std::string wait = "read order; sleep 60";
  // The lines arrive milliseconds apart, on a busy machine more.
  EXPECT_THAT(*launch({ready("vm0", now) + wait, ready("vm1", now - 100) + wait}).failure,
              testing::ContainsRegex("the clock of host vm1 is (9[5-9]|10[0-5])(\\.[0-9]+)? s "
                                     "behind that of host vm0"));
}

TEST(SweepLaunch, AJobAloneStartsWhateverItsClockSays) {
  const LaunchOutcome outcome = launch(
      {ready("vm0", unix_seconds() - 3600) + "read order; echo \"nearmetal: $order\" >&2; exit 6"});
  EXPECT_THAT(*outcome.failure, testing::StartsWith("start -inf "));
}

// As src/ucs/debug/log.c writes it; recorded of UCX 1.13.1.
TEST(SweepLaunch, TheFirstErrorOfUcxIsTold) {
  const std::string error =
      "echo '[1795971237.424750] [host-b:12932:0]          select.c:549  UCX  ERROR   no active "
      "messages transport to <no debug data>: tcp/lo - Destination is unreachable' >&2\n";
  const std::string told =
      "; UCX: no active messages transport to <no debug data>: tcp/lo - Destination is unreachable "
      "(exit code ";
  EXPECT_THAT(*launch({error + "echo MPI_Init >&2; exit 16"}).failure,
              testing::StartsWith("MPI_Init" + told + "16"));
  EXPECT_THAT(*launch({error + "echo 'nearmetal: rank 1 failed' >&2; exit 6"}).failure,
              testing::StartsWith("rank 1 failed" + told + "6"));
  EXPECT_THAT(*launch({"echo '[1.2] [vm:1:0] a.c:1 UCX  WARN  x' >&2; exit 6"}).failure,
              testing::Not(HasSubstr("UCX:")));
}

TEST(SweepLaunch, OneThatWritesWithoutEndIsStoppedAtItsLimits) {
  const TimeLimits limits{.start_seconds = 0.25};
  for (const std::string flood : {"yes", "yes {", "yes >&2", "tr '\\0' { </dev/zero"}) {
    const LaunchOutcome outcome = launch({"exec " + flood}, limits);
    EXPECT_THAT(*outcome.failure, HasSubstr("no step within 0.250 s")) << flood;
    EXPECT_EQ(outcome.code, ExitCode::timed_out);
  }
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(launch({"exec yes"}, {}, SIGTERM).reports.empty());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20))  // of patience
      << "it has told nothing that would be worth waiting for";
}

TEST(SweepLaunch, JobsAtOnceHaveAFolderEachThatGoesWithThem) {
  const TemporaryFolder folder;
  const std::string where = (folder.path() / "where").string();
  // Ends once both have told theirs.
  const std::string wait = "; until [ $(wc -w <" + where + ") = 4 ]; do sleep 0.05; done; " +
                           "touch $TMPDIR/left $OMPI_MCA_btl_sm_backing_directory/left";
  const std::string tell = "echo $TMPDIR $OMPI_MCA_btl_vader_backing_directory >>" + where;
  launch({tell + wait, tell + wait});
  std::ifstream text(where);
  std::vector<std::string> folders;
  for (std::string word; text >> word;) folders.push_back(word);
  ASSERT_EQ(folders.size(), 4);
  EXPECT_EQ((std::set<std::string>{folders.begin(), folders.end()}).size(), 4);
  for (const std::string& used : folders) EXPECT_FALSE(std::filesystem::exists(used)) << used;
}

// A report of rank 0 alone of two, whose launcher handed nothing on.
Report of_one_rank(Status status) {
  Report report = sample_report();
  report.arms.resize(1);
  Run& run = report.arms[0].runs[0];
  run.world_size = 2;
  run.ranks.resize(1);
  report.status = run.status = status;
  run.failure = "interrupted";
  if (status != Status::complete) report.exit_code = static_cast<int>(ExitCode::terminated);
  return report;
}

LaunchOutcome launch_leaving(const std::string& text, const std::string& then = "exit 143") {
  const TemporaryFolder folder;
  folder.write("left", text);
  return launch({"cp " + (folder.path() / "left").string() + " $NEARMETAL_LAST_REPORT; " + then});
}

TEST(SweepLaunch, TakesWhatRankZeroLeftWhereItsLauncherHandedNothingOn) {
  const std::string partial = to_json(of_one_rank(Status::partial));
  const LaunchOutcome outcome = launch_leaving(partial);
  ASSERT_EQ(outcome.reports.size(), 1);
  EXPECT_EQ(outcome.reports[0].arms[0].runs[0].ranks.size(), 1);
  EXPECT_THAT(*outcome.failure, HasSubstr("the run is partial: interrupted (exit code 143; "));
  EXPECT_EQ(outcome.code, ExitCode::run_failed);
  EXPECT_EQ(launch_leaving(partial, "exit 0").code, ExitCode::run_failed) << "it told no result";
}

TEST(SweepLaunch, TakesNoReportThatIsCutOrHoldsLessThanItClaims) {
  const std::string partial = to_json(of_one_rank(Status::partial));
  EXPECT_TRUE(launch_leaving(partial.substr(0, partial.size() / 2)).reports.empty());
  const LaunchOutcome claims = launch_leaving(to_json(of_one_rank(Status::complete)));
  EXPECT_TRUE(claims.reports.empty());
  EXPECT_TRUE(claims.failure);
}

// While it lives, this process can open no file.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int next = dup(STDERR_FILENO);
    close(next);
    const rlimit none{static_cast<rlim_t>(next), before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoMoreFiles() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoMoreFiles(const NoMoreFiles&) = delete;
  NoMoreFiles& operator=(const NoMoreFiles&) = delete;

 private:
  rlimit before_{};
};

TEST(JobFolder, IsNotLeftWhereItsKeeperCannotStart) {
  const TemporaryFolder place;
  const char* before = getenv("TMPDIR");
  const std::optional<std::string> kept =
      before ? std::optional<std::string>(before) : std::nullopt;
  setenv("TMPDIR", place.path().c_str(), 1);
  {
    const NoMoreFiles none;
    EXPECT_THROW(JobFolder(true), std::runtime_error);
  }
  kept ? setenv("TMPDIR", kept->c_str(), 1) : unsetenv("TMPDIR");
  EXPECT_TRUE(std::filesystem::is_empty(place.path()));
}

TEST(JobFolder, WhatCannotBeRemovedAtOnceIsLeftToItsKeeper) {
  std::optional<JobFolder> folder(std::in_place, false);
  const std::string variable = folder->variables().at(0);
  const std::filesystem::path path = variable.substr(variable.find('=') + 1);
  std::ofstream(path / "file") << "of a rank";
  {
    const NoMoreFiles none;
    folder.reset();
  }
  for (int i = 0; i < 1200 && std::filesystem::exists(path); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace nearmetal
