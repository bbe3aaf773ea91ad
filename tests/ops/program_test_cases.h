// What the tests of every backend share: the backend under test and small graphs.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "models/graph.h"
#include "models/program.h"

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

/// Image, 3x3 convolution to 8 channels, then the convolution of this window to `channels`, then
/// the classifier; batch norm and ReLU behind both.
Graph conv_graph(Window window, Shape image, int64_t channels = 16, int64_t classes = 10);
/// As conv_graph, with the convolution of `window` reading the image.
Graph stem_graph(Window window, Shape image, bool pooled, int64_t channels = 8);
/// A small network with every operation: pooled stem and one block with an identity shortcut.
Graph small_graph(int64_t image_size = 32, int64_t classes = 10);
/// Stem and one bottleneck of stride 2 with a projection.
Graph bottleneck_graph(int64_t image_size, int64_t classes = 10);
/// Stem, a block with an identity shortcut, and one of stride 2 with a projection, whose stride is
/// in its first convolution (1x1) or its second (3x3).
Graph two_block_graph(Shape image, bool stride_in_first_conv);

inline constexpr int64_t batch_size = 8;
ProgramOptions with_batch(int64_t batch = batch_size);
/// Prepared, with the initial parameters of seed 1.
std::unique_ptr<Program> started(Backend& backend, const Graph& graph,
                                 const ProgramOptions& options);
StepRecord step(Program& program);

/// The body of a test of one case: fp32, 1e-4.
void expect_reference_step(Backend& backend, const GraphCase& tested);

}  // namespace nearmetal
