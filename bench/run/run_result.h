// What a finished run hands to the user, or to the sweep that started it.
#pragma once

#include "bench/cli/destination.h"
#include "bench/cli/terminal.h"
#include "bench/run/teller.h"
#include "reports/document/types.h"

namespace nearmetal {

/// Writes the report, then prints its table; where it cannot be written, the table all the same.
void publish(const Report& report, const Destination& destination, const Terminal& terminal);

/// The report as the last event of a job.
void tell_result(const Report& report, Teller& teller);

/// One line where the run is not complete.
void tell_failure(const Run& run, const Terminal& terminal);

}  // namespace nearmetal
