// `nearmetal plan`: what a sweep would start.
#pragma once

#include "bench/cli/command.h"

namespace nearmetal {

/// Prints or writes the plan in the form that was asked for; touches no GPU and starts nothing.
Command plan_command();

}  // namespace nearmetal
