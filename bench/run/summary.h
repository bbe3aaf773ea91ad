// From what the training loop recorded to the figures of the report.
#pragma once

#include "bench/run/trainer.h"
#include "models/graph.h"
#include "models/program.h"
#include "reports/document/types.h"

namespace nearmetal {

/// A run of this network that starts now: its parameters and FLOPs are known, and nothing else.
Run run_of(const Graph& graph, const RunConfig& config);

/// Makes all that is to be measured unknown, for this reason.
void leave_open(Run& run, Rank& rank, const Unknown& why);

/// Of this rank alone: fills window, warm-up, throughput, FLOP/s, proof, warnings, status and the
/// series of `rank`. A run with a loss that is not finite, or an error of the device, has failed
/// and gets no throughput; one that was stopped is partial, with the figures of what was measured.
void summarise(const TrainerResult& result, const RunConfig& config, const DeviceInfo& device,
               Run& run, Rank& rank);

/// The run has failed: no throughput stands without its proof.
void fail_run(Run& run, const std::string& why);

/// Adds sums and the roofline: each entry at the slower of its arithmetic at the matrix ceiling and
/// its traffic at the copy ceiling (Williams, Waterman, Patterson: "Roofline", 2009).
StepProfile summarise(const Profile& profile, double step_seconds);

}  // namespace nearmetal
