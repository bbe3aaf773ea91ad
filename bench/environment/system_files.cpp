#include "bench/environment/system_files.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "base/pattern.h"
#include "base/text.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

constexpr size_t longest_line = 64 << 10;

// PCI Express base specification, "Extended Capabilities".
constexpr size_t extended_begin = 0x100, extended_end = 0x1000;
constexpr uint32_t acs_id = 0x000d, ats_id = 0x000f;
constexpr size_t control_offset = 6;  // of both
constexpr unsigned acs_request_redirect = 1 << 2, ats_enable = 1 << 15;

Maybe<std::string> extended_configuration(const fs::path& device) {
  std::ifstream file(device / "config", std::ios::binary);
  std::string bytes(extended_end, '\0');
  file.read(bytes.data(), extended_end);
  bytes.resize(file.gcount());
  if (bytes.size() > extended_begin) return bytes;
  return Unknown{"the extended configuration of " + device.filename().string() +
                 " is not readable (root may)"};
}

// Little-endian; bytes beyond the end are 0.
uint32_t number_at(const std::string& bytes, size_t offset, size_t size) {
  uint32_t number = 0;
  for (size_t i = 0; i < size && offset + i < bytes.size(); ++i) {
    number |= uint32_t{static_cast<unsigned char>(bytes[offset + i])} << (8 * i);
  }
  return number;
}

// The control register of an extended capability; none where the function has no such capability.
std::optional<unsigned> control_of(const std::string& configuration, uint32_t wanted_id) {
  size_t offset = extended_begin;
  // Ends after as many as there is room for: a list that leads back into itself must end.
  for (size_t looks = 0; looks < (extended_end - extended_begin) / 4; ++looks) {
    const uint32_t header = number_at(configuration, offset, 4);
    if ((header & 0xffff) == wanted_id) return number_at(configuration, offset + control_offset, 2);
    offset = header >> 20;
    if (offset < extended_begin) break;
  }
  return {};
}

Maybe<bool> ats_capable(const fs::path& device) {
  const auto bytes = extended_configuration(device);
  if (!bytes) return Unknown{bytes.reason};
  return control_of(*bytes, ats_id).has_value();
}

Maybe<bool> control_has(const fs::path& device, uint32_t id, unsigned bit) {
  const auto bytes = extended_configuration(device);
  if (!bytes) return Unknown{bytes.reason};
  const auto control = control_of(*bytes, id);
  return control && (*control & bit) != 0;
}

// Nearest first.
std::vector<fs::path> bridges_above(const fs::path& device) {
  static const Pattern address("[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7]");
  std::vector<fs::path> bridges;
  std::error_code ignored;
  for (fs::path folder = fs::canonical(device, ignored).parent_path();
       address.matches(folder.filename().string()); folder = folder.parent_path()) {
    bridges.push_back(folder);
  }
  return bridges;
}

// The host bridge, such as /sys/devices/pci0000:00.
fs::path host_bridge(const fs::path& device, const std::vector<fs::path>& bridges) {
  std::error_code ignored;
  return bridges.empty() ? fs::canonical(device, ignored).parent_path()
                         : bridges.back().parent_path();
}

Maybe<PciDistance> distance_of_host_bridges(const fs::path& root, const fs::path& device,
                                            const fs::path& other) {
  const Maybe<int64_t> node = number_in(device / "numa_node");
  const Maybe<int64_t> other_node = number_in(other / "numa_node");
  if (node && other_node && *node >= 0 && *other_node >= 0) {
    return *node == *other_node ? PciDistance::node : PciDistance::sys;
  }
  const std::vector<std::string> names = names_in(root / "sys/devices/system/node");
  const auto nodes = std::ranges::count_if(names, [](const std::string& name) {
    return name.starts_with("node") && name.find_first_of("0123456789") == 4;
  });
  if (nodes == 1) return PciDistance::node;
  return Unknown{"they are below different host bridges, and their NUMA nodes are not known"};
}

}  // namespace

Maybe<std::string> first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return Unknown{path.string() + " cannot be read"};
  line.resize(std::min(line.size(), longest_line));
  line.erase(line.find_last_not_of(" \t\r") + 1);
  return line;
}

Maybe<int64_t> number_in(const fs::path& path) {
  const Maybe<std::string> line = first_line(path);
  if (!line) return Unknown{line.reason};
  int64_t number = 0;
  const char* end = line->data() + line->size();
  if (std::from_chars(line->data(), end, number).ptr != end || line->empty()) {
    return Unknown{path.string() + " holds no number"};
  }
  return number;
}

Maybe<std::string> value_in(const fs::path& path, std::string_view key, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.find(separator);
    if (!line.starts_with(key) || at == line.npos) continue;
    if (line.substr(key.size(), at - key.size()).find_first_not_of(" \t") != line.npos) continue;
    std::string value = line.substr(at + 1);
    std::erase(value, '"');
    value.erase(0, value.find_first_not_of(" \t"));
    return value;
  }
  return Unknown{path.string() + " has no " + std::string(key)};
}

std::vector<int64_t> usable_cpus() {
  std::vector<int64_t> cpus;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) cpus.push_back(cpu);
  }
  return cpus;
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored)) {
    names.push_back(entry->path().filename());
  }
  std::ranges::sort(names);
  return names;
}

Maybe<std::string> link_name(const fs::path& link) {
  std::error_code error;
  const fs::path target = fs::read_symlink(link, error);
  if (error) return Unknown{link.string() + " is no link"};
  return target.filename().string();
}

fs::path pci_folder(const fs::path& root, const std::string& pci_id) {
  const std::string name = lower_case(pci_id);
  return root / "sys/bus/pci/devices" / (name.find(':') == 8 ? name.substr(4) : name);
}

Maybe<int64_t> link_generation_in(const fs::path& file) {
  const Maybe<std::string> line = first_line(file);  // 32.0 GT/s PCIe
  if (!line) return Unknown{line.reason};
  const auto* const found =
      std::ranges::find(pcie_gigatransfers, std::strtod(line->c_str(), nullptr));
  if (found == pcie_gigatransfers.end()) return Unknown{file.string() + " says " + *line};
  return found - pcie_gigatransfers.begin() + 1;
}

Maybe<int64_t> link_width_in(const fs::path& file) {
  Maybe<int64_t> lanes = number_in(file);
  if (lanes && (*lanes < 1 || *lanes > 32)) return Unknown{file.string() + " has no width"};
  return lanes;
}

Maybe<bool> ats_enabled(const fs::path& device) { return control_has(device, ats_id, ats_enable); }

Maybe<bool> acs_redirects(const fs::path& device) {
  const std::vector<fs::path> bridges = bridges_above(device);
  if (bridges.empty()) return Unknown{"no bridge above it is seen from here"};
  for (const fs::path& bridge : bridges) {
    Maybe<bool> redirects = control_has(bridge, acs_id, acs_request_redirect);
    if (!redirects || *redirects) return redirects;
  }
  return false;
}

// In the words of nvidia-smi a switch is one bridge, though it has a port up and one down: two
// devices below ports of one switch have that switch alone between them.
Maybe<PciDistance> pci_distance(const fs::path& root, const fs::path& device,
                                const fs::path& other) {
  for (const fs::path& folder : {device, other}) {
    if (!is_there(folder)) return Unknown{folder.string() + " is not there"};
  }
  const std::vector<fs::path> above = bridges_above(device), above_other = bridges_above(other);
  for (size_t own = 0; own < above.size(); ++own) {
    const auto common = std::ranges::find(above_other, above[own]);
    if (common == above_other.end()) continue;
    const bool one_switch = own <= 1 && common - above_other.begin() <= 1;
    return one_switch ? PciDistance::pix : PciDistance::pxb;
  }
  if (host_bridge(device, above) == host_bridge(other, above_other)) return PciDistance::phb;
  return distance_of_host_bridges(root, device, other);
}

void add_pci_facts(PciDevice& found, const fs::path& device) {
  found.numa_node = number_in(device / "numa_node");
  found.iommu_group = Unknown{"it is in no IOMMU group, as seen from here"};
  found.iommu_type = Unknown{found.iommu_group.reason};
  if (const auto group = link_name(device / "iommu_group")) {
    found.iommu_group = std::strtoll(group->c_str(), nullptr, 10);
    found.iommu_type = first_line(device / "iommu_group/type");
  }
  found.virtual_function = Unknown{device.string() + " is not there"};
  if (is_there(device)) found.virtual_function = is_there(device / "physfn");
  found.ats_capable = ats_capable(device);
  found.ats = ats_enabled(device);
  found.acs_redirect = acs_redirects(device);
}

}  // namespace nearmetal
