#include "reports/attribution/attribution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/support/made_up_machine.h"

namespace nearmetal {
namespace {

using Runs = std::vector<Run>;
using enum LaunchMode;
using testing::HasSubstr;
using testing::IsEmpty;

Explanation explained(const Runs& base, const Runs& next,
                      const Maybe<double>& noise_share = Unknown{"one run"}) {
  ExplainedSide base_side, new_side;
  for (const Run& run : base) base_side.runs.push_back(&run);
  for (const Run& run : next) new_side.runs.push_back(&run);
  return explain(base_side, new_side, noise_share);
}

Explanation explained(const Machine& base, const Machine& next) {
  return explained({run_on(base)}, {run_on(next)});
}

void expect_sum(const Explanation& explanation) {
  double sum = explanation.unexplained_seconds;
  for (const LayerShare& layer : explanation.layers) sum += layer.seconds.value.value_or(0);
  EXPECT_NEAR(sum, explanation.difference_seconds, 1e-12);
  EXPECT_EQ(explanation.layers.size(), 7U);
}

// `layer` alone differs, costs `seconds`, and explains all of it.
void expect_only(const Explanation& explanation, Layer layer, double seconds) {
  SCOPED_TRACE(to_string(layer));
  const LayerShare& first = explanation.layers.front();
  EXPECT_EQ(first.layer, layer) << to_string(first.layer);
  ASSERT_TRUE(first.counts()) << first.statement;
  EXPECT_NEAR(*first.seconds, seconds, 1e-9);
  EXPECT_NEAR(*first.share_of_step, seconds / explanation.base_step_seconds, 1e-6);
  EXPECT_NEAR(*first.share_of_difference, 1, 1e-6);
  EXPECT_NEAR(explanation.unexplained_seconds, 0, 1e-9);
  for (size_t i = 1; i < explanation.layers.size(); ++i) {
    EXPECT_FALSE(explanation.layers[i].counts()) << to_string(explanation.layers[i].layer);
    EXPECT_THAT(explanation.layers[i].statement, testing::Not(IsEmpty()));
  }
  ASSERT_FALSE(explanation.causes.empty());
  EXPECT_EQ(explanation.causes.front().layer, layer);
  expect_sum(explanation);
}

TEST(Attribution, LayersOfTheDeviceScaleTheirShareOfTheStep) {
  Machine slow_clock{.step_seconds = 0.027, .sm_hertz = 0.8 * 1.9e9};
  slow_clock.product_seconds *= 1.25;  // the product meets the same clock
  expect_only(explained(Machine{}, slow_clock), Layer::clock, 0.003);
  expect_only(explained(Machine{}, {.step_seconds = 0.0264, .product_seconds = 1.2 * 1.4e-3}),
              Layer::compute, 0.0024);
  expect_only(explained(Machine{}, {.step_seconds = 0.027, .copy_seconds = 1.25 * 5e-4}),
              Layer::memory, 0.003);
}

TEST(Attribution, ComputeIsWhatTheClockDoesNotExplain) {
  const Explanation both = explained(
      Machine{}, {.step_seconds = 0.0264, .sm_hertz = 1.9e9 / 1.1, .product_seconds = 1.68e-3});
  EXPECT_NEAR(*layer_in(both, Layer::clock).seconds, 0.0012, 1e-9);
  EXPECT_NEAR(*layer_in(both, Layer::compute).seconds, 0.012 * (1.2 / 1.1 - 1), 1e-9);
  expect_sum(both);
  EXPECT_DOUBLE_EQ(beyond(1.2, 1.1), 1.2 / 1.1);
  EXPECT_DOUBLE_EQ(beyond(1.05, 1.1), 1) << "a short probe need not meet the clock of the window";
  EXPECT_DOUBLE_EQ(beyond(1, 1.1), 1);
  EXPECT_DOUBLE_EQ(beyond(0.9, 1.1), 0.9) << "what points the other way is not the clock's";
  EXPECT_DOUBLE_EQ(beyond(0.8, 0.9), 0.8 / 0.9);
  EXPECT_DOUBLE_EQ(beyond(0.95, 0.9), 1);
  EXPECT_DOUBLE_EQ(beyond(1.2, 1), 1.2);
}

// Kernel by kernel, so small that the host's queueing fills the step.
Machine host_bound() {
  return {.step_seconds = 0.010, .floor_seconds = 0.001, .queue_seconds = 0.0096, .launch = stream};
}

TEST(Attribution, WhereTheHostKeepsTheDeviceWaitingItsLayersCount) {
  Machine stolen = host_bound();
  stolen.step_seconds = 0.015;
  stolen.taken_away = 1.5;
  expect_only(explained(host_bound(), stolen), Layer::cpu, 0.005);
  Machine slow_path = host_bound();
  slow_path.step_seconds = 0.013;
  slow_path.queue_seconds *= 1.3;
  expect_only(explained(host_bound(), slow_path), Layer::launch, 0.003);
  // A slower device hides behind the host.
  Machine slow_memory = host_bound();
  slow_memory.copy_seconds *= 2;
  EXPECT_FALSE(layer_in(explained(host_bound(), slow_memory), Layer::memory).sensitive);
}

TEST(Attribution, AHiddenLayerIsSaidToBeInsensitive) {
  Machine stolen;
  stolen.taken_away = 3;
  stolen.queue_seconds *= 3;
  stolen.h2d_seconds *= 3;
  const Explanation explanation = explained(Machine{}, stolen);
  for (const Layer layer : {Layer::cpu, Layer::launch, Layer::input, Layer::communication}) {
    const LayerShare& share = layer_in(explanation, layer);
    EXPECT_FALSE(share.sensitive) << to_string(layer);
    EXPECT_EQ(share.seconds, Maybe<double>(0.0));
    EXPECT_THAT(share.statement, HasSubstr("this workload is insensitive to this layer"));
  }
  EXPECT_THAT(layer_in(explanation, Layer::input).statement, HasSubstr("--input host"));
  EXPECT_THAT(layer_in(explanation, Layer::cpu).statement, HasSubstr("0.300 ms, hidden"));
  EXPECT_THAT(explanation.causes, IsEmpty());
}

TEST(Attribution, AnExchangeOnOneSideAloneCounts) {
  const Machine alone;
  Machine together;
  together.exposed_seconds = 0.002;
  together.step_seconds += 0.002;
  expect_only(explained(alone, together), Layer::communication, 0.002);
  EXPECT_NEAR(*layer_in(explained(together, alone), Layer::communication).seconds, -0.002, 1e-9);
}

TEST(Attribution, TheInputCopyCountsAsFarAsItIsNotHidden) {
  const Machine base{.input_bytes = 268435456, .launch = stream};  // 5 ms behind 24 ms
  Machine slow = base;
  slow.h2d_seconds = 0.030;
  slow.step_seconds = 0.030;
  expect_only(explained(base, slow), Layer::input, 0.006);
  Machine pageable = base;  // by another way
  pageable.input_pageable = true;
  pageable.step_seconds = pageable.pageable_seconds = 0.040;
  expect_only(explained(base, pageable), Layer::input, 0.016);
  Machine bound = base;  // the copy is the step
  bound.h2d_seconds = 0.0235;
  Machine slower = bound;
  slower.h2d_seconds *= 2;
  slower.step_seconds = 0.048;
  expect_only(explained(bound, slower), Layer::input, 0.024);
}

// As with sums through sockets: GPUs that wait take less power, and clock higher.
TEST(Attribution, WhatMadeTheDifferenceComesBeforeWhatEasedIt) {
  const Machine fast{.step_seconds = 0.0255, .exposed_seconds = 0.0001};
  Machine slow = fast;
  slow.step_seconds = 0.027;
  slow.exposed_seconds = 0.0009;
  slow.sm_hertz *= 1.12;
  const Explanation slower = explained(fast, slow);
  EXPECT_EQ(slower.layers[0].layer, Layer::communication);
  EXPECT_EQ(slower.layers[1].layer, Layer::clock);
  EXPECT_LT(*slower.layers[1].seconds, -*slower.layers[0].seconds) << "the larger of the two";
  EXPECT_EQ(explained(slow, fast).layers[0].layer, Layer::communication);
}

TEST(Attribution, CommunicationIsWhatIsExposed) {
  const Machine base{.step_seconds = 0.025, .exposed_seconds = 0.001};
  Machine next = base;
  next.step_seconds = 0.028;
  next.exposed_seconds = 0.004;
  Explanation explanation = explained(base, next);
  expect_only(explanation, Layer::communication, 0.003);
  EXPECT_THAT(explanation.layers[0].statement, HasSubstr("ranks wait for one another"));
  next.sums_seconds *= 3;
  explanation = explained(base, next);
  EXPECT_THAT(explanation.layers[0].statement, HasSubstr("the sums differ"));
  next.p2p_seconds *= 3;
  explanation = explained(base, next);
  EXPECT_THAT(explanation.layers[0].statement, HasSubstr("the links between GPUs differ"));
}

Machine cpu_machine() { return {.device = Device::cpu, .step_seconds = 0.1, .launch = call}; }

TEST(Attribution, WhereTheCpuComputesItsTimeScalesTheWholeStep) {
  Machine stolen = cpu_machine();
  stolen.taken_away = 1.8;
  stolen.step_seconds = 0.18;
  stolen.product_seconds *= 1.7;
  stolen.copy_seconds *= 1.75;  // both suffer from the same cause
  expect_only(explained(cpu_machine(), stolen), Layer::cpu, 0.08);
  Machine slow = cpu_machine();
  slow.quantum_seconds *= 1.2;
  slow.product_seconds *= 1.2;
  slow.step_seconds = 0.12;
  expect_only(explained(cpu_machine(), slow), Layer::clock, 0.02);
  Machine memory = cpu_machine();
  memory.copy_seconds *= 1.5;
  memory.step_seconds = 0.125;
  const Explanation explanation = explained(cpu_machine(), memory);
  expect_only(explanation, Layer::memory, 0.025);
  EXPECT_THAT(layer_in(explanation, Layer::launch).statement, HasSubstr("the CPU itself computes"));
}

TEST(Attribution, TwoCausesAtOnceAreBothNamedTheLargerFirst) {
  const Machine base{.step_seconds = 0.025, .exposed_seconds = 0.001};
  Machine next = base;
  next.copy_seconds *= 1.25;
  next.exposed_seconds = 0.006;
  next.step_seconds = 0.034;
  const Explanation explanation = explained(base, next);
  EXPECT_EQ(explanation.layers[0].layer, Layer::communication);
  EXPECT_EQ(explanation.layers[1].layer, Layer::memory);
  EXPECT_NEAR(*explanation.layers[0].share_of_difference, 5. / 9, 1e-6);
  EXPECT_NEAR(*explanation.layers[1].share_of_difference, 3. / 9, 1e-6);
  EXPECT_NEAR(explanation.unexplained_seconds, 0.001, 1e-9);
  EXPECT_NEAR(*explanation.unexplained_share, 1. / 9, 1e-6);
  expect_sum(explanation);
}

TEST(Attribution, WhatProbesDoNotTellApartIsBelowTheNoise) {
  Machine next{.step_seconds = 0.0242};
  next.copy_seconds *= 1.02;
  next.product_seconds *= 0.98;
  const Explanation explanation = explained(Machine{}, next);
  for (const LayerShare& share : explanation.layers) EXPECT_FALSE(share.counts());
  EXPECT_THAT(layer_in(explanation, Layer::memory).statement, HasSubstr("below the noise"));
  EXPECT_THAT(explanation.causes, IsEmpty());
  expect_sum(explanation);
}

TEST(Attribution, WhatTheComparisonDoesNotResolveIsBelowTheNoise) {
  Machine next{.step_seconds = 0.0246};
  next.copy_seconds *= 1.05;  // 0.6 ms
  const Runs base = {run_on({})}, other = {run_on(next)};
  EXPECT_TRUE(layer_in(explained(base, other, 0.01), Layer::memory).counts());
  const Explanation explanation = explained(base, other, 0.05);
  EXPECT_NEAR(*explanation.noise_seconds, 0.0012, 1e-12);
  const LayerShare& memory = layer_in(explanation, Layer::memory);
  EXPECT_TRUE(memory.below_noise);
  EXPECT_THAT(memory.statement, HasSubstr("1.20 ms"));
  EXPECT_NEAR(*memory.seconds, 0.0006, 1e-9);
}

TEST(Attribution, AnImprovementHasItsLayersToo) {
  Machine better{.step_seconds = 0.0216};
  better.copy_seconds *= 0.8;
  const Explanation explanation = explained(Machine{}, better);
  EXPECT_EQ(explanation.layers[0].layer, Layer::memory);
  EXPECT_NEAR(*explanation.layers[0].seconds, -0.0024, 1e-9);
  EXPECT_NEAR(*explanation.layers[0].share_of_difference, 1, 1e-6);
  EXPECT_THAT(explanation.causes, IsEmpty()) << "causes are those of what costs time";
  expect_sum(explanation);
}

TEST(Attribution, AProbeThatIsMissingLeavesItsLayerOpen) {
  nearmetal::Run base = run_on({}), next = run_on({.step_seconds = 0.03});
  for (nearmetal::Run* run : {&base, &next}) run->ranks[0].monitoring.reset();
  for (ProbeTime& probe : next.ranks[0].probes->probes) {
    if (probe.name == memory_probe) probe.median_seconds = Unknown{"out of memory"};
  }
  const Explanation explanation = explained({base}, {next});
  const LayerShare& memory = layer_in(explanation, Layer::memory);
  EXPECT_FALSE(memory.seconds);
  EXPECT_THAT(memory.statement, HasSubstr("out of memory"));
  EXPECT_FALSE(layer_in(explanation, Layer::clock).seconds);
  EXPECT_NEAR(explanation.unexplained_seconds, 0.006, 1e-9);
  base.ranks[0].probes->needs.memory_seconds = Unknown{"no rate"};
  EXPECT_THAT(layer_in(explained({base}, {next}), Layer::compute).statement, HasSubstr("no rate"));
}

TEST(Attribution, OfRanksTheSlowestCountsAndOfRunsTheMedian) {
  const Machine base{.step_seconds = 0.025, .exposed_seconds = 0.001};
  Machine next = base;
  next.step_seconds = 0.028;
  nearmetal::Run other = run_on(next);
  for (ProbeTime& probe : other.ranks[1].probes->probes) {
    if (probe.name == memory_probe) probe.median_seconds = 1.25 * *probe.median_seconds;
  }
  EXPECT_EQ(explained({run_on(base)}, {other}).layers[0].layer, Layer::memory);
  const nearmetal::Run good = run_on(base);
  EXPECT_FALSE(layer_in(explained({good}, {good, other, good}), Layer::memory).counts())
      << "one odd run of three is not the side";
}

TEST(Attribution, WhateverDiffersTheSumIsTheDifference) {
  std::mt19937 random(7);
  std::lognormal_distribution<double> factor(0, 0.3);
  for (int i = 0; i < 500; ++i) {
    const auto machine = [&] {
      Machine made{.device = i % 2 == 0 ? Device::cuda : Device::cpu,
                   .step_seconds = 0.024 * factor(random),
                   .input_bytes = i % 3 == 0 ? 5e8 * factor(random) : 0,
                   .exposed_seconds = i % 5 == 0 ? 1e-3 * factor(random) : 0};
      for (double Machine::*part :
           {&Machine::sm_hertz, &Machine::product_seconds, &Machine::copy_seconds,
            &Machine::quantum_seconds, &Machine::taken_away, &Machine::h2d_seconds}) {
        made.*part *= factor(random);
      }
      made.queue_seconds = 0.02 * factor(random);
      return made;
    };
    expect_sum(explained(machine(), machine()));
  }
}

TEST(Attribution, ValuesThatMakeNoSenseGiveNoFigure) {
  nearmetal::Run base = run_on({.input_bytes = 1e300}), next = run_on({.input_bytes = 1e-300});
  for (ProbeTime& probe : base.ranks[0].probes->probes) probe.median_seconds = 1e-307;
  for (ProbeTime& probe : next.ranks[0].probes->probes) probe.median_seconds = 1e307;
  const Explanation explanation = explained({base}, {next});
  for (const LayerShare& share : explanation.layers) {
    EXPECT_TRUE(std::isfinite(share.seconds.value.value_or(0))) << to_string(share.layer);
    for (const SeenProbe& probe : share.seen) {
      EXPECT_TRUE(std::isfinite(probe.base.value.value_or(0))) << probe.name;
    }
  }
  EXPECT_THAT(layer_in(explanation, Layer::memory).statement, HasSubstr("make no sense"));
  next.window.value->seconds = 1e300;
  EXPECT_THAT(cannot_explain({{&next}, {}}), HasSubstr("make no sense"));
}

}  // namespace
}  // namespace nearmetal
