// Conditions of the ways between ranks: what NCCL took, and the NICs.
#pragma once

#include "reports/conditions/condition.h"

namespace nearmetal {

/// The transports of NCCL, and the variables that choose them.
const Conditions& exchange_conditions();

/// NICs with RDMA: their ports, links and files.
const Conditions& nic_conditions();

/// Whether ranks of one job are on several systems, or NCCL says that it takes the network.
bool uses_network(const ExplainedSide& side);

/// RDMA by way of the host's memory in place of that which reads and writes the memory of GPUs.
Seen rdma_by_host(const ExplainedSide& base, const ExplainedSide& next);

}  // namespace nearmetal
