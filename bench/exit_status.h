// What an error means for the exit code: the one place that maps them.
#pragma once

#include <exception>

#include "reports/exit_code.h"

namespace nearmetal {

ExitCode exit_code_of(const std::exception& error);

/// Of a program that stopped because of this signal.
ExitCode exit_code_of_signal(int signal);

}  // namespace nearmetal
