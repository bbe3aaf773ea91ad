#include <gmock/gmock.h>

#include <atomic>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "bench/micro/probes.h"

namespace nearmetal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr TimingOptions quick{.repetitions = 3, .seconds = 0.01};

// A clock of its own: every run takes this long.
Probe steady(const std::string& name, double seconds) {
  return {.name = name, .work = "nothing", .start = [seconds]() -> TimedRuns {
            return [seconds](int64_t runs) { return seconds * static_cast<double>(runs); };
          }};
}

nlohmann::json timed(const std::vector<Probe>& probes, const TimingOptions& options) {
  std::ostringstream out;
  EXPECT_THAT(time_probes(probes, options, TimingForm::json, out), IsEmpty());
  return nlohmann::json::parse(out.str());
}

TEST(TimeProbes, RatesFollowFromTheProbesOwnClock) {
  Probe probe = steady("link", 1e-3);
  probe.bytes = 4e6;
  probe.bus_factor = 1.5;
  probe.flops = 2e9;
  TimingOptions options = quick;
  options.ceilings = {.copy_bytes_per_second = 8e9, .matrix_flops_per_second = 1e13};
  const nlohmann::json run = timed({probe}, options).at("benchmarks").at(0);
  EXPECT_EQ(run.at("time_unit"), "us");
  EXPECT_NEAR(run.at("real_time"), 1000, 1e-6);
  EXPECT_NEAR(run.at("p99_microseconds"), 1000, 1e-6);
  EXPECT_NEAR(run.at("bytes_per_second"), 4e9, 1);
  EXPECT_NEAR(run.at("bus_bytes_per_second"), 6e9, 1);
  EXPECT_NEAR(run.at("flops_per_second"), 2e12, 1000);
  EXPECT_NEAR(run.at("share_of_floor"), 0.5, 1e-9);  // 4e6 / 8e9 of 1e-3 s; flops take 2e-4 s
}

TEST(TimeProbes, TableShowsTheMedianAndDashesForWhatThereIsNot) {
  std::ostringstream out;
  EXPECT_THAT(time_probes({steady("cpu/quantum", 2.5e-4)}, quick, TimingForm::table, out),
              IsEmpty());
  std::istringstream rows(out.str().substr(out.str().find('\n')));
  std::vector<std::string> words{std::istream_iterator<std::string>(rows), {}};
  EXPECT_THAT(words, ElementsAre("cpu/quantum", "250.0", "250.0", "-", "-", "-", "-", "nothing"));
}

TEST(TimeProbes, SlowestRunsShowInTheQuantileAlone) {
  Probe probe = steady("disturbed", 0);
  probe.start = []() -> TimedRuns {
    return [run = 0](int64_t) mutable { return ++run % 20 == 0 ? 1e-3 : 1e-4; };
  };
  const nlohmann::json run = timed({probe}, quick).at("benchmarks").at(0);
  EXPECT_NEAR(run.at("p99_microseconds"), 1000, 1e-6);
  EXPECT_NEAR(run.at("median_microseconds"), 100, 1e-6);
  EXPECT_NEAR(run.at("real_time"), 145, 15);
}

TEST(TimeProbes, StartsOnceAndLetsGoBeforeTheNext) {
  int held = 0, most_held = 0, starts = 0;
  const auto counted = [&](const std::string& name) {
    Probe probe = steady(name, 1e-3);
    probe.start = [&]() -> TimedRuns {
      ++starts;
      most_held = std::max(most_held, ++held);
      const std::shared_ptr<void> memory(&held, [&](void*) { --held; });
      return [memory](int64_t runs) { return 1e-3 * static_cast<double>(runs); };
    };
    return probe;
  };
  timed({counted("a"), counted("b"), counted("c")}, quick);
  EXPECT_EQ(starts, 3);
  EXPECT_EQ(most_held, 1);
  EXPECT_EQ(held, 0);
}

TEST(TimeProbes, AFailureIsReportedAndTheOthersAreTimed) {
  Probe broken = steady("broken", 1);
  broken.start = []() -> TimedRuns { throw std::runtime_error("no such link"); };
  std::ostringstream out;
  const auto failures = time_probes({broken, steady("sound", 1e-3)}, quick, TimingForm::table, out);
  EXPECT_THAT(failures, ElementsAre("broken: no such link"));
  EXPECT_THAT(out.str(), HasSubstr("sound"));
  EXPECT_THAT(out.str(), HasSubstr("failed"));
}

TEST(TimeProbes, AStopKeepsTheProbesThatHaveEnded) {
  std::atomic<int> stop = 0;
  TimingOptions options = quick;
  options.stop = &stop;
  int64_t runs_after_stop = 0;
  Probe last = steady("last", 1e-3);
  last.start = [&]() -> TimedRuns {
    return [&](int64_t runs) {
      runs_after_stop += stop;
      stop = 1;
      return 1e-3 * static_cast<double>(runs);
    };
  };
  Probe never = steady("never", 1e-3);
  never.start = []() -> TimedRuns { throw std::runtime_error("started"); };
  const nlohmann::json runs = timed({steady("ended", 1e-3), last, never}, options).at("benchmarks");
  for (const nlohmann::json& run : runs) {
    EXPECT_THAT(std::string(run.at("run_name")), testing::StartsWith("ended/"));
  }
  EXPECT_GE(runs.size(), 3);
  EXPECT_EQ(runs_after_stop, 0);
  EXPECT_TRUE(timed({last}, options).at("benchmarks").empty());
}

TEST(TimeProbes, RanksRunEachProbeEquallyOften) {
  TimingOptions options = quick;
  options.collective = true;
  std::vector<int64_t> counts;
  for (const double seconds : {1e-6, 1e-2}) {  // as two ranks of different speed see it
    Probe probe = steady("mpi/broadcast/8B", seconds);
    probe.bytes = 8;
    int64_t& count = counts.emplace_back(0);
    probe.start = [&count, seconds]() -> TimedRuns {
      return [&count, seconds](int64_t runs) {
        count += runs;
        return seconds * static_cast<double>(runs);
      };
    };
    timed({probe}, options);
  }
  EXPECT_EQ(counts[0], counts[1]);
  EXPECT_GT(counts[0], 100);
}

TEST(TimeProbes, AFailureAmongRanksEndsAll) {
  TimingOptions options = quick;
  options.collective = true;
  Probe broken = steady("nccl/allreduce/8B", 1);
  broken.start = []() -> TimedRuns { throw std::runtime_error("gave 1 instead of 3"); };
  std::ostringstream out;
  EXPECT_THROW(time_probes({broken}, options, TimingForm::none, out), std::runtime_error);
}

TEST(Probe, NamesOfStepsAndExchanges) {
  EXPECT_EQ(step_probe_name("backward", "bn1 + relu"), "step/backward/bn1+relu");
  EXPECT_EQ(exchange_probe_name("mpi", "allreduce", 8), "mpi/allreduce/8B");
  EXPECT_EQ(exchange_probe_name("nccl", "broadcast", 64 << 10), "nccl/broadcast/64KiB");
  EXPECT_EQ(exchange_probe_name("nccl", "broadcast", 4 << 20), "nccl/broadcast/4MiB");
}

TEST(Probe, BytesThatCachesHoldSetNoFloor) {
  constexpr Ceilings memory{.copy_bytes_per_second = 100, .matrix_flops_per_second = 1000};
  Ceilings cached = memory;
  cached.cache_bytes = 30;
  EXPECT_EQ(floor_seconds(100, 500, memory), 1);
  EXPECT_EQ(floor_seconds(100, 100, cached), 0.4) << "30 may be read and 30 written there";
  EXPECT_EQ(floor_seconds(100, 500, cached), 0.5);
  EXPECT_EQ(floor_seconds(60, 0, cached), 0);
  EXPECT_TRUE(bytes_bind(100, 500, memory));
  EXPECT_FALSE(bytes_bind(100, 500, cached));
  cached.cache_bytes = std::numeric_limits<double>::infinity();
  EXPECT_EQ(floor_seconds(1e12, 100, cached), 0.1) << "not known";
}

TEST(Probe, MedianOfSingleRuns) {
  Probe probe = steady("uneven", 0);
  probe.start = []() -> TimedRuns {
    return [run = 0](int64_t) mutable { return std::vector{5.0, 1.0, 3.0}[run++]; };
  };
  EXPECT_EQ(median_seconds(probe, 3), 3);
}

}  // namespace
}  // namespace nearmetal
