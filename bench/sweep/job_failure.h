// Why a job of a sweep failed: which rank, where, and how far it was.
#pragma once

#include <string>

#include "bench/sweep/job_process.h"

namespace nearmetal {

/// Of a job that ended without its report: what the launcher said of a process that was killed,
/// else what the program said first; with the ending, and phase and step of that rank.
std::string reason_of_end(const JobProcess& job);

/// How far a job came that takes too long: ": rank 1 (host) is silent (window, step 20)" where a
/// rank does not speak while others do; else phase and step of rank 0 alone.
std::string place_of_standstill(const JobProcess& job);

}  // namespace nearmetal
