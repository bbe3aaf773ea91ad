#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "reports/compare/environment_differences.h"
#include "reports/formats/comparison_json.h"
#include "reports/formats/comparison_text.h"
#include "tests/support/made_up_machine.h"
#include "tests/support/made_up_runs.h"

namespace nearmetal {
namespace {

using Runs = std::vector<Run>;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

RunSet set_of(const Runs& runs) {
  Report report = sample_report();
  report.arms[0].runs = runs;
  RunSet set;
  add_runs(set, report, "made up");
  return set;
}

Runs some_runs(const Machine& machine, int first_minute) {
  Runs runs;
  for (const double spread : {1.0, 1.002, 0.999, 1.001}) {
    Machine one = machine;
    one.step_seconds *= spread;
    runs.push_back(run_on(one));
    runs.back().started_at = time_at(first_minute++);
  }
  return runs;
}

TEST(Attribution, CompareExplainsWhereBothSidesHaveProbes) {
  const Machine slow{.step_seconds = 0.027, .copy_seconds = 1.25 * 5e-4};
  const RunSet base = set_of(some_runs({}, 0)), next = set_of(some_runs(slow, 60));
  const Comparison comparison = compare(base, next, {});
  ASSERT_EQ(comparison.explanations.size(), 1U);
  EXPECT_EQ(comparison.explanations[0].arm, "run");
  EXPECT_EQ(comparison.explanations[0].layers[0].layer, Layer::memory);
  EXPECT_LT(*comparison.explanations[0].noise_seconds, 0.0003);
  std::ostringstream text, markdown;
  print_text(text, page_of(comparison));
  EXPECT_THAT(text.str(), HasSubstr("a step takes 27.01 ms instead of 24.01 ms (+12.5 %)"));
  EXPECT_THAT(text.str(), HasSubstr("copy/device 4295 GB/s -> 3436 GB/s"));
  EXPECT_THAT(text.str(), HasSubstr("likely cause 1, memory: "));
  EXPECT_THAT(text.str(), testing::Not(HasSubstr("--attribute")));
  print_markdown(markdown, page_of(comparison));
  EXPECT_THAT(markdown.str(), HasSubstr("| memory | +3.00 | +12.5 % | "));
  EXPECT_THAT(to_json(comparison, std::nullopt, ExitCode::ok), HasSubstr("\"layer\": \"memory\""));
}

TEST(Attribution, CompareCallsTheSidesByTheirNames) {
  CompareOptions options;
  options.form = ComparisonForm::vm;
  std::ostringstream text;
  const Machine slow{.step_seconds = 0.027};
  print_text(text,
             page_of(compare(set_of(some_runs({}, 0)), set_of(some_runs(slow, 60)), options)));
  EXPECT_THAT(text.str(), HasSubstr("seen, host with a hypervisor -> VM\n"));
  EXPECT_THAT(text.str(), HasSubstr("take more with this layer of the VM\n"));
}

TEST(Attribution, CompareExplainsOnlyADifferenceThatIsShown) {
  const auto compared = [](const Runs& base, const Runs& next) {
    return compare(set_of(base), set_of(next), {});
  };
  const Runs runs = some_runs({}, 0);
  const Machine faster{.step_seconds = 0.024 * 0.99};
  for (const Runs& same : {runs, some_runs({.step_seconds = 0.02401}, 60), Runs{runs[1]}}) {
    const Comparison comparison = compared(same.size() == 1 ? Runs{runs[0]} : runs, same);
    EXPECT_THAT(comparison.explanations, IsEmpty());
    ASSERT_EQ(comparison.notes.size(), 1U);
    EXPECT_EQ(comparison.notes[0].code, "no_difference_shown");
    EXPECT_THAT(comparison.notes[0].text, HasSubstr("run: no difference is shown ("));
  }
  EXPECT_EQ(compared(runs, some_runs(faster, 60)).explanations.size(), 1U) << "within the margin";
  EXPECT_EQ(compared({run_on({})}, {run_on({.step_seconds = 0.03})}).explanations.size(), 1U)
      << "of one run a side, which has no interval, what goes beyond the margin";
}

TEST(Attribution, WhatAnotherLayerTakesIsNotSaidToAgree) {
  const Machine slow_clock{
      .step_seconds = 0.027, .sm_hertz = 1.9e9 / 1.25, .product_seconds = 1.75e-3};
  std::ostringstream text;
  print_text(text,
             page_of(compare(set_of(some_runs({}, 0)), set_of(some_runs(slow_clock, 60)), {})));
  EXPECT_THAT(text.str(), HasSubstr("below the noise: what is left beyond clock agrees within 3 %; "
                                    "product/fp16 785.7 TFLOP/s -> 628.6 TFLOP/s"));
}

TEST(Attribution, CompareSaysHowToGetAnExplanation) {
  const Comparison comparison =
      compare(made_up_set({{"run", {1000, 1002}}}), made_up_set({{"run", {900, 902}}}, 60), {});
  ASSERT_EQ(comparison.explanations.size(), 1U) << "the sample has probes";
  RunSet bare = made_up_set({{"run", {900, 902}}}, 60);
  for (SetRun& run : bare.arms[0].runs) run.run.ranks[0].probes.reset();
  const Comparison without = compare(made_up_set({{"run", {1000, 1002}}}), bare, {});
  EXPECT_THAT(without.explanations, IsEmpty());
  ASSERT_FALSE(without.notes.empty());
  EXPECT_EQ(without.notes.back().code, "not_explained");
  EXPECT_THAT(without.notes.back().text, HasSubstr("run both sides with --attribute"));
}

// The model is made of the base, which has no images to copy and half as much to do.
TEST(AttributionCompare, DoesNotExplainOtherWork) {
  const RunSet base = set_of(some_runs({}, 0));
  for (const auto& [field, value] : {std::pair("batch", "512"), std::pair("input", "host"),
                                     std::pair("device", "cpu"), std::pair("classes", "10")}) {
    RunSet other = set_of(some_runs({.step_seconds = 0.05}, 60));
    for (SetRun& run : other.arms[0].runs) {
      std::vector<KeyField> key = run.key;
      for (KeyField& one : key) {
        if (one.name == field) one.value = value;
      }
      run.key = key;
    }
    CompareOptions options;
    options.allow_differ = {field};
    const Comparison comparison = compare(base, other, options);
    EXPECT_THAT(comparison.explanations, IsEmpty());
    ASSERT_EQ(comparison.notes.size(), 1U);
    EXPECT_THAT(comparison.notes[0].text, HasSubstr(std::string("other work: ") + field));
  }
}

TEST(AttributionCompare, RefusesSidesWithoutProbes) {
  const nearmetal::Run good = run_on({});
  nearmetal::Run bare = good;
  bare.ranks[0].probes.reset();
  EXPECT_THAT(cannot_explain({{&good, &bare}, {}}), HasSubstr("--attribute"));
  EXPECT_THAT(cannot_explain({}), HasSubstr("no complete run"));
  nearmetal::Run jobs = good;
  jobs.jobs.resize(2);
  EXPECT_THAT(cannot_explain({{&jobs}, {}}), HasSubstr("several jobs"));
  EXPECT_EQ(cannot_explain({{&good}, {}}), "");
  EXPECT_THROW(explain({{&good}, {}}, {{&bare}, {}}, Unknown{"one run"}), std::invalid_argument);
}

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
