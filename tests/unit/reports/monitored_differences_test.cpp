#include "reports/compare/monitored_differences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "reports/compare/compare.h"
#include "tests/support/made_up_runs.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// A run of one rank for each of the values.
std::vector<Run> runs_with(const char* series, const std::vector<double>& values,
                           Device device = Device::cpu) {
  std::vector<Run> runs;
  for (const double value : values) {
    Run& run = runs.emplace_back(made_up_run(1000, time_at(0)));
    run.device = device;
    run.ranks[0].monitoring.emplace().series = {{series, value, value, value, {}}};
  }
  return runs;
}

MonitoredDifferences differences(const std::vector<Run>& base, const std::vector<Run>& next,
                                 bool next_is_slower = true) {
  std::vector<const Run*> of_base, of_next;
  for (const Run& run : base) of_base.push_back(&run);
  for (const Run& run : next) of_next.push_back(&run);
  return monitored_differences(of_base, of_next, next_is_slower);
}

TEST(MonitoredDifferences, AreBeyondWhatRunsOfASideDiffer) {
  const auto clock = [](std::vector<double> base, std::vector<double> next) {
    for (auto* side : {&base, &next}) {
      for (double& gigahertz : *side) gigahertz *= 1e9;
    }
    return differences(runs_with("cpu_hertz", base), runs_with("cpu_hertz", next)).causes;
  };
  EXPECT_THAT(clock({3.5, 3.52}, {2.6, 2.6}),
              ElementsAre("CPU clock 2.60 GHz instead of 3.51 GHz (-25.93 %)"));
  EXPECT_THAT(clock({3.5, 3.1}, {2.9, 2.9}), IsEmpty()) << "the base's runs differ by more";
  EXPECT_THAT(clock({3.5, 3.5}, {3.48, 3.48}), IsEmpty()) << "less than 1 %";
  EXPECT_THAT(clock({3.5}, {2.6}), testing::SizeIs(1)) << "one run a side";
}

TEST(MonitoredDifferences, AreCausesWhereTheySlowTheSlowerSide) {
  const auto base = runs_with("cpu_steal_share", {.01, .01});
  const auto next = runs_with("cpu_steal_share", {.15, .16});
  EXPECT_THAT(differences(base, next).causes,
              ElementsAre("CPU time that the hypervisor stole 15.5 % instead of 1.00 %"));
  EXPECT_THAT(differences(base, next, false).causes, IsEmpty());
  EXPECT_THAT(differences(base, next, false).others, testing::SizeIs(1));
  const auto warm = differences(runs_with("temperature_celsius", {27, 28}, Device::cuda),
                                runs_with("temperature_celsius", {64, 64}, Device::cuda));
  EXPECT_THAT(warm.causes, IsEmpty());
  EXPECT_THAT(differences(runs_with("memory_clock_hertz", {2.6e9}, Device::cuda),
                          runs_with("memory_clock_hertz", {1.6e9}, Device::cuda))
                  .causes,
              testing::SizeIs(1));
  EXPECT_THAT(warm.others, ElementsAre("temperature 64.0 degrees instead of 27.5 degrees"));
}

TEST(MonitoredDifferences, TakeInWhatAllRunsKnow) {
  const auto base = runs_with("cpu_hertz", {3.5e9, 3.5e9});
  auto next = runs_with("cpu_hertz", {2.6e9, 2.6e9});
  next[1].ranks[0].monitoring.reset();
  EXPECT_THAT(differences(base, next).causes, IsEmpty()) << "a run was not monitored";
  EXPECT_THAT(differences(runs_with("cpu_hertz", {3.5e9}, Device::cuda),
                          runs_with("cpu_hertz", {2.6e9}, Device::cuda))
                  .causes,
              IsEmpty())
      << "CPUs wait for the GPU";
}

// Also without --attribute, in place of a note that the cause is not known.
TEST(MonitoredDifferences, AreNotesOfAComparison) {
  RunSet base = made_up_set({{"run", {1000, 1001, 999}}});
  RunSet next = made_up_set({{"run", {760, 761, 759}}}, 60);
  for (auto* set : {&base, &next}) {
    for (SetRun& run : set->arms[0].runs) run.run.ranks[0].probes.reset();
  }
  const auto codes = [&] {
    std::vector<std::string> found;
    for (const Warning& note : compare(base, next, {}).notes) found.push_back(note.code);
    return found;
  };
  EXPECT_THAT(codes(), ElementsAre("not_explained"));
  for (auto* set : {&base, &next}) {
    const double clock = set == &base ? 1.98e9 : 1.5e9;
    for (SetRun& run : set->arms[0].runs) {
      run.run.ranks[0].monitoring.emplace().series = {
          {"sm_clock_hertz", clock, clock, clock, {}},
          {"power_watts", clock / 3e6, clock / 3e6, clock / 3e6, {}}};
    }
  }
  EXPECT_THAT(codes(), ElementsAre("likely_cause", "monitors_differ"));
}

}  // namespace
}  // namespace nearmetal
