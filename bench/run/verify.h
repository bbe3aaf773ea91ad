// The check that a network learns: it must memorise a small fixed set.
#pragma once

#include <atomic>
#include <optional>

#include "models/graph.h"
#include "models/program.h"
#include "reports/document/types.h"

namespace nearmetal {

/// Starts from new parameters and trains on at most 16 distinct images, which fill the batch over
/// and over, with labels that stay: passed as soon as the loss falls below half of ln(classes), the
/// loss of a network that has not learned anything. Random labels cannot be guessed from images of
/// noise, so that only working gradients and updates get there. Not passed: the bound was not
/// reached in 60 steps of a GPU or 30 of a CPU, or a loss was not finite. None: `stop` ended it.
std::optional<Verify> verify_learning(Program& program, const Graph& graph, const RunConfig& config,
                                      const std::atomic<int>& stop);

}  // namespace nearmetal
