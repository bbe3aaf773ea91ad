#include "bench/environment/rdma.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>

#include "base/text.h"
#include "bench/environment/system_files.h"
#include "bench/environment/virtualisation.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

constexpr size_t most_devices = 64;

std::vector<std::string> device_names(const fs::path& root) {
  std::vector<std::string> names = names_in(root / "sys/class/infiniband");
  names.resize(std::min(names.size(), most_devices));
  return names;
}

// "4: ACTIVE"
Maybe<std::string> state_in(const fs::path& file) {
  Maybe<std::string> line = first_line(file);
  if (!line) return line;
  const size_t colon = line->find(": ");
  return lower_case(colon == line->npos ? *line : line->substr(colon + 2));
}

// "400 Gb/sec (4X NDR)"
Maybe<int64_t> rate_in(const fs::path& file) {
  const Maybe<std::string> line = first_line(file);
  if (!line) return Unknown{line.reason};
  const double gigabits = std::strtod(line->c_str(), nullptr);
  if (gigabits <= 0) return Unknown{file.string() + " says " + *line};
  return static_cast<int64_t>(gigabits * 1e9);
}

std::vector<int64_t> numbered_in(const fs::path& folder) {
  std::vector<int64_t> numbers;
  for (const std::string& name : names_in(folder)) {
    const bool is_number = name.size() < 10 && name.find_first_not_of("0123456789") == name.npos;
    if (is_number) numbers.push_back(std::stoll(name));
  }
  std::ranges::sort(numbers);
  return numbers;
}

std::vector<RdmaGid> gids_of(const fs::path& port) {
  std::vector<RdmaGid> gids;
  for (const int64_t index : numbered_in(port / "gids")) {
    const std::string name = std::to_string(index);
    const Maybe<std::string> gid = first_line(port / "gids" / name);
    if (!gid || gid->find_first_not_of("0:") == gid->npos) continue;  // not set
    gids.push_back({index, *gid, first_line(port / "gid_attrs/types" / name),
                    first_line(port / "gid_attrs/ndevs" / name)});
    if (gids.size() == most_listed_gids) break;
  }
  return gids;
}

std::vector<RdmaPort> ports_of(const fs::path& device) {
  std::vector<RdmaPort> ports;
  for (const int64_t number : numbered_in(device / "ports")) {
    const fs::path folder = device / "ports" / std::to_string(number);
    ports.push_back({.number = number,
                     .state = state_in(folder / "state"),
                     .physical_state = state_in(folder / "phys_state"),
                     .link_layer = first_line(folder / "link_layer"),
                     .bits_per_second = rate_in(folder / "rate"),
                     .gids = gids_of(folder)});
  }
  return ports;
}

// The name that a list of PCI ids has for 0x15b3 and 0x1021; empty: none.
std::string name_in_list(const fs::path& list, const std::string& vendor,
                         const std::string& device) {
  std::ifstream file(list);
  bool of_vendor = false;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#' || line.starts_with("\t\t")) continue;
    if (line[0] != '\t') {
      of_vendor = line.starts_with(vendor + "  ");
    } else if (of_vendor && line.starts_with("\t" + device + "  ")) {
      return line.substr(device.size() + 3);
    }
  }
  return "";
}

void add_model(RdmaDevice& found, const fs::path& device, const fs::path& root) {
  const Maybe<std::string> vendor = first_line(device / "device/vendor");  // 0x15b3
  const Maybe<std::string> id = first_line(device / "device/device");
  found.model = first_line(device / "hca_type");
  found.device_id = Unknown{vendor.reason};
  if (!vendor || !id || vendor->size() != 6 || id->size() != 6) return;
  std::string digits = id->substr(2) + vendor->substr(2);
  std::ranges::transform(digits, digits.begin(), [](unsigned char c) { return std::toupper(c); });
  found.device_id = "0x" + digits;
  for (const char* list : {"usr/share/misc/pci.ids", "usr/share/hwdata/pci.ids"}) {
    const std::string name = name_in_list(root / list, vendor->substr(2), id->substr(2));
    if (!name.empty()) found.model = name;
  }
}

// A guest is not shown what its function belongs to: those of mlx5 have ids of their own
// (MLX5_PCI_DEV_IS_VF in drivers/net/ethernet/mellanox/mlx5/core/main.c), others a name.
bool names_virtual_function(const RdmaDevice& found) {
  constexpr std::array mlx5 = {"0x101215B3", "0x101415B3", "0x101615B3", "0x101815B3",
                               "0x101A15B3", "0x101C15B3", "0x101E15B3"};
  const auto is = [&](const char* id) { return found.device_id && *found.device_id == id; };
  return std::ranges::any_of(mlx5, is) ||
         (found.model && found.model->find("Virtual Function") != std::string::npos);
}

// The class of verbs shows whose each file in /dev is.
Maybe<bool> has_device_file(const std::string& name, const fs::path& root) {
  const fs::path verbs = root / "sys/class/infiniband_verbs";
  for (const std::string& file : names_in(verbs)) {
    const Maybe<std::string> device = first_line(verbs / file / "ibdev");
    if (device && *device == name) return is_there(root / "dev/infiniband" / file);
  }
  return Unknown{verbs.string() + " has none for it"};
}

RdmaDevice describe_rdma(const std::string& name, const fs::path& root) {
  const fs::path device = root / "sys/class/infiniband" / name;
  std::error_code is_software;
  fs::path function = fs::canonical(device / "device", is_software);
  if (is_software) function = device / "device";
  RdmaDevice found;
  found.name = name;
  found.interfaces = names_in(function / "net");
  found.pci_id = Unknown{"it is software, on no PCI bus"};
  if (!is_software) found.pci_id = function.filename().string();
  add_model(found, device, root);
  found.board_id = first_line(device / "board_id");
  found.firmware = first_line(device / "fw_ver");
  found.driver = link_name(function / "driver");
  found.driver_version = Unknown{found.driver.reason};
  if (found.driver) {
    found.driver_version = first_line(root / "sys/module" / *found.driver / "version");
  }
  found.device_file = has_device_file(name, root);
  found.link_generation = link_generation_in(function / "current_link_speed");
  found.link_width = link_width_in(function / "current_link_width");
  found.largest_link_generation = link_generation_in(function / "max_link_speed");
  found.largest_link_width = link_width_in(function / "max_link_width");
  add_pci_facts(found, function);
  if (names_virtual_function(found)) found.virtual_function = true;
  found.ports = ports_of(device);
  return found;
}

Maybe<GpuDirectRdma> gpu_direct_of(const Gpu& gpu, const fs::path& nic, const fs::path& root) {
  if (!is_there(nic / "device")) return GpuDirectRdma::none;  // RDMA by software
  if (gpu.dma_buf && *gpu.dma_buf) return GpuDirectRdma::dma_buf;
  const Maybe<bool> peer_memory = peer_memory_module(root);
  if (peer_memory && *peer_memory) return GpuDirectRdma::peer_memory;
  if (!peer_memory) return Unknown{peer_memory.reason};
  if (!gpu.dma_buf) return Unknown{gpu.dma_buf.reason};
  return GpuDirectRdma::none;
}

Maybe<int64_t> bytes_in(const fs::path& file, int64_t unit) {
  const Maybe<int64_t> count = number_in(file);
  if (count && *count <= INT64_MAX / unit) return unit * *count;
  return Unknown{"the driver does not say"};
}

// The count in words of 4 bytes as the InfiniBand specification has it, else as some drivers name
// it.
Maybe<int64_t> bytes_through(const fs::path& port, const char* words, const char* bytes) {
  Maybe<int64_t> count = bytes_in(port / words, 4);
  return count ? count : bytes_in(port / bytes, 1);
}

Maybe<int64_t> errors_of(const fs::path& port) {
  constexpr std::array files = {
      "counters/symbol_error",        "counters/link_downed",
      "counters/link_error_recovery", "counters/port_rcv_errors",
      "counters/port_xmit_discards",  "hw_counters/out_of_sequence",
      "hw_counters/packet_seq_err",   "hw_counters/local_ack_timeout_err"};
  Maybe<int64_t> errors = Unknown{"the driver does not say"};
  for (const char* file : files) {
    if (const Maybe<int64_t> number = number_in(port / file)) {
      errors = errors.value.value_or(0) + *number;
    }
  }
  return errors;
}

Maybe<int64_t> difference(const Maybe<int64_t>& before, const Maybe<int64_t>& now) {
  if (!now) return now;
  if (!before) return before;
  if (*now < *before) return Unknown{"the counter was set to 0 meanwhile"};
  return *now - *before;
}

}  // namespace

std::vector<RdmaDevice> find_rdma(const fs::path& root) {
  return transformed(device_names(root),
                     [&](const std::string& name) { return describe_rdma(name, root); });
}

std::vector<std::string> ucx_devices(const std::set<std::string>& interfaces,
                                     const std::set<std::string>& named, bool left_out,
                                     const std::vector<RdmaDevice>& rdma) {
  const auto is_named = [&](const std::string& name) { return named.contains(name); };
  std::vector<std::string> devices;
  for (const std::string& name : interfaces) {
    if (is_named(name) != left_out) devices.push_back(name);
  }
  for (const RdmaDevice& device : rdma) {
    for (const RdmaPort& port : device.ports) {
      std::vector<std::string> own;  // GIDs tell ports of RoCE apart
      for (const RdmaGid& gid : port.gids) own.push_back(gid.interface.value.value_or(""));
      if (std::ranges::all_of(own, &std::string::empty)) own = device.interfaces;
      if (port.state.value != "active" || std::ranges::any_of(own, is_named) == left_out) continue;
      devices.push_back(device.name + ":" + std::to_string(port.number));
    }
  }
  return devices;
}

std::vector<NicPath> nic_paths(const Gpu& gpu, const fs::path& root) {
  return transformed(device_names(root), [&](const std::string& name) -> NicPath {
    const fs::path nic = root / "sys/class/infiniband" / name;
    return {name, pci_distance(root, pci_folder(root, *gpu.pci_id), nic / "device"),
            gpu_direct_of(gpu, nic, root)};
  });
}

std::vector<RdmaTraffic> rdma_counters(const fs::path& root) {
  std::vector<RdmaTraffic> counters;
  for (const std::string& name : device_names(root)) {
    const fs::path ports = root / "sys/class/infiniband" / name / "ports";
    for (const int64_t number : numbered_in(ports)) {
      const fs::path port = ports / std::to_string(number);
      counters.push_back(
          {name, number, bytes_through(port, "counters/port_xmit_data", "hw_counters/tx_bytes"),
           bytes_through(port, "counters/port_rcv_data", "hw_counters/rx_bytes"), errors_of(port)});
    }
  }
  return counters;
}

std::vector<RdmaTraffic> traffic_since(const std::vector<RdmaTraffic>& before,
                                       std::vector<RdmaTraffic> now) {
  for (RdmaTraffic& port : now) {
    const auto earlier = std::ranges::find_if(before, [&](const RdmaTraffic& other) {
      return other.rdma_device == port.rdma_device && other.port == port.port;
    });
    const RdmaTraffic first = earlier == before.end() ? RdmaTraffic{} : *earlier;
    port.sent_bytes = difference(first.sent_bytes, port.sent_bytes);
    port.received_bytes = difference(first.received_bytes, port.received_bytes);
    port.errors = difference(first.errors, port.errors);
  }
  return now;
}

}  // namespace nearmetal
