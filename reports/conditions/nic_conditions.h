// Conditions of NICs with RDMA: their ports, links and files.
#pragma once

#include "reports/conditions/condition.h"

namespace nearmetal {

const Conditions& nic_conditions();

}  // namespace nearmetal
