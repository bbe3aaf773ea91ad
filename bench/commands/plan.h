// The options of plan and sweep that say what to run.
#pragma once

#include "bench/cli/command_line.h"
#include "bench/sweep/make_launch_plan.h"

namespace nearmetal {

/// How layouts are written in short.
extern const char* const short_form_text;

void add_layout_options(Options& options, PlanRequest& request);

/// A value that can be part of a command line. Throws std::invalid_argument.
std::string plain_text(const std::string& flag, const std::string& text);

}  // namespace nearmetal
