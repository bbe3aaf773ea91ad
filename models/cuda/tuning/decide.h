// Decides among alternatives by the time of what would run, once its results are right.
#pragma once

#include <functional>
#include <string>

#include "models/cuda/compiler/choices.h"
#include "models/cuda/tuning/trial.h"
#include "models/cuda/tuning/tuner.h"
#include "models/graph.h"
#include "models/program.h"

namespace nearmetal::cuda {

/// Sees each alternative before it is tried; a test may put a fault into its kernels.
using WatchTrial = std::function<void(const Decision&, const std::string& implementation, Trial&)>;

/// All choices of a network: plans of its convolutions, its attention, and the alternatives of its
/// ops, known ones taken over and the others timed on the tuner's device. `options`: of one
/// micro-batch.
LoweringChoices decide(const Graph& graph, const ProgramOptions& options, Tuner& tuner,
                       const WatchTrial& watch = {});

}  // namespace nearmetal::cuda
