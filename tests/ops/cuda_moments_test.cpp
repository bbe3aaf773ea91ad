// Training by second moments, wherever there is a kernel for them, whatever takes less time.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "models/networks/registry.h"
#include "models/program.h"
#include "reports/statistics/statistics.h"
#include "tests/ops/check_program.h"
#include "tests/ops/program_test_cases.h"

namespace nearmetal {
namespace {

bool is_of_moments(const KernelChoice& choice) { return choice.key.starts_with("moments: "); }

// With second moments wherever there is a kernel for them, or nowhere.
std::vector<KernelChoice> with_moments(std::vector<KernelChoice> plans, bool wanted) {
  for (KernelChoice& plan : plans) {
    if (!is_of_moments(plan)) continue;
    // 512 outputs are too many for our kernel for both products.
    const bool own = plan.key.find(" w256x1x1") != std::string::npos;
    plan.implementation = !wanted ? "apart" : own ? "own" : "cudnn";
  }
  return plans;
}

// Where processes share the GPU, some of cuDNN's sums beside a convolution differ in their last
// bits from run to run.
std::vector<KernelChoice> without_cudnn_statistics(std::vector<KernelChoice> plans) {
  for (KernelChoice& plan : plans) {
    if (plan.key.starts_with("sweep with: ")) plan.implementation = "apart";
  }
  return plans;
}

// The relative error of gradients over that of others: of all parameters together, and the
// geometric mean of those that have a gradient.
struct ErrorRatios {
  double whole, mean;
};

ErrorRatios ratios_of_errors(const Graph& graph, const std::vector<double>& gradients,
                             const std::vector<double>& others, const std::vector<double>& exact) {
  std::vector<double> each;
  for (const Parameter& parameter : graph.parameters()) {
    const auto part = [&](const std::vector<double>& of) {
      return std::span(of).subspan(parameter.offset, parameter.size);
    };
    if (std::ranges::all_of(part(exact), [](double value) { return value == 0; })) continue;
    const double with = relative_error(part(gradients), part(exact));
    const double without = relative_error(part(others), part(exact));
    // Of probabilities that are 0 and 1 the gradient of the classifier's bias is exact in any type.
    if (with == 0 && without == 0) continue;
    each.push_back(with / without);
  }
  return {relative_error(gradients, exact) / relative_error(others, exact), geometric_mean(each)};
}

// Pinned plans by which second moments are taken.
class SecondMoments : public ProgramTest, public ::testing::WithParamInterface<Precision> {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    if (IsSkipped()) return;
    options_.batch_size = batch_size;
    options_.precision = GetParam();
    options_.loss_scale.initial = GetParam() == Precision::fp16 ? 1024 : 1;
    const std::string chip = backend().describe(0).compute_capability;
    if (!chip.starts_with("9.")) {
      GTEST_SKIP() << "second moments have no kernels for compute capability " << chip;
    }
    tuned_ = plans_for(graph_);
    ASSERT_TRUE(std::ranges::any_of(tuned_, is_of_moments));
    take(with_moments(tuned_, true));
  }

  std::vector<KernelChoice> plans_for(const Graph& graph) {
    return backend().prepare(graph, options_)->kernel_choices();
  }
  void take(const std::vector<KernelChoice>& plans) {
    options_.kernel_choices = plans;
    options_.kernel_choices_pinned = true;
  }
  ReferenceStep step_of(const RandomCase& random) {
    const auto program = backend().prepare(graph_, options_);
    program->restart(random.parameters);
    random.give_to(*program);
    return run_step(*program);
  }
  std::vector<double> gradient_of(const ReferenceStep& step, const std::string& name) const {
    const auto& parameters = graph_.parameters();
    const auto found = std::ranges::find(parameters, name, &Parameter::name);
    if (found == parameters.end()) throw std::out_of_range(name);
    const auto first = step.gradients.begin() + found->offset;
    return {first, first + found->size};
  }

  const Graph graph_ = wide_bottlenecks_graph({3, 11, 14});
  const RandomCase random_ = random_case(graph_, batch_size, 1);
  ProgramOptions options_;
  std::vector<KernelChoice> tuned_;
};

INSTANTIATE_TEST_SUITE_P(In, SecondMoments, ::testing::Values(Precision::fp16, Precision::bf16),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST_P(SecondMoments, StepErrsNoMoreThanRoundingImplies) {
  for (const int trained_steps : {0, 20}) {
    EXPECT_TRUE(check_against_reference(backend(), graph_, options_, 1e-4, trained_steps))
        << "after " << trained_steps << " steps";
  }
}

TEST_P(SecondMoments, StepOfResNet50ErrsNoMoreThanRoundingImplies) {
  const Graph resnet = build_network("resnet50", {64, 10});
  ProgramOptions options = options_;
  options.kernel_choices.clear();
  options.kernel_choices_pinned = false;
  options.kernel_choices = with_moments(backend().prepare(resnet, options)->kernel_choices(), true);
  options.kernel_choices_pinned = true;
  EXPECT_TRUE(check_against_reference(backend(), resnet, options));
}

// Against fp32 kernels, whose rounding is nothing here, moments err as kernels without them do
// where a network has learnt one batch by heart. It is asked for other labels, since the gradients
// of those that it knows are nothing but rounding. Each state of the network errs by chance, and in
// all parameters alike, since a layer's rounding reaches the others: the median of several counts.
TEST_P(SecondMoments, GradientsOfALearntBatchErrAsWithoutThem) {
  const Graph resnet = build_network("resnet50", {64, 10});
  ProgramOptions options = options_;
  options.loss_scale.initial = 1;  // these gradients are large
  options.kernel_choices.clear();
  options.kernel_choices_pinned = false;
  const auto plans = backend().prepare(resnet, options)->kernel_choices();
  options.precision = Precision::fp32;
  const auto exact = backend().prepare(resnet, options);
  options.precision = GetParam();
  options.kernel_choices_pinned = true;
  options.kernel_choices = with_moments(plans, false);
  const auto without = backend().prepare(resnet, options);
  options.kernel_choices = with_moments(plans, true);
  const auto with = backend().prepare(resnet, options);
  const auto trained = backend().prepare(resnet, options);
  RandomCase asked = random_case(resnet, batch_size, 2);
  trained->restart(asked.parameters);
  asked.give_to(*trained);

  const auto gradients_of = [&](Program& program) {
    program.restart(asked.parameters);
    asked.give_to(program);
    step(program);
    const std::vector<float> gradients = program.gradients();
    return std::vector<double>(gradients.begin(), gradients.end());
  };
  std::vector<double> whole, mean;
  for (int state = 0; state < 5; ++state) {
    for (int count = 0; count < 200; ++count) step(*trained);
    asked.parameters = trained->parameters();
    for (int32_t& label : asked.labels) label = (label + 1) % 10;  // each but their own
    const std::vector<double> expected = gradients_of(*exact), others = gradients_of(*without);
    EXPECT_LT(relative_error(others, expected), 0.2);  // seen: 0.04 in fp16, 0.11 in bf16
    const ErrorRatios ratios = ratios_of_errors(resnet, gradients_of(*with), others, expected);
    whole.push_back(ratios.whole);
    mean.push_back(ratios.mean);
  }
  EXPECT_LT(median(whole), 2);
  EXPECT_LT(median(mean), 1.2);
}

TEST_P(SecondMoments, AreTakenAtTheEndOfEachBlock) {
  const auto profile = [&] { return backend().prepare(graph_, options_)->profile(1, false); };
  const auto terms = [](const Profile& profile) {
    return std::ranges::count(profile.entries, "own sums sweep with term by moments",
                              &ProfileEntry::implementation);
  };
  EXPECT_EQ(terms(profile()), 4);
  take(with_moments(tuned_, false));
  EXPECT_EQ(terms(profile()), 0);
}

TEST_P(SecondMoments, PinnedPlansAreReproduced) {
  EXPECT_EQ(backend().prepare(graph_, options_)->kernel_choices(), options_.kernel_choices);
}

TEST_P(SecondMoments, TwoRunsAgreeInEveryBit) {
  take(without_cudnn_statistics(options_.kernel_choices));
  const ReferenceStep first = step_of(random_);
  for (int run = 0; run < 3; ++run) {
    const ReferenceStep again = step_of(random_);
    EXPECT_EQ(again.loss, first.loss);
    EXPECT_EQ(again.gradients, first.gradients);
    EXPECT_EQ(again.running_statistics, first.running_statistics);
  }
}

TEST_P(SecondMoments, GraphAndStreamLaunchComputeTheSame) {
  take(without_cudnn_statistics(options_.kernel_choices));
  const ReferenceStep as_graph = step_of(random_);
  options_.launch_as_graph = false;
  const ReferenceStep as_stream = step_of(random_);
  EXPECT_EQ(as_stream.gradients, as_graph.gradients);
  EXPECT_EQ(as_stream.running_statistics, as_graph.running_statistics);
}

// As training starts: the convolution has no gradient yet, but the scale has.
TEST_P(SecondMoments, BranchesOfScaleZeroHaveAGradientOfTheirScaleAlone) {
  RandomCase random = random_;
  for (const Parameter& parameter : graph_.parameters()) {
    if (!parameter.scales_residual_branch) continue;
    std::fill_n(random.parameters.begin() + parameter.offset, parameter.size, 0.0f);
  }
  const ReferenceStep actual = step_of(random);
  const ReferenceStep expected = reference_step(graph_, random.inputs(options_));
  EXPECT_NEAR(actual.loss, expected.loss, GetParam() == Precision::fp16 ? 0.01 : 0.08);
  for (const std::string block : {"1.0", "1.1", "2.0", "2.1"}) {
    for (const char* const conv : {".conv1", ".conv2", ".conv3"}) {
      EXPECT_THAT(gradient_of(actual, block + conv + ".weight"), testing::Each(0)) << block << conv;
    }
    const std::string scale = block + ".norm.weight";
    EXPECT_LT(relative_error(gradient_of(actual, scale), gradient_of(expected, scale)),
              GetParam() == Precision::fp16 ? 0.1 : 0.4)
        << block;
  }
}

TEST_P(SecondMoments, NanInTheImagesIsSeenAndNotLearned) {
  RandomCase random = random_;
  random.images[random.images.size() / 2] = std::numeric_limits<float>::quiet_NaN();
  const auto program = backend().prepare(graph_, options_);
  program->restart(random.parameters);
  random.give_to(*program);
  const StepRecord record = step(*program);
  EXPECT_TRUE(std::isnan(record.loss)) << record.loss;
  EXPECT_FALSE(std::isfinite(record.gradient_norm)) << record.gradient_norm;
  EXPECT_TRUE(record.update_skipped);
  EXPECT_EQ(program->parameters(), random.parameters);
  const std::vector<float> gradients = program->gradients();
  for (const Parameter& parameter : graph_.parameters()) {
    if (parameter.dims.size() == 1) continue;  // the sum of what ReLUs let pass
    const auto first = gradients.begin() + parameter.offset;
    EXPECT_TRUE(std::any_of(first, first + parameter.size, [](float value) {
      return std::isnan(value);
    })) << parameter.name;
  }
}

// Each has moments of its own, which its backward pass reads.
TEST_P(SecondMoments, OfMicroBatchesGiveTheMeanOfStepsOnEach) {
  constexpr int64_t count = 4;
  take(without_cudnn_statistics(options_.kernel_choices));
  const RandomCase all = random_case(graph_, count * batch_size, 2);
  const auto apart = backend().prepare(graph_, options_);
  options_.micro_batches = count;
  const auto together = backend().prepare(graph_, options_);
  together->restart(all.parameters);
  all.give_to(*together);
  const ReferenceStep actual = run_step(*together);

  std::vector<double> mean(all.parameters.size());
  const size_t images = all.images.size() / count;
  for (int64_t i = 0; i < count; ++i) {
    apart->restart(all.parameters);
    apart->use_batch(std::span(all.images).subspan(i * images, images),
                     std::span(all.labels).subspan(i * batch_size, batch_size));
    const std::vector<double> gradients = run_step(*apart).gradients;
    for (size_t p = 0; p < mean.size(); ++p) mean[p] += gradients[p] / count;
  }
  // The mean is rounded once more.
  const double tolerance = GetParam() == Precision::fp16 ? 0x1p-10 : 0x1p-7;
  for (const Parameter& parameter : graph_.parameters()) {
    const auto of = [&](const std::vector<double>& values) {
      return std::span(values).subspan(parameter.offset, parameter.size);
    };
    EXPECT_LT(relative_error(of(actual.gradients), of(mean)), tolerance) << parameter.name;
  }
}

}  // namespace
}  // namespace nearmetal
