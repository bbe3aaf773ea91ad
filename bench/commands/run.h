// What `nearmetal run` does in each process of a job.
#pragma once

#include "bench/cli/command.h"
#include "bench/cli/run_request.h"
#include "comm/world.h"

namespace nearmetal {

/// Joins the other ranks and does run_rank().
ExitCode run_job(const RunRequest& request, const Context& context);

/// Trains together with the other ranks of `world`; rank 0 prints the table and writes the report.
/// A run that fails or is stopped still writes its report; what keeps it from starting (settings,
/// device, a path) is thrown instead.
ExitCode run_rank(const RunRequest& request, const Context& context, World& world);

}  // namespace nearmetal
