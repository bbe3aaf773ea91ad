// `nearmetal run`: trains one workload, prints a table, writes a report.
#pragma once

#include "bench/cli/command.h"
#include "bench/cli/run_request.h"

namespace nearmetal {

Command run_command();

/// What `run` does once it is known what is asked, on each rank; see run_rank() (rank_job.h).
ExitCode run_job(const RunRequest& request, const Context& context);

}  // namespace nearmetal
