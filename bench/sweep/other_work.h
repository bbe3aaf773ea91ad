// Whether a job did the work that it was started for.
#pragma once

#include <string>

#include "reports/document/settings.h"
#include "reports/document/types.h"

namespace nearmetal {

/// Whether a run took steps. Before, not all that its job settles is settled.
bool took_steps(const Run& run);

/// "batch 4 instead of 2, seed 7 instead of 1": the settings that config_sha256() tells apart.
/// Empty: none.
std::string other_work(const RunConfig& before, const RunConfig& now);

/// The same of what a job was asked for and did: of what was chosen, as the program of a layout may
/// have other defaults, but for what each rank, or the job itself, settles (--batch auto).
std::string other_work(const Workload& asked, const Report& job);

}  // namespace nearmetal
