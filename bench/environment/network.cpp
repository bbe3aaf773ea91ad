#include "bench/environment/network.h"

#include "bench/environment/system_files.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

constexpr size_t most_interfaces = 64;

NetworkInterface describe(const fs::path& folder, const std::string& name) {
  NetworkInterface found;
  found.name = name;
  const fs::path device = folder / "device";
  found.driver = link_name(device / "driver");
  found.state = first_line(folder / "operstate");
  found.mtu_bytes = number_in(folder / "mtu");
  const Maybe<int64_t> megabits = number_in(folder / "speed");
  found.bits_per_second = megabits && *megabits > 0
                              ? Maybe<int64_t>(1'000'000 * *megabits)
                              : Maybe<int64_t>(Unknown{"the driver does not tell its speed"});
  found.numa_node = number_in(device / "numa_node");
  const std::vector<std::string> rdma = names_in(device / "infiniband");
  found.rdma_device = rdma.empty() ? Maybe<std::string>(Unknown{"it has none"}) : rdma.front();
  std::error_code ignored;
  if (fs::exists(device, ignored)) {
    found.virtual_function = fs::exists(device / "physfn", ignored);
  } else {
    found.virtual_function = Unknown{"it belongs to no device"};
  }
  return found;
}

}  // namespace

std::vector<NetworkInterface> find_network(const fs::path& root) {
  std::vector<NetworkInterface> found;
  const fs::path folder = root / "sys/class/net";
  for (const std::string& name : names_in(folder)) {
    if (name == "lo" || found.size() == most_interfaces) continue;
    found.push_back(describe(folder / name, name));
  }
  return found;
}

}  // namespace nearmetal
