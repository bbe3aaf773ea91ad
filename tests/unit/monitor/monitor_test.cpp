#include "bench/monitor/monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>

#include "bench/cli/process_clock.h"
#include "bench/monitor/monitor_sources.h"
#include "models/errors.h"
#include "tests/support/temporary_folder.h"

namespace nearmetal {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

// `rows` samples at 10 Hz of one clock, by row.
template <class Clock>
MonitorTable table_of(size_t rows, const Clock& clock) {
  MonitorTable table;
  table.names = {"sm_clock_hertz", "cpu_steal_share", "cpus_busy_with_others"};
  for (size_t i = 0; i < rows; ++i) {
    table.seconds.push_back(5 + 0.1 * static_cast<double>(i));
    table.values.insert(table.values.end(), {clock(i), 0, 0.1});
    table.throttle_bits.push_back(0);
  }
  return table;
}

MonitorTable quiet(size_t rows = 40) {
  return table_of(rows, [](size_t) { return 1.98e9; });
}

TEST(MonitorVerdict, IsCleanWhereNothingHappens) {
  const Monitoring result = judge_samples(quiet());
  EXPECT_EQ(result.verdict, MonitorVerdict::clean);
  EXPECT_THAT(result.seen, ElementsAre());
  EXPECT_NEAR(result.interval_seconds, 0.1, 1e-12);
  EXPECT_EQ(result.series.at(0).values.size(), 40);
  EXPECT_EQ(result.series.at(0).mean, 1.98e9);
}

TEST(MonitorVerdict, HeatThrottlesAndAPowerLimitIsOnlySaid) {
  MonitorTable table = quiet();
  for (auto& bits : table.throttle_bits) bits = 0x4;
  EXPECT_EQ(judge_samples(table).verdict, MonitorVerdict::clean);
  EXPECT_THAT(judge_samples(table).seen, ElementsAre(HasSubstr("power limit in 100 %")));
  table.throttle_bits[7] |= 0x40;
  EXPECT_EQ(judge_samples(table).verdict, MonitorVerdict::throttled);
}

TEST(MonitorVerdict, AClockThatFallsHasDrifted) {
  const auto falling = [](size_t row) { return 2e9 - 1e6 * static_cast<double>(row); };
  EXPECT_EQ(judge_samples(table_of(40, falling)).verdict, MonitorVerdict::clean) << "by 1.5 %";
  EXPECT_EQ(judge_samples(table_of(80, falling)).verdict, MonitorVerdict::drifted) << "by 3 %";
}

TEST(MonitorVerdict, OthersOnTheGpuOrTheCpusShareIt) {
  MonitorTable table = quiet();
  table.most_processes = 2;
  EXPECT_EQ(judge_samples(table).verdict, MonitorVerdict::shared);
  table = quiet();
  for (size_t row = 0; row < 40; ++row) table.values[3 * row + 1] = 0.05;
  EXPECT_EQ(judge_samples(table).verdict, MonitorVerdict::shared);
  EXPECT_THAT(judge_samples(table).seen, Contains(HasSubstr("5.00 % of the CPUs")));
  table = quiet();
  for (size_t row = 0; row < 40; ++row) table.values[3 * row + 2] = 1.5;
  EXPECT_EQ(judge_samples(table).verdict, MonitorVerdict::shared);
  EXPECT_THAT(judge_samples(table).seen, ElementsAre("other processes kept 1.50 CPUs busy"));
}

TEST(MonitorVerdict, OthersThatAreMeantToBeThereDoNotCount) {
  MonitorTable table = quiet();
  table.most_processes = 4;
  for (size_t row = 0; row < 40; ++row) table.values[3 * row + 2] = 3;
  EXPECT_EQ(judge_samples(table, {.sharing_jobs = 4}).verdict, MonitorVerdict::clean);
  EXPECT_EQ(judge_samples(table, {.sharing_jobs = 3}).verdict, MonitorVerdict::shared);
  EXPECT_EQ(judge_samples(table, {.sharing_jobs = 3, .through_mps = true}).verdict,
            MonitorVerdict::clean)
      << "a server";
}

TEST(MonitorVerdict, WhatIsNotToldHasNoSeries) {
  MonitorTable table = quiet();
  table.values[4] = std::numeric_limits<double>::quiet_NaN();
  const Monitoring result = judge_samples(table);
  EXPECT_EQ(result.series.size(), 2);
  EXPECT_TRUE(result.not_monitored.contains("cpu_steal_share"));
}

TEST(MonitorVerdict, LongWindowsHaveShortSeries) {
  const Monitoring result = judge_samples(quiet(3001));
  EXPECT_LE(result.series[0].values.size(), 300);
  EXPECT_NEAR(result.interval_seconds, 1.1, 1e-9);
  EXPECT_EQ(result.samples, 3001);
}

void wait_seconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// What /proc shows of a process that has used the CPUs for `ticks`.
void write_process(const TemporaryFolder& root, int pid, const std::string& name, int parent,
                   int64_t ticks) {
  root.write("proc/" + std::to_string(pid) + "/stat",
             std::to_string(pid) + " (" + name + ") R " + std::to_string(parent) +
                 " 1 1 0 -1 0 0 0 0 0 " + std::to_string(ticks) + " 0 0 0 20 0 1 0 7\n");
}

// A process may end between opening its file and reading it, as a folder can be opened and not
// read.
TEST(Monitor, AProcessThatCannotBeReadIsNone) {
  EXPECT_TRUE(process_stat("/proc/self/stat"));
  EXPECT_FALSE(process_stat("/proc/self"));
  EXPECT_FALSE(process_stat("/proc/missing/stat"));
}

TEST(Monitor, RanksOfTheSameJobAreNoOthers) {
  const TemporaryFolder root;
  std::string name;
  std::ifstream comm("/proc/self/comm");
  std::getline(comm, name);
  const int other = getpid() + 1, other_job = getpid() + 2;
  const auto write_all = [&](int64_t busy, int64_t sibling, int64_t stranger) {
    write_process(root, getpid(), name, getppid(), busy);  // its own clock counts, not this
    write_process(root, other, name, getppid(), sibling);
    write_process(root, other_job, name, getppid() + 1, stranger);
    root.write("proc/stat", "cpu " + std::to_string(busy) + " 0 0 1000 0 0 0 0\n");
  };
  const auto others_after = [&](int64_t ranks, int64_t sibling, int64_t stranger) {
    write_all(0, 0, 0);
    CpuSource source(root.path(), ranks);
    write_all(1'000'000, sibling, stranger);
    std::vector<double> values(CpuSource::names().size());
    source.read(values.data());
    return values[2];
  };
  EXPECT_LT(others_after(2, 1'000'000, 0), 1);
  EXPECT_GT(others_after(2, 0, 1'000'000), 100);
  EXPECT_GT(others_after(1, 1'000'000, 0), 100) << "a run of its own, from the same shell";
}

TEST(Monitor, JobsAndNeighboursOfTheSameSweepAreNoOthers) {
  const TemporaryFolder root;
  std::string name;
  std::ifstream comm("/proc/self/comm");
  std::getline(comm, name);
  const int launcher = getppid(), sweep = getppid() + 100, other_launcher = getppid() + 101;
  const int job = getpid() + 1, neighbour = getpid() + 2;
  const auto others_after = [&](const std::string& name_above) {
    const auto write_all = [&](int64_t ticks) {
      write_process(root, sweep, name_above, 1, 0);
      write_process(root, launcher, "mpirun", sweep, 0);
      write_process(root, other_launcher, "mpirun", sweep, 0);
      write_process(root, job, name, other_launcher, ticks);
      write_process(root, neighbour, name, sweep, ticks);
      root.write("proc/stat", "cpu " + std::to_string(2 * ticks) + " 0 0 1000 0 0 0 0\n");
    };
    write_all(0);
    CpuSource source(root.path(), 1);
    write_all(1'000'000);
    std::vector<double> values(CpuSource::names().size());
    source.read(values.data());
    return values[2];
  };
  EXPECT_LT(others_after(name), 1);
  EXPECT_GT(others_after("bash"), 100) << "jobs of the same shell";
}

TEST(Monitor, SamplesOnlyInsideTheWindow) {
  TrainerProgress progress;
  Monitor monitor({.hz = 100}, progress);
  wait_seconds(0.1);
  EXPECT_FALSE(monitor.stop(Unknown{"none"}));
  progress.window_steps = 10;
  progress.window_first_step = 5;
  Monitor inside({.hz = 100}, progress);
  wait_seconds(0.5);
  const auto found = inside.stop(100.);
  ASSERT_TRUE(found);
  EXPECT_GT(found->samples, 5);
  EXPECT_FALSE(found->joules);
  EXPECT_FALSE(found->samples_per_joule);
  progress.steps_done = 15;  // the window is over
  Monitor after({.hz = 100}, progress);
  wait_seconds(0.1);
  EXPECT_FALSE(after.stop(Unknown{"none"}));
}

TEST(Monitor, IsOffAtNoHertz) {
  TrainerProgress progress;
  progress.window_steps = 10;
  progress.window_first_step = 0;
  Monitor monitor({.hz = 0}, progress);
  EXPECT_FALSE(monitor.stop(1.));
}

TEST(Monitor, ConstructedH200GivesSeriesAndImagesPerJoule) {
  const TemporaryFolder folder;
  const std::string answers =
      content_of(std::string(NM_TESTS_FOLDER) + "/data/nvml/constructed_two_h200.txt");
  setenv("FAKE_NVML_ANSWERS", folder.write("answers.txt", answers).c_str(), 1);
  TrainerProgress progress;
  progress.window_steps = 10;
  progress.window_first_step = 0;
  Monitor monitor({.hz = 50, .pci_id = "0000:1b:00.0", .nvml_library = NM_FAKE_NVML}, progress);
  wait_seconds(0.6);
  const auto found = monitor.stop(1224.69);
  unsetenv("FAKE_NVML_ANSWERS");
  ASSERT_TRUE(found);
  const auto mean_of = [&](const std::string& name) {
    for (const MonitoredSeries& series : found->series) {
      if (series.name == name) return series.mean;
    }
    return std::nan("");
  };
  EXPECT_NEAR(mean_of("sm_clock_hertz"), 1.98e9, 1);
  EXPECT_NEAR(mean_of("power_watts"), 612.345, 1e-9);
  EXPECT_NEAR(mean_of("gpu_busy_share"), 0.99, 1e-12);
  EXPECT_NEAR(mean_of("memory_used_bytes"), 44e9, 1);
  EXPECT_NEAR(*found->samples_per_joule, 2, 1e-9);
  EXPECT_TRUE(found->joules) << "the counter stands still, which is 0 J";
  EXPECT_TRUE(found->not_monitored.contains("pcie_sent_bytes_per_second"));
}

TEST(Monitor, OfAMigDeviceMemoryAndProcessesAreItsOwn) {
  const TemporaryFolder folder;
  const std::string fixture =
      content_of(std::string(NM_TESTS_FOLDER) + "/data/nvml/constructed_mig_balanced.txt");
  setenv("FAKE_NVML_ANSWERS", folder.write("answers.txt", fixture).c_str(), 1);
  const std::string part = "MIG-00000000-0000-0000-0000-000000000002";
  const GpuSource source(NM_FAKE_NVML, "0000:1b:00.0", part);
  std::vector<double> values(GpuSource::names().size());
  source.read(values.data());
  EXPECT_NEAR(values[2], 612.345, 1e-9) << "of the GPU";
  EXPECT_NEAR(values[6], 3e9, 1) << "of the third device";
  EXPECT_EQ(source.processes(), 1);
  EXPECT_THROW(GpuSource(NM_FAKE_NVML, "0000:1b:00.0", "MIG-none"), NotSupported);
  unsetenv("FAKE_NVML_ANSWERS");
}

TEST(Monitor, OnADeviceOfItsOwnASecondProcessIsShared) {
  MonitorTable table;
  table.most_processes = 2;
  EXPECT_EQ(judge_samples(table, {.mig_uuid = "MIG-1", .sharing_jobs = 4}).verdict,
            MonitorVerdict::shared);
  EXPECT_EQ(judge_samples(table, {.sharing_jobs = 4}).verdict, MonitorVerdict::clean);
}

TEST(Monitor, WithoutNvmlTheCpusAreWatchedAndTheReasonIsKept) {
  TrainerProgress progress;
  progress.window_steps = 10;
  progress.window_first_step = 0;
  Monitor monitor({.hz = 100, .pci_id = "0000:1b:00.0", .nvml_library = "libno-such.so.1"},
                  progress);
  wait_seconds(0.4);
  const auto found = monitor.stop(1.);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->not_monitored.at("power_watts"), HasSubstr("libno-such"));
  EXPECT_THAT(found->joules.reason, HasSubstr("libno-such"));
}

}  // namespace
}  // namespace nearmetal
