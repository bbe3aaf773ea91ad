// What an error means for the exit code: the one place that maps them.
#pragma once

#include <exception>

#include "models/errors.h"

namespace nearmetal {

ExitCode exit_code_of(const std::exception& error);

/// Whether this process is the one to tell the user: of a job's failure, one rank is.
bool is_to_be_told(const std::exception& error);

/// Of a program that stopped because of this signal.
ExitCode exit_code_of_signal(int signal);

}  // namespace nearmetal
