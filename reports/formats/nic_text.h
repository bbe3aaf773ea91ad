// NICs with RDMA and their distance to GPUs, as tables.
#pragma once

#include <vector>

#include "base/text_table.h"
#include "reports/document/environment.h"

namespace nearmetal {

/// Each GPU against each RDMA device of its host, and what these devices are; none where there are
/// none. `numbered`: GPUs are all of the host, in the driver's order.
std::vector<TitledTable> nic_tables(const std::vector<Environment>& environments,
                                    bool numbered = false);

/// All GPUs of a host in the driver's order: links, NUMA node, ATS, ACS, and the ways between them.
TitledTable gpu_table(const std::vector<Gpu>& gpus);

}  // namespace nearmetal
