// What a user, or a plan, says that ranks must find, held against what they find.
#pragma once

#include "bench/cli/run_request.h"
#include "reports/document/types.h"

namespace nearmetal {

/// Throws NotAsExpected with the option and what is there instead. `gpu`: that of the rank, null on
/// CPUs.
void require_expected(const Expected& expected, const Environment& environment, const Gpu* gpu);

}  // namespace nearmetal
