// From what each rank of a job reports to the report of the job.
#pragma once

#include <vector>

#include "reports/document/types.h"

namespace nearmetal {

/// `reports`: of each rank in order, one arm with one run with one rank. Ranks of one host share
/// its environment. Images are those of all ranks; seconds those of the slowest, as ranks that
/// train one network end each step together; the throughput of ranks that are independent of each
/// other is the sum of theirs. Losses and gradient norms are means over ranks. The job is no better
/// than the worst of its ranks. What is not of a rank (configuration, plans, profile) is rank 0's.
Report merge_ranks(std::vector<Report> reports);

}  // namespace nearmetal
