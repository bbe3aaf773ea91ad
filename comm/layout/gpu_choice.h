// The choice of a host's GPUs for a job whose layout names none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/layout/layout.h"
#include "comm/layout/placement.h"

namespace nearmetal {

/// `count` of the free GPUs, rising: those with the most pairs that an NVLink connects; of these,
/// where the job is on several hosts (`network`), those nearest to a NIC; else the first. Where
/// nothing is known of their places, the first.
std::vector<int64_t> choose_gpus(const Host& host, const std::vector<int64_t>& free, int64_t count,
                                 bool network);

/// "GPUs 1, 3 of vm0: NVLink connects them all; nearest NIC: mlx5_1
/// (PIX)"; empty: nothing is known that
/// counts for these.
std::string choice_text(const Host& host, const std::vector<int64_t>& gpus, bool network);

/// The same for each job and host of a layout that leaves the choice; none of hosts that it takes
/// whole.
std::vector<std::string> choice_texts(const Placement& placement, const std::vector<Host>& hosts);

}  // namespace nearmetal
