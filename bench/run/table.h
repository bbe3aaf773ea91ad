// Reports for people: prints what the report holds and computes nothing but units.
#pragma once

#include <ostream>

#include "reports/document/types.h"

namespace nearmetal {

/// The result table of one run; `run` says why there are no figures where it failed.
void print_summary(std::ostream& out, const Report& report, const Run& run, bool colour);

/// One line per kernel or primitive in the order of the step, then their sum and the roofline.
void print_profile(std::ostream& out, const StepProfile& profile);

/// The probes of a machine that were timed for --attribute, of one rank.
void print_probes(std::ostream& out, const RankProbes& probed);

}  // namespace nearmetal
