#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "reports/formats/comparison_json.h"
#include "reports/formats/comparison_text.h"
#include "tests/support/made_up_machine.h"
#include "tests/support/made_up_runs.h"

namespace nearmetal {
namespace {

using Runs = std::vector<Run>;
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
  EXPECT_THAT(text.str(), HasSubstr("seen, bare metal -> VM\n"));
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
      for (KeyField& one : run.key) {
        if (one.name == field) one.value = value;
      }
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

}  // namespace
}  // namespace nearmetal
