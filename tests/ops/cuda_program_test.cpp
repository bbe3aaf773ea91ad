#include <algorithm>
#include <vector>

#include "base/errors.h"
#include "models/graph.h"
#include "models/load_module.h"
#include "models/networks/registry.h"
#include "models/program.h"
#include "tests/ops/check_program.h"
#include "tests/ops/program_test_cases.h"

namespace nearmetal {

const char* const tested_backend = "cuda";

namespace {

struct PrecisionCase {
  GraphCase network;
  Precision precision;
};

std::string name_of(const PrecisionCase& tested) {
  return tested.network.name + "_" + to_string(tested.precision);
}

void PrintTo(const PrecisionCase& tested, std::ostream* out) { *out << name_of(tested); }

ProgramOptions options_of(const PrecisionCase& tested) {
  ProgramOptions options;
  options.batch_size = tested.network.batch_size;
  options.precision = tested.precision;
  options.loss_scale.initial = tested.precision == Precision::fp16 ? 1024 : 1;
  return options;
}

// Each network in each precision that rounds.
std::vector<PrecisionCase> precision_cases() {
  const GraphCase networks[] = {{"resnet18", 16,
                                 [] {
                                   return build_network("resnet18", {64, 10});
                                 }},
                                {"resnet50", 8,
                                 [] {
                                   return build_network("resnet50", {64, 10});
                                 }},
                                {"plain", 16,
                                 [] {
                                   return plain_graph({3, 13, 18});
                                 }},
                                {"vgg", 16,
                                 [] {
                                   return small_vgg_graph({3, 13, 18}, false);
                                 }},
                                {"vgg_norm", 16,
                                 [] {
                                   return small_vgg_graph({3, 13, 18}, true);
                                 }},
                                {"vit", 16,
                                 [] {
                                   return small_vit_graph({3, 33, 27}, 10, 16);
                                 }},
                                {"bert", 16, [] { return small_bert_graph(33, 40, 16); }},
                                {"plain_tokens", 16,
                                 [] {
                                   return plain_token_graph({3, 13, 18}, 8);
                                 }},
                                {"wide_tokens", 16, [] {
                                   return wide_token_graph({3, 5, 7}, 8);
                                 }}};
  std::vector<PrecisionCase> cases;
  for (const GraphCase& network : networks) {
    for (const Precision precision : {Precision::fp16, Precision::bf16, Precision::tf32}) {
      cases.push_back({network, precision});
    }
  }
  return cases;
}

class CudaPrecisionTest : public ProgramTest,
                          public ::testing::WithParamInterface<PrecisionCase> {};

TEST_P(CudaPrecisionTest, StepErrsNoMoreThanRoundingImplies) {
  const ProgramOptions options = options_of(GetParam());
  const Graph graph = GetParam().network.graph();
  for (const int trained_steps : {0, 20}) {
    EXPECT_TRUE(check_against_reference(backend(), graph, options, 1e-4, trained_steps))
        << "after " << trained_steps << " steps";
  }
}

INSTANTIATE_TEST_SUITE_P(Network, CudaPrecisionTest, ::testing::ValuesIn(precision_cases()),
                         [](const auto& info) { return name_of(info.param); });

class CudnnAloneTest : public ProgramTest, public ::testing::WithParamInterface<GraphCase> {};

TEST_P(CudnnAloneTest, StepEqualsReference) {
  ProgramOptions options;
  options.batch_size = GetParam().batch_size;
  options.kernels = Kernels::cudnn;
  EXPECT_TRUE(check_against_reference(backend(), GetParam().graph(), options));
}

INSTANTIATE_TEST_SUITE_P(
    Graph, CudnnAloneTest,
    ::testing::Values(GraphCase{"Plain", 3,
                                [] {
                                  return plain_graph({3, 13, 18});
                                }},
                      GraphCase{"Vgg", 3,
                                [] {
                                  return small_vgg_graph({3, 13, 18}, false);
                                }},
                      GraphCase{"VggNorm", 3,
                                [] {
                                  return small_vgg_graph({3, 12, 12}, true);
                                }},
                      GraphCase{"Identity", 4, [] { return small_graph(33); }},
                      GraphCase{"Vit", 3,
                                [] {
                                  return small_vit_graph({3, 9, 15}, 10, 8);
                                }},
                      GraphCase{"Bert", 3, [] { return small_bert_graph(7, 11, 8); }},
                      GraphCase{"PlainTokens", 3,
                                [] {
                                  return plain_token_graph({3, 13, 18}, 8);
                                }},
                      GraphCase{"Projection", 3, [] { return bottleneck_graph(33); }}),
    case_name);

// Batch norms in fp16 are one kernel with what follows them.
TEST_P(CudaPrecisionTest, StepOfCudnnAloneErrsNoMoreThanRoundingImplies) {
  ProgramOptions options = options_of(GetParam());
  options.kernels = Kernels::cudnn;
  EXPECT_TRUE(check_against_reference(backend(), GetParam().network.graph(), options));
}

TEST_F(ProgramTest, CudnnAloneHasNoKernelOfOurs) {
  const Graph graph = small_graph();
  ProgramOptions options = with_batch();
  options.kernels = Kernels::cudnn;
  for (const KernelChoice& choice : backend().prepare(graph, options)->kernel_choices()) {
    EXPECT_NE(choice.implementation, "own") << choice.key;
  }
}

TEST_F(ProgramTest, CudaEqualsCpu) {
  Backend* cpu = nullptr;
  try {
    cpu = &load_backend("cpu");
  } catch (const NotSupported& missing) {
    GTEST_SKIP() << missing.what();
  }
  const Graph graph = build_network("resnet18", {64, 10});
  ProgramOptions options;
  options.batch_size = 8;
  ::testing::AssertionResult result = ::testing::AssertionFailure();
  // Several batches, of which one must agree, for the reason that check_against_reference() gives.
  for (uint64_t seed = 1; seed <= 12 && !result; ++seed) {
    const RandomCase random = random_case(graph, options.batch_size, seed);
    std::vector<ReferenceStep> steps;
    for (Backend* side : {&backend(), cpu}) {
      const auto program = side->prepare(graph, options);
      program->restart(random.parameters);
      random.give_to(*program);
      steps.push_back(run_step(*program));
    }
    result = check_same_step(graph, steps[0], steps[1], 1e-4);
  }
  EXPECT_TRUE(result);
}

std::vector<float> losses(Backend& backend, const Graph& graph, const ProgramOptions& options) {
  const auto program = backend.prepare(graph, options);
  program->restart(initial_parameters(graph, 1));
  std::vector<float> losses;
  for (int i = 0; i < 4; ++i) {
    program->enqueue_step();
    losses.push_back(program->wait_step().loss);
  }
  return losses;
}

TEST_F(ProgramTest, GraphAndStreamLaunchComputeTheSame) {
  const Graph graph = small_graph();
  for (const Input input : {Input::device, Input::pinned, Input::pageable}) {
    ProgramOptions options;
    options.batch_size = 8;
    options.input = input;
    options.kernel_choices = backend().prepare(graph, options)->kernel_choices();
    const std::vector<float> as_graph = losses(backend(), graph, options);
    options.launch_as_graph = false;
    EXPECT_EQ(losses(backend(), graph, options), as_graph);
  }
}

TEST_F(ProgramTest, AHostThatSleepsSeesTheSameLosses) {
  const Graph graph = small_graph();
  ProgramOptions options;
  options.batch_size = 8;
  options.kernel_choices = backend().prepare(graph, options)->kernel_choices();
  const std::vector<float> awake = losses(backend(), graph, options);
  options.host_sleeps = true;
  EXPECT_EQ(losses(backend(), graph, options), awake);
}

TEST_F(ProgramTest, PinnedPlansMustBeThereAndLoad) {
  const Graph graph = small_graph();
  ProgramOptions options;
  options.batch_size = 8;
  const std::vector<KernelChoice> plans = backend().prepare(graph, options)->kernel_choices();
  options.kernel_choices_pinned = true;
  EXPECT_THROW(backend().prepare(graph, options), std::runtime_error);  // none there
  options.kernel_choices = plans;
  for (KernelChoice& plan : options.kernel_choices) plan.implementation = "eng9999_k0=1";
  EXPECT_THROW(backend().prepare(graph, options), std::runtime_error);
}

TEST_F(ProgramTest, PinnedPlansOfProductsComputeTheSame) {
  const Graph graph = small_vit_graph({3, 9, 15}, 10, 8);
  ProgramOptions options;
  options.precision = Precision::bf16;
  options.batch_size = 8;
  options.kernel_choices = backend().prepare(graph, options)->kernel_choices();
  const std::vector<float> first = losses(backend(), graph, options);
  options.kernel_choices_pinned = true;
  EXPECT_EQ(losses(backend(), graph, options), first);
  EXPECT_EQ(backend().prepare(graph, options)->kernel_choices(), options.kernel_choices);
  for (KernelChoice& plan : options.kernel_choices) {
    if (plan.key.starts_with("product")) plan.implementation = "lt_9999";
  }
  EXPECT_THROW(backend().prepare(graph, options), std::runtime_error);
  options.kernel_choices_pinned = false;
  EXPECT_EQ(losses(backend(), graph, options).size(), first.size());
}

TEST_F(ProgramTest, ProductsInLargeClustersRunOnlyWhenPinned) {
  const Graph graph = build_network("bert_base", {.sequence = 384});
  ProgramOptions options;
  options.precision = Precision::bf16;
  options.batch_size = 4;
  options.kernel_choices = backend().prepare(graph, options)->kernel_choices();
  // An algorithm of cuBLASLt 13.0 for compute capability 9.0, in clusters of 2 x 4 blocks.
  const std::string large =
      "lt_19000000042_100000023_0_9000000000003_1fc3400000001_e0000000e_44000e000e";
  const auto product =
      std::ranges::find(options.kernel_choices, "product forward bf16 1536x3072 w768 bias residual",
                        &KernelChoice::key);
  ASSERT_NE(product, options.kernel_choices.end());
  product->implementation = large;
  const auto prepared = [&] { return backend().prepare(graph, options)->kernel_choices(); };
  options.kernel_choices_pinned = true;
  try {
    EXPECT_EQ(prepared(), options.kernel_choices);
  } catch (const std::runtime_error& error) {
    // No other failure is one of this library or chip.
    ASSERT_EQ(error.what(),
              "the pinned plan " + large + " for '" + product->key + "' does not load here");
    GTEST_SKIP() << "cuBLASLt does not have this algorithm here";
  }
  options.kernel_choices_pinned = false;
  for (const KernelChoice& choice : prepared()) EXPECT_NE(choice.implementation, large);
}

TEST_F(ProgramTest, UnloadableKnownPlansAreTunedAgain) {
  const Graph graph = small_graph();
  ProgramOptions options;
  options.batch_size = 8;
  options.kernel_choices = backend().prepare(graph, options)->kernel_choices();
  for (KernelChoice& plan : options.kernel_choices) plan.implementation = "eng9999_k0=1";
  const auto program = backend().prepare(graph, options);
  for (const KernelChoice& plan : program->kernel_choices())
    EXPECT_NE(plan.implementation, "eng9999_k0=1");
}

TEST_F(ProgramTest, RefusesGraphsWithoutKernels) {
  ProgramOptions options;
  EXPECT_THROW(backend().prepare(conv_graph({3, 1, 1}, {3, 16, 16}, 13), options),
               std::invalid_argument);
}

TEST_F(ProgramTest, RefusesAGpuThatIsNotThere) {
  ProgramOptions options;
  options.gpu = 1000;
  EXPECT_ANY_THROW(backend().prepare(small_graph(), options));
}

}  // namespace
}  // namespace nearmetal
