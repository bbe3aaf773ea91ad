// The work of `nearmetal run` in each process of a job.
#pragma once

#include "bench/cli/command_line.h"
#include "bench/cli/run_request.h"

namespace nearmetal {

/// Joins the other ranks and trains together with them; rank 0 prints the table and writes the
/// report. A run that fails or is stopped still writes its report; what keeps it from starting
/// (settings, device, a path) is thrown instead.
ExitCode run_job(const RunRequest& request, const Context& context);

}  // namespace nearmetal
