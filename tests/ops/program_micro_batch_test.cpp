// Steps of several micro-batches: one update with the mean of their gradients.

#include <cmath>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include "models/graph.h"
#include "models/program.h"
#include "tests/ops/check_program.h"
#include "tests/ops/program_test_cases.h"
#include "tests/ops/sum_of_one.h"

namespace nearmetal {
namespace {

constexpr int64_t count = 4;  // a power of two, so that the mean is exact where the sum is

ProgramOptions in_micro_batches(int64_t micro_batches = count) {
  ProgramOptions options = with_batch();
  options.micro_batches = micro_batches;
  return options;
}

std::span<const float> images_of(const RandomCase& random, int64_t micro_batch) {
  const size_t size = random.images.size() / count;
  return std::span(random.images).subspan(micro_batch * size, size);
}

std::span<const int32_t> labels_of(const RandomCase& random, int64_t micro_batch) {
  return std::span(random.labels).subspan(micro_batch * batch_size, batch_size);
}

class MicroBatches : public ProgramTest {
 protected:
  std::unique_ptr<Program> prepared(const ProgramOptions& options) {
    auto program = backend().prepare(graph_, options);
    program->restart(random_.parameters);
    return program;
  }

  // The results of steps on each micro-batch by itself, by a program with the same kernels, that
  // leave the parameters as they are.
  struct Apart {
    std::vector<float> mean_gradient;
    double mean_loss = 0;
    std::vector<float> running_statistics;
  };
  Apart apart(const Program& together) {
    ProgramOptions options = with_batch();
    options.optimizer.learning_rate = 0;
    options.kernel_choices = together.kernel_choices();
    const auto program = prepared(options);
    Apart result;
    result.mean_gradient.resize(random_.parameters.size());
    for (int64_t i = 0; i < count; ++i) {
      program->use_batch(images_of(random_, i), labels_of(random_, i));
      result.mean_loss += step(*program).loss / static_cast<double>(count);
      const std::vector<float> gradient = program->gradients();
      for (size_t p = 0; p < gradient.size(); ++p) result.mean_gradient[p] += gradient[p];
    }
    for (float& value : result.mean_gradient) value /= static_cast<float>(count);
    result.running_statistics = program->running_statistics();
    return result;
  }

  const Graph graph_ = small_graph();
  RandomCase random_ = random_case(graph_, count* batch_size, 1);
};

TEST_F(MicroBatches, AStepIsTheMeanOfStepsOnEach) {
  const ProgramOptions options = in_micro_batches();
  const auto program = prepared(options);
  random_.give_to(*program);
  const StepRecord record = step(*program);
  const Apart wanted = apart(*program);
  EXPECT_EQ(program->gradients(), wanted.mean_gradient);
  EXPECT_EQ(program->running_statistics(), wanted.running_statistics);
  EXPECT_NEAR(record.loss, wanted.mean_loss, 1e-6);
  const std::vector<float> momentum = program->momentum(), parameters = program->parameters();
  for (size_t i = 0; i < momentum.size(); ++i) {
    const double decayed =
        wanted.mean_gradient[i] + options.optimizer.weight_decay * random_.parameters[i];
    ASSERT_NEAR(momentum[i], decayed, 1e-6) << i;
    ASSERT_NEAR(parameters[i], random_.parameters[i] - options.optimizer.learning_rate * decayed,
                1e-6);
  }
}

TEST_F(MicroBatches, SumsOverRanksSeeTheMean) {
  const auto program = prepared(in_micro_batches());
  random_.give_to(*program);
  step(*program);
  const std::vector<float> alone = program->gradients();
  for (const int64_t bucket_bytes : {0, 1 << 10}) {
    SumOfOne sum;
    program->exchange_gradients(sum, bucket_bytes);
    program->restart(random_.parameters);
    step(*program);
    EXPECT_EQ(program->gradients(), alone) << bucket_bytes;
  }
}

TEST_F(MicroBatches, EachStartsFromNothing) {
  const auto program = prepared(in_micro_batches());
  random_.give_to(*program);
  step(*program);
  const std::vector<float> first = program->gradients();
  program->restart(random_.parameters);
  step(*program);
  EXPECT_EQ(program->gradients(), first);
}

TEST_F(MicroBatches, OneThatIsNotFiniteSkipsTheUpdate) {
  for (const int64_t bad : {int64_t{0}, int64_t{1}, count - 1}) {
    RandomCase random = random_;
    random.images[bad * random.images.size() / count] = std::numeric_limits<float>::quiet_NaN();
    const auto program = prepared(in_micro_batches());
    random.give_to(*program);
    const StepRecord record = step(*program);
    EXPECT_TRUE(record.update_skipped) << bad;
    EXPECT_TRUE(std::isnan(record.loss)) << bad;
    EXPECT_EQ(program->parameters(), random.parameters) << bad;
  }
}

// Without batch norm there is no difference but in the order of sums.
TEST_F(MicroBatches, OfANetworkWithoutNormsAreOneBatchOfAllImages) {
  const Graph graph = small_vgg_graph({3, 12, 12}, false);
  ProgramOptions whole = with_batch(count * batch_size);
  std::vector<ReferenceStep> steps;
  for (const ProgramOptions& options : {in_micro_batches(), whole}) {
    const auto program = started(backend(), graph, options);
    step(*program);  // labels are drawn anew in the second
    program->restart(initial_parameters(graph, 2));
    program->use_synthetic_batch();
    steps.push_back(run_step(*program));
  }
  EXPECT_TRUE(check_same_step(graph, steps[0], steps[1], 1e-5));
}

TEST_F(MicroBatches, ComeFromTheHostAsFromTheDevice) {
  ProgramOptions options = in_micro_batches();
  const auto device = prepared(options);
  options.input = Input::pinned;
  options.kernel_choices = device->kernel_choices();
  const auto host = prepared(options);
  for (const auto& program : {device.get(), host.get()}) {
    random_.give_to(*program);
    step(*program);
  }
  EXPECT_EQ(host->gradients(), device->gradients());
}

TEST_F(MicroBatches, TakeLessMemoryThanOneBatchOfAllImages) {
  const Graph graph = bottleneck_graph(64);
  const auto pass = backend().prepare(graph, with_batch());
  const auto whole = backend().prepare(graph, with_batch(count * batch_size));
  ProgramOptions options = in_micro_batches();
  options.kernel_choices = pass->kernel_choices();  // they need the same workspace
  const int64_t more = backend().prepare(graph, options)->device_bytes() - pass->device_bytes();
  EXPECT_LT(more, (whole->device_bytes() - pass->device_bytes()) / 4);

  // The images of the whole step and the fp32 sums of the gradients, but no activation, of which
  // the smallest that a backward pass reads has 256 KiB.
  const int64_t kept =
      4 * (count * batch_size * graph.image().elements() + graph.parameter_count());
  EXPECT_GE(more, kept);
  EXPECT_LT(more, kept + (64 << 10));
}

TEST_F(MicroBatches, NeedAGradientToShare) {
  ProgramOptions options = in_micro_batches();
  options.forward_only = true;
  EXPECT_THROW(backend().prepare(graph_, options), std::invalid_argument);
  EXPECT_THROW(backend().prepare(graph_, in_micro_batches(0)), std::invalid_argument);
}

}  // namespace
}  // namespace nearmetal
