#include "bench/monitor/monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>

#include "base/errors.h"
#include "bench/cli/process.h"
#include "bench/monitor/monitor_sources.h"
#include "tests/support/host_fixture.h"
#include "tests/support/temporary_folder.h"

namespace nearmetal {
namespace {

using testing::HasSubstr;

void wait_seconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// Writes the /proc entry of a process that has used the CPUs for `ticks`.
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

TEST(Monitor, WhereNoTickHasPassedItIsAsBefore) {
  const TemporaryFolder root;
  const auto read = [](CpuSource& source) {
    std::vector<double> values(CpuSource::names().size());
    source.read(values.data());
    return values;
  };
  root.write("proc/stat", "cpu 0 0 0 1000 0 0 0 0\n");
  CpuSource source(root.path(), 1);
  EXPECT_TRUE(std::isnan(read(source)[1])) << "nothing has been counted";
  root.write("proc/stat", "cpu 30 0 0 1060 0 0 0 10\n");
  const std::vector<double> values = read(source);
  EXPECT_NEAR(values[0], 0.3, 1e-12);
  EXPECT_NEAR(values[1], 0.1, 1e-12);
  const std::vector<double> again = read(source);
  for (const int column : {0, 1, 2}) EXPECT_EQ(again[column], values[column]);
  root.write("proc/stat", "cpu 30 0 0 1160 0 0 0 10\n");
  EXPECT_EQ(read(source)[1], 0);
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

TEST(Monitor, ConstructedH200GivesSeries) {
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
  EXPECT_TRUE(found->joules) << "the counter stands still, which is 0 J";
  EXPECT_EQ(found->samples_per_joule.reason, "the counter of energy stood still");
  EXPECT_TRUE(found->not_monitored.contains("pcie_sent_bytes_per_second"));
}

TEST(Monitor, JoulesAreReadOnceMoreAtTheEndOfTheWindow) {
  const TemporaryFolder folder;
  const std::string answers =
      content_of(std::string(NM_TESTS_FOLDER) + "/data/nvml/constructed_two_h200.txt");
  const auto counter_at = [&](int64_t millijoules) {
    folder.write("answers.txt", "nvmlDeviceGetTotalEnergyConsumption 0 " +
                                    std::to_string(millijoules) + "\n" + answers);
  };
  counter_at(5000);
  setenv("FAKE_NVML_ANSWERS", (folder / "answers.txt").c_str(), 1);
  TrainerProgress progress;
  progress.window_steps = 10;
  progress.window_first_step = 0;
  Monitor monitor({.hz = 4, .pci_id = "0000:1b:00.0", .nvml_library = NM_FAKE_NVML}, progress);
  wait_seconds(0.45);  // two looks: the first opens the window
  counter_at(12000);
  const auto found = monitor.stop(14.);
  unsetenv("FAKE_NVML_ANSWERS");
  ASSERT_TRUE(found);
  EXPECT_NEAR(*found->joules, 7, 1e-9);
  EXPECT_NEAR(*found->samples_per_joule, 2, 1e-9) << "by the counter, whatever the power";
}

TEST(Monitor, TrafficOfRdmaPortsIsThatOfTheWindow) {
  const HostFixture host("constructed_roce_port_down");
  const auto counter = host.root() / "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data";
  TrainerProgress progress;
  progress.window_steps = 10;
  progress.window_first_step = 0;
  Monitor monitor({.hz = 100, .root = host.root()}, progress);
  wait_seconds(0.3);
  std::ofstream(counter) << "1250\n";  // 1000 before, in words of 4 bytes
  const auto found = monitor.stop(1.);
  ASSERT_TRUE(found);
  ASSERT_EQ(found->rdma_traffic.size(), 1);
  EXPECT_EQ(*found->rdma_traffic[0].sent_bytes, 1000);
  EXPECT_EQ(*found->rdma_traffic[0].received_bytes, 0);
}

TEST(Monitor, OfAMigDeviceMemoryAndProcessesAreItsOwn) {
  const TemporaryFolder folder;
  const std::string fixture =
      content_of(std::string(NM_TESTS_FOLDER) + "/data/nvml/constructed_mig_balanced.txt");
  setenv("FAKE_NVML_ANSWERS", folder.write("answers.txt", fixture).c_str(), 1);
  const GpuSource source(NM_FAKE_NVML, "0000:1b:00.0", "MIG-00000000-0000-0000-0000-000000000002");
  std::vector<double> values(GpuSource::names().size());
  source.read(values.data());
  EXPECT_NEAR(values[2], 612.345, 1e-9) << "of the GPU";
  EXPECT_NEAR(values[6], 3e9, 1) << "of the third device";
  EXPECT_EQ(source.processes(), 1);
  EXPECT_THROW(GpuSource(NM_FAKE_NVML, "0000:1b:00.0", "MIG-none"), NotSupported);
  unsetenv("FAKE_NVML_ANSWERS");
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
