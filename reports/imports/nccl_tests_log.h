// Logs of nccl-tests (github.com/NVIDIA/nccl-tests): tables of message sizes, out of place and in
// place. Which columns they have differs by version, and before 2022 by collective.
#pragma once

#include "reports/imports/published.h"

namespace nearmetal {

/// The busbw of each size and placement. Throws InvalidReport, naming the line, for what is cut off
/// or contradicts itself, such as a busbw that its size / time cannot give.
std::vector<NamedResult> results_of_nccl_tests(const PublishedLog& log);

}  // namespace nearmetal
