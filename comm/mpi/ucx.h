// What Open MPI takes of UCX in this process.
#pragma once

#include <string>
#include <vector>

#include "base/value.h"

namespace nearmetal {

/// The transports and devices of one endpoint, as "tcp/eth0" and "rc_mlx5/mlx5_0:1", each once, of
/// what ucp_ep_print_info() prints; none of an endpoint to the process itself.
std::vector<std::string> ucx_transports(const std::string& info);

/// Those of all endpoints until now, sorted; not while another thread is in MPI.
Maybe<std::vector<std::string>> ucx_transports_taken();

}  // namespace nearmetal
