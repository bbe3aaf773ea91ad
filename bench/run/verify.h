// The check that a network learns: it must memorise a small fixed set.
#pragma once

#include <atomic>
#include <cstdint>

#include "models/graph.h"
#include "models/program.h"
#include "reports/document/types.h"

namespace nearmetal {

struct VerifyOptions {
  int64_t batch = 16;
  uint64_t seed = 1;
  bool zero_init = false;
  int64_t maximum_steps = 60;
};

/// Starts from new parameters and trains on at most 16 distinct images, which fill the batch over
/// and over, with labels that stay: passed as soon as the loss falls below half of ln(classes), the
/// loss of a network that has not learned anything. Random labels cannot be guessed from images of
/// noise, so that only working gradients and updates get there. Not passed: the bound was not
/// reached in maximum_steps, or a loss was not finite. `stop` not 0 ends it, not passed.
Verify verify_learning(Program& program, const Graph& graph, const VerifyOptions& options,
                       const std::atomic<int>& stop);

}  // namespace nearmetal
