// The promises of every backend in models/program.h beyond right numbers.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/errors.h"
#include "models/graph.h"
#include "models/networks/registry.h"
#include "tests/ops/check_program.h"
#include "tests/ops/program_test_cases.h"

namespace nearmetal {
namespace {

using ::testing::Each;

std::vector<float> losses(Program& program, int steps) {
  std::vector<float> losses;
  for (int i = 0; i < steps; ++i) losses.push_back(step(program).loss);
  return losses;
}

TEST_F(ProgramTest, MemorisesAFixedBatch) {
  const Graph graph = small_graph();
  ProgramOptions options = with_batch();
  options.optimizer.learning_rate = 0.1;
  const auto program = started(backend(), graph, options);
  random_case(graph, batch_size, 1).give_to(*program);
  const std::vector<float> seen = losses(*program, 60);
  EXPECT_GT(seen.front(), 0.5 * std::log(10.0));
  EXPECT_LT(seen.back(), 0.5 * std::log(10.0));
}

TEST_F(ProgramTest, RestartReproducesEveryRecord) {
  const Graph graph = small_graph();
  const auto program = started(backend(), graph, with_batch());
  std::vector<std::vector<float>> runs;
  for (int run = 0; run < 2; ++run) {
    program->restart(initial_parameters(graph, 1));
    std::vector<float>& values = runs.emplace_back();
    for (int i = 0; i < 4; ++i) {
      const StepRecord record = step(*program);
      values.push_back(record.loss);
      values.push_back(record.gradient_norm);
    }
    for (const auto& tensor :
         {program->parameters(), program->momentum(), program->running_statistics()}) {
      values.insert(values.end(), tensor.begin(), tensor.end());
    }
  }
  EXPECT_EQ(runs[0], runs[1]);
}

TEST_F(ProgramTest, RestartSetsParametersAndForgetsTheRest) {
  const Graph graph = small_graph();
  const auto program = started(backend(), graph, with_batch());
  step(*program);
  const std::vector<float> parameters = initial_parameters(graph, 7);
  program->restart(parameters);
  EXPECT_EQ(program->parameters(), parameters);
  EXPECT_THAT(program->momentum(), Each(0.0f));
  std::vector<float> statistics;
  for (const Node& node : graph.nodes()) {
    if (node.op != OpKind::batch_norm) continue;
    statistics.insert(statistics.end(), node.shape.channels, 0.0f);
    statistics.insert(statistics.end(), node.shape.channels, 1.0f);
  }
  EXPECT_EQ(program->running_statistics(), statistics);
}

TEST_F(ProgramTest, SyntheticLabelsChangeFromStepToStep) {
  ProgramOptions options = with_batch();
  options.optimizer.learning_rate = 0;
  const Graph graph = small_graph();
  const auto program = started(backend(), graph, options);
  const std::vector<float> synthetic = losses(*program, 4);
  EXPECT_EQ(std::set<float>(synthetic.begin(), synthetic.end()).size(), 4u);

  random_case(graph, batch_size, 1).give_to(*program);
  const std::vector<float> fixed = losses(*program, 4);
  EXPECT_THAT(fixed, Each(fixed.front()));

  program->restart(initial_parameters(graph, 1));
  program->use_synthetic_batch();
  EXPECT_EQ(losses(*program, 4), synthetic);
}

TEST_F(ProgramTest, SyntheticDataFollowsItsSeed) {
  const Graph graph = small_graph();
  ProgramOptions options = with_batch();
  const auto program = started(backend(), graph, options);
  const std::vector<float> first = losses(*program, 3);
  options.kernel_choices = program->kernel_choices();
  EXPECT_EQ(losses(*started(backend(), graph, options), 3), first);
  options.data_seed = 2;
  EXPECT_NE(losses(*started(backend(), graph, options), 3), first);
}

TEST_F(ProgramTest, LearningRateZeroLeavesParametersAlone) {
  const Graph graph = small_graph();
  ProgramOptions options = with_batch();
  options.optimizer.learning_rate = 0;
  const auto program = started(backend(), graph, options);
  EXPECT_GT(step(*program).gradient_norm, 0);
  EXPECT_EQ(program->parameters(), initial_parameters(graph, 1));
  EXPECT_THAT(program->momentum(), testing::Not(Each(0.0f)));
}

TEST_F(ProgramTest, ALearningRateOfItsOwnHoldsFromTheNextRestart) {
  const Graph graph = small_graph();
  ProgramOptions options = with_batch();
  const auto usual = started(backend(), graph, options);
  step(*usual);
  options.kernel_choices = usual->kernel_choices();
  options.optimizer.learning_rate = 0;
  const auto program = started(backend(), graph, options);
  program->use_learning_rate(OptimizerOptions().learning_rate);
  program->restart(initial_parameters(graph, 1));
  step(*program);
  EXPECT_EQ(program->parameters(), usual->parameters());
}

TEST_F(ProgramTest, ForwardOnlyTrainsNothing) {
  const Graph graph = small_graph();
  ProgramOptions options = with_batch();
  const auto training = started(backend(), graph, options);
  const float trained = step(*training).loss;
  options.kernel_choices = training->kernel_choices();
  options.forward_only = true;
  const auto program = started(backend(), graph, options);
  const StepRecord record = step(*program);
  EXPECT_EQ(record.loss, trained);
  EXPECT_EQ(record.gradient_norm, 0);
  EXPECT_EQ(program->parameters(), initial_parameters(graph, 1));
  EXPECT_THAT(program->momentum(), Each(0.0f));
}

TEST_F(ProgramTest, LossScaleDoesNotShowInFp32) {
  const Graph graph = small_graph();
  const RandomCase random = random_case(graph, batch_size, 1);
  std::vector<ReferenceStep> steps;
  for (const double scale : {1.0, 64.0}) {
    ProgramOptions options = with_batch();
    options.loss_scale.initial = scale;
    const auto program = backend().prepare(graph, options);
    program->restart(random.parameters);
    random.give_to(*program);
    steps.push_back(run_step(*program));
  }
  EXPECT_TRUE(check_same_step(graph, steps[1], steps[0], 1e-6));
}

TEST_F(ProgramTest, InputFromHostTrainsTheSame) {
  const Graph graph = small_graph();
  ProgramOptions options = with_batch();
  const auto device = started(backend(), graph, options);
  options.kernel_choices = device->kernel_choices();  // other kernels round otherwise
  const RandomCase random = random_case(graph, batch_size, 1);
  for (const Input input : {Input::pinned, Input::pageable}) {
    options.input = input;
    const auto host = started(backend(), graph, options);
    device->restart(initial_parameters(graph, 1));
    device->use_synthetic_batch();
    EXPECT_EQ(losses(*host, 4), losses(*device, 4));
    for (Program* program : {host.get(), device.get()}) {
      program->restart(random.parameters);
      random.give_to(*program);
    }
    EXPECT_EQ(losses(*host, 4), losses(*device, 4));
  }
}

TEST_F(ProgramTest, ProbesTimeEveryKernelOfTheStep) {
  const Graph graph = small_graph();
  const auto program = started(backend(), graph, with_batch());
  const std::vector<ProfileEntry> entries = program->profile(1, false).entries;
  const std::vector<Probe> probes = program->probes();
  ASSERT_EQ(probes.size(), entries.size());
  for (size_t i = 0; i < probes.size(); ++i) {
    EXPECT_EQ(probes[i].name, step_probe_name(to_string(entries[i].phase), entries[i].name));
    EXPECT_EQ(probes[i].work, entries[i].implementation);
    EXPECT_EQ(probes[i].flops, entries[i].flops);
    EXPECT_GT(probes[i].start()(2), 0) << probes[i].name;
  }
}

TEST_F(ProgramTest, ProbesOfTheDeviceTakeTime) {
  for (const Probe& probe : backend().probes(0)) {
    EXPECT_GT(probe.start()(probe.runs_at_once), 0) << probe.name;
  }
}

TEST_F(ProgramTest, QueuedStepsEqualSingleOnes) {
  const Graph graph = small_graph();
  const auto program = started(backend(), graph, with_batch());
  const int steps = std::min(4, program->max_steps_in_flight());
  ASSERT_GE(steps, 1);
  const std::vector<float> single = losses(*program, steps);
  program->restart(initial_parameters(graph, 1));
  for (int i = 0; i < steps; ++i) program->enqueue_step();
  for (int i = 0; i < steps; ++i) {
    const StepRecord record = program->wait_step();
    EXPECT_EQ(record.loss, single[i]);
    EXPECT_GT(record.seconds, 0);
  }
}

// Whether `name` is one of the nodes that this entry computes.
bool computes(const ProfileEntry& entry, const std::string& name) {
  return (" " + entry.name + " ").find(" " + name + " ") != std::string::npos;
}

TEST_F(ProgramTest, ProfileCoversEveryConvolution) {
  const Graph graph = small_graph();
  const Profile profile = started(backend(), graph, with_batch())->profile(3, true);
  double flops = 0;
  for (const ProfileEntry& entry : profile.entries) {
    EXPECT_GT(entry.seconds, 0) << entry.name;
    EXPECT_FALSE(entry.implementation.empty()) << entry.name;
    flops += entry.flops;
  }
  for (const Node& node : graph.nodes()) {
    if (node.op != OpKind::conv) continue;
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      EXPECT_TRUE(std::any_of(profile.entries.begin(), profile.entries.end(),
                              [&](const ProfileEntry& entry) {
                                return entry.phase == phase && computes(entry, node.name) &&
                                       entry.flops > 0;
                              }))
          << node.name << " " << to_string(phase);
    }
  }
  EXPECT_NEAR(flops / (graph.training_flops_per_sample() * batch_size), 1, 1e-9);
}

TEST_F(ProgramTest, PlansCanBeFedBack) {
  const Graph graph = small_graph();
  ProgramOptions options = with_batch();
  const auto tuned = started(backend(), graph, options);
  options.kernel_choices = tuned->kernel_choices();
  options.kernel_choices_pinned = true;
  ASSERT_FALSE(options.kernel_choices.empty());
  const auto pinned = started(backend(), graph, options);
  EXPECT_THAT(pinned->kernel_choices(), testing::ElementsAreArray(options.kernel_choices));
  EXPECT_EQ(losses(*pinned, 2), losses(*tuned, 2));
}

TEST_F(ProgramTest, OutOfMemoryNamesTheLargestBatch) {
  const Graph graph = build_network("resnet50");
  try {
    backend().prepare(graph, with_batch(60000));
    FAIL() << "a batch of 60000 images was accepted";
  } catch (const OutOfMemory& error) {
    EXPECT_GT(error.needed_bytes, error.free_bytes);
    EXPECT_GT(error.largest_batch_size, 0);
    EXPECT_LT(error.largest_batch_size, 60000);
  }
}

TEST_F(ProgramTest, LargestBatchIsPlausible) {
  const int64_t largest = backend().largest_batch(build_network("resnet50"), with_batch());
  EXPECT_GE(largest, 1);
  EXPECT_LT(largest, 60000);
}

TEST_F(ProgramTest, BatchMustBePositive) {
  for (const int64_t batch : {0, -1}) {
    EXPECT_THROW(backend().prepare(small_graph(), with_batch(batch)), std::invalid_argument);
  }
}

TEST_F(ProgramTest, DeviceDescribesItself) {
  const DeviceInfo info = backend().describe(0);
  EXPECT_FALSE(info.name.empty());
  EXPECT_GT(info.memory_bytes, 0);
  EXPECT_FALSE(info.libraries.empty());
}

TEST_F(ProgramTest, CountsTheMemoryOfGradientsThatAreConverted) {
  const Graph graph = small_graph();
  ProgramOptions options = with_batch();
  const int64_t as_computed = started(backend(), graph, options)->device_bytes();
  EXPECT_GT(as_computed, 4 * graph.parameter_count());
  options.gradient_type = Precision::fp32;
  EXPECT_EQ(started(backend(), graph, options)->device_bytes(), as_computed);
  options.gradient_type = Precision::bf16;
  EXPECT_GE(started(backend(), graph, options)->device_bytes() - as_computed,
            2 * graph.parameter_count());
}

}  // namespace
}  // namespace nearmetal
