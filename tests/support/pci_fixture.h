// PCI devices of a constructed system: of each a line of its fixture, of which the files are made
// that the kernel and the driver's library would show.
#pragma once

#include <filesystem>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace nearmetal {

struct ExtendedCapability {
  int id;
  int control;
};

// Constructed after the PCI Express base specification: 4 KiB with these extended capabilities.
inline std::string constructed_configuration(const std::vector<ExtendedCapability>& capabilities) {
  std::string bytes(4096, '\0');
  const auto put = [&](size_t offset, uint32_t value, size_t size) {
    for (size_t i = 0; i < size; ++i) bytes[offset + i] = static_cast<char>(value >> (8 * i));
  };
  size_t offset = 0x100;
  for (const ExtendedCapability& capability : capabilities) {
    const bool last = &capability == &capabilities.back();
    const size_t next = last ? 0 : offset + 0x40;
    put(offset, static_cast<uint32_t>(capability.id | 1 << 16 | next << 20), 4);
    put(offset + 6, capability.control, 2);
    offset = next;
  }
  return bytes;
}

/// "pci0000:15/0000:15:01.0/0000:16:00.0 gpu=NVIDIA_H200 link=32x16 ...": its place in the tree,
/// then what is told of it. tests/data/hosts/README.md lists the words.
class PciFixture {
 public:
  explicit PciFixture(const TemporaryFolder& root) : root_(root) {}

  void add(const std::string& line) {
    std::istringstream words(line);
    std::string place;
    words >> place;
    Device device{"sys/devices/" + place, std::filesystem::path(place).filename(), {}};
    for (std::string word; words >> word;) {
      const size_t equals = word.find('=');
      if (equals == word.npos) throw std::runtime_error("not NAME=VALUE: " + word);
      device.told[word.substr(0, equals)] = word.substr(equals + 1);
    }
    add(device);
  }

  /// The answers of the stand-in for NVML, once all devices are there.
  std::string nvml_answers() const {
    std::string text = "nvmlSystemGetDriverVersion 580.95.05\nnvmlDeviceGetCount_v2 " +
                       std::to_string(gpus_.size()) + "\n";
    for (size_t i = 0; i < gpus_.size(); ++i) text += answers_of(i);
    return text;
  }

 private:
  struct Device {
    std::string folder;
    std::string address;
    std::map<std::string, std::string> told;

    std::string value(const std::string& name, const std::string& otherwise = "") const {
      const auto found = told.find(name);
      return found == told.end() ? otherwise : found->second;
    }
  };

  void add(const Device& device) {
    link("sys/bus/pci/devices/" + device.address, device.folder);
    root_.write(device.folder + "/numa_node", device.value("numa", "-1") + "\n");
    root_.write(device.folder + "/local_cpulist", device.value("cpus", "0-7") + "\n");
    root_.write(device.folder + "/config", configuration_of(device));
    add_link(device, "link", "current");
    add_link(device, device.told.contains("most") ? "most" : "link", "max");
    if (device.told.contains("group")) add_group(device);
    if (device.told.contains("physfn")) link(device.folder + "/physfn", device.folder);
    if (device.told.contains("rdma")) add_rdma(device);
    if (device.told.contains("gpu")) gpus_.push_back(device);
  }

  // 64 bytes are what users other than root see.
  static std::string configuration_of(const Device& device) {
    if (device.value("config") == "64") return std::string(64, '\0');
    std::vector<ExtendedCapability> capabilities = {{0x01, 0}};  // error reporting
    if (device.told.contains("ats")) {
      capabilities.push_back({0x0f, device.value("ats") == "on" ? 0x8000 : 0});
    }
    if (device.told.contains("acs")) {
      capabilities.push_back({0x0d, std::stoi(device.value("acs"), nullptr, 16)});
    }
    return constructed_configuration(capabilities);
  }

  // "32x16": gigatransfers a second and lanes.
  void add_link(const Device& device, const std::string& name, const std::string& which) {
    const std::string text = device.value(name);
    if (text.empty()) return;
    const size_t x = text.find('x');
    root_.write(device.folder + "/" + which + "_link_speed", text.substr(0, x) + ".0 GT/s PCIe\n");
    root_.write(device.folder + "/" + which + "_link_width", text.substr(x + 1) + "\n");
  }

  void add_group(const Device& device) {
    const std::string group = "sys/kernel/iommu_groups/" + device.value("group");
    root_.write(group + "/type", device.value("iommu", "identity") + "\n");
    link(device.folder + "/iommu_group", group);
  }

  void add_rdma(const Device& device) {
    const std::string name = device.value("rdma");
    const std::string folder = device.folder + "/infiniband/" + name;
    root_.write(folder + "/fw_ver", "28.39.1002\n");
    root_.write(folder + "/board_id", "MT_0000000838\n");
    root_.write(folder + "/hca_type", "MT4129\n");
    link(folder + "/device", device.folder);
    link("sys/class/infiniband/" + name, folder);
    root_.write(device.folder + "/vendor", "0x15b3\n");
    root_.write(device.folder + "/device", "0x1021\n");
    root_.write("sys/bus/pci/drivers/mlx5_core/bind", "");
    link(device.folder + "/driver", "sys/bus/pci/drivers/mlx5_core");
    const std::string file = "uverbs" + std::to_string(nics_++);
    root_.write("sys/class/infiniband_verbs/" + file + "/ibdev", name + "\n");
    if (device.value("file") != "none") root_.write("dev/infiniband/" + file, "");
    if (device.told.contains("net")) {
      root_.write(device.folder + "/net/" + device.value("net") + "/mtu", "9000\n");
    }
    add_port(device, folder + "/ports/1");
  }

  void add_port(const Device& device, const std::string& folder) {
    const std::string state = device.value("port", "up");
    root_.write(folder + "/state", state == "up" ? "4: ACTIVE\n" : "1: DOWN\n");
    root_.write(folder + "/phys_state", state == "up" ? "5: LinkUp\n" : "3: Disabled\n");
    root_.write(folder + "/rate", device.value("rate", "400") + " Gb/sec (4X NDR)\n");
    root_.write(folder + "/link_layer", device.value("layer", "InfiniBand") + "\n");
    root_.write(folder + "/gids/0", "fe80:0000:0000:0000:a288:c203:00ab:cdef\n");
    root_.write(folder + "/gids/1", "0000:0000:0000:0000:0000:0000:0000:0000\n");
    root_.write(folder + "/gid_attrs/types/0",
                device.value("gid", "v1") == "v2" ? "RoCE v2\n" : "IB/RoCE v1\n");
    if (device.told.contains("net")) {
      root_.write(folder + "/gid_attrs/ndevs/0", device.value("net") + "\n");
    }
    root_.write(folder + "/counters/port_xmit_data", "1000\n");
    root_.write(folder + "/counters/port_rcv_data", "2000\n");
    root_.write(folder + "/counters/symbol_error", "3\n");
  }

  std::string answers_of(size_t i) const {
    const Device& gpu = gpus_[i];
    const std::string number = std::to_string(i);
    std::string name = gpu.value("gpu");
    for (char& c : name) c = c == '_' ? ' ' : c;
    const std::string lanes = gpu.value("lanes", "16");
    std::string text = "nvmlDeviceGetName " + number + " " + name + "\nnvmlDeviceGetPciInfo_v3 " +
                       number + " 0000" + gpu.address + "\nnvmlDeviceGetCurrPcieLinkWidth " +
                       number + " " + lanes + "\nnvmlDeviceGetMaxPcieLinkWidth " + number +
                       " 16\nnvmlDeviceGetMaxPcieLinkGeneration " + number + " " +
                       gpu.value("generation", "5") + "\nnvmlDeviceGetPersistenceMode " + number +
                       " 1\n";
    const int links = std::stoi(gpu.value("nvlinks", "0"));
    for (int link = 0; link < links; ++link) {
      text += "nvmlDeviceGetNvLinkState " + number + " " + std::to_string(link) + " 1\n";
    }
    for (size_t other = 0; other < gpus_.size(); ++other) {
      if (other == i) continue;
      const std::string pair = number + " " + std::to_string(other);
      const bool joined = links > 0 && gpu.value("peers") != "pcie";
      text += "nvmlDeviceGetP2PStatus " + pair + " 0 0\nnvmlDeviceGetP2PStatus " + pair + " 2 " +
              (joined ? "0" : "5") + "\n";
    }
    return text;
  }

  void link(const std::string& name, const std::string& target) {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::filesystem::create_directories(root_ / target);
    std::filesystem::create_directory_symlink(root_ / target, root_ / name);
  }

  const TemporaryFolder& root_;
  std::vector<Device> gpus_;
  int nics_ = 0;
};

}  // namespace nearmetal
