#include "tests/ops/program_test_cases.h"

#include <cstdlib>
#include <filesystem>

#include "models/load_module.h"
#include "models/program.h"
#include "tests/ops/check_program.h"

namespace nearmetal {

void ProgramTest::SetUp() {
  // WSL shows the GPU under the second name.
  const bool device =
      std::filesystem::exists("/dev/nvidiactl") || std::filesystem::exists("/dev/dxg");
  if (tested_backend == std::string("cuda") && !device) {
    GTEST_SKIP() << "no NVIDIA device: neither /dev/nvidiactl nor /dev/dxg exists";
  }
  // Read when the module loads OpenMP. Tests run beside one another: a thread that waits for work
  // by spinning takes the cores of the others.
  setenv("OMP_WAIT_POLICY", "passive", 0);
  backend_ = &load_backend(tested_backend);
}

std::string case_name(const ::testing::TestParamInfo<GraphCase>& info) { return info.param.name; }

void PrintTo(const GraphCase& tested, std::ostream* out) {
  *out << tested.name << ", batch " << tested.batch_size;
}

int64_t token_multiple() { return tested_backend == std::string("cuda") ? 8 : 1; }

std::vector<GraphCase> token_cases() {
  const auto vit = [](Shape image, int64_t classes = 10) {
    return [=] { return small_vit_graph(image, classes, token_multiple()); };
  };
  const auto plain = [](Shape image) {
    return [=] { return plain_token_graph(image, token_multiple()); };
  };
  return {{"VitSize9x15", 3, vit({3, 9, 15})},
          {"VitSize12x3", 5, vit({1, 12, 3}, 13)},
          {"VitOfOnePatch", 2, vit({3, 3, 3})},
          {"VitOfOneImage", 1, vit({3, 33, 27})},
          {"PlainTokensSize13x18", 3, plain({3, 13, 18})},
          {"PlainTokensSize5x3", 4, plain({2, 5, 3})},
          {"WideTokens", 9, [] {
             return wide_token_graph({3, 5, 7}, token_multiple());
           }}};
}

std::vector<GraphCase> sequence_cases() {
  const auto bert = [](int64_t tokens, int64_t positions = 11) {
    return [=] { return small_bert_graph(tokens, positions, token_multiple()); };
  };
  const auto classified = [](int64_t tokens) {
    return [=] { return classified_sequence_graph(tokens, token_multiple()); };
  };
  return {{"BertOf7Tokens", 3, bert(7)},
          {"BertOfAllPositions", 2, bert(11)},
          {"BertOfOneSequence", 1, bert(9, 40)},
          {"BertOfTwoTokens", 5, bert(2)},
          {"BertOfManySequences", 70, bert(67, 70)},
          {"ClassifiedSequences", 6, classified(5)},
          {"ClassifiedLongSequences", 270, classified(500)},
          {"MarkedImages", 4, [] {
             return marked_image_graph({3, 9, 14}, token_multiple());
           }}};
}

ProgramOptions with_batch(int64_t batch) {
  ProgramOptions options;
  options.batch_size = batch;
  return options;
}

std::unique_ptr<Program> started(Backend& backend, const Graph& graph,
                                 const ProgramOptions& options) {
  auto program = backend.prepare(graph, options);
  program->restart(initial_parameters(graph, 1));
  return program;
}

StepRecord step(Program& program) {
  program.enqueue_step();
  return program.wait_step();
}

void expect_reference_step(Backend& backend, const GraphCase& tested) {
  ProgramOptions options;
  options.batch_size = tested.batch_size;
  EXPECT_TRUE(check_against_reference(backend, tested.graph(), options));
}

}  // namespace nearmetal
