// Helpers that the tests of every backend share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "models/graph.h"
#include "models/program.h"
#include "tests/ops/graphs.h"

namespace nearmetal {

/// The backend that this executable tests: "cpu" or "cuda".
extern const char* const tested_backend;

/// Skips where tested_backend is "cuda" and the machine has no NVIDIA device; a device or driver
/// that does not work fails.
class ProgramTest : public ::testing::Test {
 protected:
  void SetUp() override;
  Backend& backend() { return *backend_; }

 private:
  Backend* backend_ = nullptr;
};

struct GraphCase {
  std::string name;
  int64_t batch_size;
  std::function<Graph()> graph;
};

/// For readable test names: GoogleTest would print bytes, addresses among them.
std::string case_name(const ::testing::TestParamInfo<GraphCase>& info);
void PrintTo(const GraphCase& tested, std::ostream* out);

/// The features of tokens are a multiple of this on the tested backend.
int64_t token_multiple();
/// Networks of tokens on odd shapes.
std::vector<GraphCase> token_cases();

/// Networks of token ids, or with the loss of spans, on odd shapes.
std::vector<GraphCase> sequence_cases();

inline constexpr int64_t batch_size = 8;
ProgramOptions with_batch(int64_t batch = batch_size);
/// Prepared, with the initial parameters of seed 1.
std::unique_ptr<Program> started(Backend& backend, const Graph& graph,
                                 const ProgramOptions& options);
StepRecord step(Program& program);

/// The body of a test of one case: fp32, 1e-4.
void expect_reference_step(Backend& backend, const GraphCase& tested);

}  // namespace nearmetal
