// The network interfaces of a host, with what decides how fast ranks can talk over them.
#pragma once

#include <filesystem>
#include <vector>

#include "reports/document/environment.h"

namespace nearmetal {

/// All but the loopback, sorted by name; at most 64.
std::vector<NetworkInterface> find_network(const std::filesystem::path& root);

}  // namespace nearmetal
