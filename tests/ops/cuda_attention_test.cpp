// Attention of 16 bits by cuDNN, and by products.
#include <gmock/gmock.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "models/graph.h"
#include "models/networks/registry.h"
#include "models/program.h"
#include "tests/ops/check_program.h"
#include "tests/ops/program_test_cases.h"

namespace nearmetal {
namespace {

struct AttentionCase {
  std::string name;
  Precision precision;
  int64_t tokens, heads, head_features, batch;
};

void PrintTo(const AttentionCase& tested, std::ostream* out) { *out << tested.name; }

Graph attending_graph(const AttentionCase& tested) {
  const int64_t features = tested.heads * tested.head_features;
  return bert_for_question_answering("attending",
                                     {.layers = 2,
                                      .heads = tested.heads,
                                      .features = features,
                                      .mlp_features = 64,
                                      .vocabulary = 13,
                                      .positions = tested.tokens},
                                     tested.tokens);
}

ProgramOptions attending_options(const AttentionCase& tested) {
  ProgramOptions options;
  options.precision = tested.precision;
  options.batch_size = tested.batch;
  options.loss_scale.initial = tested.precision == Precision::fp16 ? 1024 : 1;
  return options;
}

bool is_of(const KernelChoice& choice, const std::string& prefix) {
  return choice.key.starts_with(prefix);
}

class CudaAttentionTest : public ProgramTest, public ::testing::WithParamInterface<AttentionCase> {
 protected:
  std::vector<KernelChoice> choices(Kernels kernels) {
    ProgramOptions options = attending_options(GetParam());
    options.kernels = kernels;
    return backend().prepare(attending_graph(GetParam()), options)->kernel_choices();
  }
};

// Chips before 8.0 have products alone.
TEST_P(CudaAttentionTest, StepErrsNoMoreThanRoundingImplies) {
  const Graph graph = attending_graph(GetParam());
  ProgramOptions options = attending_options(GetParam());
  options.kernel_choices = choices(Kernels::fastest);
  options.kernel_choices_pinned = true;
  int plans = 0;
  for (const KernelChoice& choice : options.kernel_choices) {
    plans += is_of(choice, "attention") && choice.implementation != "none" ? 1 : 0;
  }
  EXPECT_TRUE(check_against_reference(backend(), graph, options)) << plans << " plans of cuDNN's";
  const std::string chip = backend().describe(0).compute_capability;
  if (chip.starts_with("7."))
    GTEST_SKIP() << "cuDNN has no attention for compute capability " << chip;
  ASSERT_EQ(plans, 2);
  for (KernelChoice& choice : options.kernel_choices) {
    if (is_of(choice, "attention backward")) choice.implementation = "none";
  }
  EXPECT_TRUE(check_against_reference(backend(), graph, options)) << "products";
}

TEST_P(CudaAttentionTest, APinnedKernelThatIsNoLongerThereIsNamed) {
  ProgramOptions options = attending_options(GetParam());
  options.kernel_choices = choices(Kernels::fastest);
  const auto forward = std::ranges::find_if(options.kernel_choices, [](const KernelChoice& choice) {
    return is_of(choice, "attention forward");
  });
  ASSERT_NE(forward, options.kernel_choices.end());
  KernelChoice own{"own " + forward->key, "own", 2 * forward->seconds};
  options.kernel_choices.push_back(own);
  options.kernel_choices_pinned = true;
  EXPECT_NO_THROW(backend().prepare(attending_graph(GetParam()), options)) << "it was the slower";
  options.kernel_choices.back().seconds = 0;
  EXPECT_THAT([&] { backend().prepare(attending_graph(GetParam()), options); },
              testing::ThrowsMessage<std::runtime_error>(testing::HasSubstr("plan own for 'own ")));
}

TEST_P(CudaAttentionTest, StepOfCudnnAloneEqualsItselfInEveryBit) {
  const Graph graph = attending_graph(GetParam());
  ProgramOptions options = attending_options(GetParam());
  options.kernels = Kernels::cudnn;
  options.kernel_choices = choices(Kernels::cudnn);
  const RandomCase random = random_case(graph, options.batch_size, 1);
  const auto gradients = [&] {
    const auto program = backend().prepare(graph, options);
    program->restart(random.parameters);
    random.give_to(*program);
    program->enqueue_step();
    program->wait_step();
    return program->gradients();
  };
  const std::vector<float> first = gradients();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(gradients(), first);
}

TEST_P(CudaAttentionTest, PinnedPlansMustBeThereAndLoad) {
  const Graph graph = attending_graph(GetParam());
  ProgramOptions options = attending_options(GetParam());
  options.kernels = Kernels::cudnn;
  options.kernel_choices = choices(Kernels::cudnn);
  const auto with_unknown = [&](const std::string& direction) {
    ProgramOptions unknown = options;
    for (KernelChoice& choice : unknown.kernel_choices) {
      if (is_of(choice, "attention " + direction)) choice.implementation = "eng9999_k24=1";
    }
    return unknown;
  };
  for (const std::string direction : {"forward", "backward"}) {
    ProgramOptions unknown = with_unknown(direction);
    for (const KernelChoice& choice : backend().prepare(graph, unknown)->kernel_choices()) {
      EXPECT_NE(choice.implementation, "eng9999_k24=1") << "is tuned again";
    }
    unknown.kernel_choices_pinned = true;
    EXPECT_THROW(backend().prepare(graph, unknown), std::runtime_error) << direction;
    std::erase_if(unknown.kernel_choices, [&](const KernelChoice& choice) {
      return is_of(choice, "attention " + direction);
    });
    EXPECT_THROW(backend().prepare(graph, unknown), std::runtime_error) << direction;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Of, CudaAttentionTest,
    ::testing::Values(AttentionCase{"bf16", Precision::bf16, 256, 2, 64, 2},
                      AttentionCase{"bf16_masked", Precision::bf16, 197, 2, 64, 2},
                      AttentionCase{"fp16_masked", Precision::fp16, 33, 3, 64, 5},
                      AttentionCase{"fp16_short", Precision::fp16, 8, 1, 64, 3},
                      AttentionCase{"bf16_odd_heads", Precision::bf16, 130, 5, 64, 2}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace nearmetal
