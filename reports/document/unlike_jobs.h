// Jobs of one run that do unlike work: a sum over their samples would say nothing.
#pragma once

#include <cstddef>

#include "reports/document/types.h"

namespace nearmetal {

/// Why there is no throughput of all of them.
inline constexpr const char* unlike_work = "its jobs do unlike work, which does not add";

bool does_unlike_work(const std::vector<RunConfig>& workloads);

/// The run as it shows one of such jobs, as if it were the only one; its warnings are those of that
/// job and of the whole. For a run that is not complete it is known that it is so, and why.
Run run_of_job(const Run& run, size_t job);

}  // namespace nearmetal
