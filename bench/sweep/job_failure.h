// Why a job of a sweep failed: which rank, where, and how far it was.
#pragma once

#include <string>

#include "bench/sweep/job_process.h"

namespace nearmetal {

/// Why a job ended without a complete report: because a process was killed, as its launcher says;
/// else the failure that a rank sent, with its code and exit code; else what rank 0 says in a
/// report that is not complete. Standard error is searched only for the words of launchers and of
/// processes that died before they sent anything. The text ends with the ending, and phase and step
/// of the rank.
Failure failure_of_job(const JobProcess& job);

/// How far a job came that takes too long: ": rank 1 (host) is silent (window, step 20)" where a
/// rank does not speak while others do; else phase and step of rank 0 alone.
std::string place_of_standstill(const JobProcess& job);

}  // namespace nearmetal
