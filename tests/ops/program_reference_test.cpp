// Every operation and whole networks against the reference, in fp32, for the backend under test.
#include <string>
#include <vector>

#include "models/networks/registry.h"
#include "tests/ops/check_program.h"
#include "tests/ops/program_test_cases.h"

namespace nearmetal {
namespace {

class ProgramReferenceTest : public ProgramTest, public ::testing::WithParamInterface<GraphCase> {};

TEST_P(ProgramReferenceTest, StepEqualsReference) { expect_reference_step(backend(), GetParam()); }

std::string window_name(Window window) {
  return "Kernel" + std::to_string(window.kernel) + "Stride" + std::to_string(window.stride) +
         "Padding" + std::to_string(window.padding);
}

std::vector<GraphCase> conv_cases() {
  const Window windows[] = {{1, 1, 0}, {1, 2, 0}, {3, 1, 0}, {3, 1, 1},
                            {3, 2, 1}, {3, 2, 0}, {7, 1, 3}, {7, 2, 3}};
  std::vector<GraphCase> cases;
  int64_t batch = 1;
  for (const Window window : windows) {
    const Shape image{3, 13 + batch, 17 - batch};  // odd and even, not square
    cases.push_back({window_name(window), batch, [=] { return conv_graph(window, image); }});
    batch = batch % 5 + 1;
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Convolution, ProgramReferenceTest, ::testing::ValuesIn(conv_cases()),
                         case_name);

std::vector<GraphCase> stem_cases() {
  std::vector<GraphCase> cases;
  for (const Window window : {Window{7, 2, 3}, Window{3, 1, 1}, Window{3, 2, 2}, Window{1, 1, 0}}) {
    for (const int64_t size : {32, 33}) {
      for (const bool pooled : {false, true}) {
        cases.push_back(
            {window_name(window) + "Size" + std::to_string(size) + (pooled ? "Pooled" : ""), 3,
             [=] {
               return stem_graph(window, {3, size, size + 14}, pooled);
             }});
      }
    }
  }
  cases.push_back({"GreyImages", 4, [] { return stem_graph({3, 1, 1}, {1, 9, 9}, false); }});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Stem, ProgramReferenceTest, ::testing::ValuesIn(stem_cases()), case_name);

std::vector<GraphCase> block_cases() {
  std::vector<GraphCase> cases;
  for (const int64_t size : {32, 33, 47}) {
    const std::string name = "Size" + std::to_string(size);
    cases.push_back({"Identity" + name, 4, [=] { return small_graph(size); }});
    cases.push_back({"Projection" + name, 3, [=] { return bottleneck_graph(size); }});
  }
  for (const bool first : {false, true}) {
    const std::string name = std::string("StrideIn") + (first ? "First" : "Second");
    cases.push_back({name + "Odd", 3, [=] { return two_block_graph({3, 15, 21}, first); }});
    cases.push_back({name + "Even", 3, [=] { return two_block_graph({3, 16, 10}, first); }});
  }
  cases.push_back({"WideBottlenecks", 4, [] { return wide_bottlenecks_graph({3, 11, 14}); }});
  for (const int64_t classes : {2, 13, 1000}) {
    cases.push_back(
        {"Classes" + std::to_string(classes), 5, [=] { return small_graph(33, classes); }});
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Block, ProgramReferenceTest, ::testing::ValuesIn(block_cases()),
                         case_name);

std::vector<GraphCase> plain_cases() {
  std::vector<GraphCase> cases;
  int64_t batch = 2;
  for (const Shape image : {Shape{3, 12, 12}, Shape{3, 13, 18}, Shape{1, 9, 7}}) {
    const std::string name =
        "Size" + std::to_string(image.height) + "x" + std::to_string(image.width);
    cases.push_back({"Plain" + name, ++batch, [=] { return plain_graph(image); }});
    cases.push_back({"Vgg" + name, batch, [=] { return small_vgg_graph(image, false); }});
    cases.push_back({"VggNorm" + name, batch, [=] { return small_vgg_graph(image, true); }});
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Plain, ProgramReferenceTest, ::testing::ValuesIn(plain_cases()),
                         case_name);

INSTANTIATE_TEST_SUITE_P(Tokens, ProgramReferenceTest, ::testing::ValuesIn(token_cases()),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Sequences, ProgramReferenceTest, ::testing::ValuesIn(sequence_cases()),
                         case_name);

// The last batch norms of a ResNet see few values per channel (batch x 1 pixel at size 32): the
// fewer, the more any rounding is amplified. The reference takes seconds for fifty layers, so that
// one ResNet-50 is for all backends. GPUs, whose kernels are chosen by shape, get two more.
std::vector<GraphCase> network_cases() {
  const auto network = [](const char* name, int64_t size, int64_t classes) {
    return [=] { return build_network(name, {size, classes}); };
  };
  std::vector<GraphCase> cases{{"ResNet20Size32", 4, network("resnet20", 32, 10)},
                               {"ResNet18Size32", 8, network("resnet18", 32, 10)},
                               {"ResNet18Size64", 4, network("resnet18", 64, 1000)},
                               {"ResNet50Size32", 6, network("resnet50", 32, 10)}};
  if (tested_backend == std::string("cuda")) {
    cases.push_back({"ResNet50Size64", 2, network("resnet50", 64, 1000)});
    cases.push_back({"ResNet50V1Size33", 4, network("resnet50_v1", 33, 10)});
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Network, ProgramReferenceTest, ::testing::ValuesIn(network_cases()),
                         case_name);

TEST_F(ProgramTest, StepOfATrainedNetworkEqualsReference) {
  ProgramOptions options;
  options.batch_size = 4;
  const Graph graph = build_network("resnet20", {32, 10});
  EXPECT_TRUE(check_against_reference(backend(), graph, options, 1e-4, 20));
}

TEST_F(ProgramTest, OtherOptimizerSettingsAreUsed) {
  ProgramOptions options;
  options.batch_size = 4;
  options.optimizer = {0.03, 0.5, 0.01};
  EXPECT_TRUE(check_against_reference(backend(), small_graph(), options));
}

}  // namespace
}  // namespace nearmetal
