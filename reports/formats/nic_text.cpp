#include "reports/formats/nic_text.h"

#include <algorithm>

#include "base/text.h"

namespace nearmetal {
namespace {

using Cells = std::vector<std::string>;

constexpr const char* legend_of_distances =
    "PIX: at most one PCIe switch is between GPU and NIC; PXB: several; PHB: a host bridge; NODE: "
    "host bridges of one NUMA node; SYS: those of two. GDR: the NIC can read and write the GPU's "
    "memory (GPUDirect RDMA); -: what it sends goes through the host's memory; ?: not known.";

std::string text_of(const Maybe<std::string>& value) { return value.value.value_or("?"); }
std::string number_of(const Maybe<int64_t>& value) { return value ? std::to_string(*value) : "?"; }

// "H100 80GB HBM3 1B:00.0"
std::string name_of(const Gpu& gpu) {
  const std::string maker = "NVIDIA ";
  std::string name = gpu.name.starts_with(maker) ? gpu.name.substr(maker.size()) : gpu.name;
  if (!gpu.pci_id) return name;
  const size_t domain_end = gpu.pci_id->find(':');
  return name + " " + gpu.pci_id->substr(domain_end == std::string::npos ? 0 : domain_end + 1);
}

std::string text_of(const NicPath& path) {
  const std::string distance = path.distance ? to_string(*path.distance) : "?";
  if (!path.gpu_direct_rdma) return distance + " ?";
  return distance + (*path.gpu_direct_rdma == GpuDirectRdma::none ? " -" : " GDR");
}

std::string path_to(const Gpu& gpu, const std::string& nic) {
  const NicPath* path = find_in(gpu.nics, nic, &NicPath::rdma_device);
  return path == nullptr ? "" : text_of(*path);
}

std::string text_of(const RdmaPort& port) {
  const std::string state = text_of(port.state), layer = text_of(port.link_layer);
  return (state == "active" && port.bits_per_second
              ? shortest(1e-9 * static_cast<double>(*port.bits_per_second), 4) + " Gb/s"
              : state) +
         " " + (layer == "Ethernet" ? "RoCE" : layer);
}

// "5 x16", and what it could be where that is more.
template <class Device>
std::string link_of(const Device& nic) {
  const auto text = [](const Maybe<int64_t>& generation, const Maybe<int64_t>& width) {
    if (!generation && !width) return std::string("?");
    return number_of(generation) + " x" + number_of(width);
  };
  const std::string now = text(nic.link_generation, nic.link_width);
  const std::string largest = text(nic.largest_link_generation, nic.largest_link_width);
  return now == largest ? now : now + " of " + largest;
}

template <class Device>
std::string ats_of(const Device& device) {
  if (!device.ats) return "?";
  if (*device.ats) return "on";
  return device.ats_capable && *device.ats_capable ? "off" : "none";
}

std::string acs_of(const Gpu& gpu) {
  if (!gpu.acs_redirect) return "?";
  return *gpu.acs_redirect ? "redirects" : "passes";
}

std::string path_to(const GpuPeer& peer) {
  if (peer.nvlink && *peer.nvlink) return "NVLink";
  const std::string distance = peer.distance ? to_string(*peer.distance) : "?";
  return distance + (peer.reads && !*peer.reads ? " -" : "");
}

std::string path_between(const Gpu& gpu, const Gpu& other) {
  if (&gpu == &other) return "X";
  const auto* peer = other.pci_id ? find_in(gpu.peers, *other.pci_id, &GpuPeer::pci_id) : nullptr;
  return peer == nullptr ? "?" : path_to(*peer);
}

Cells cells_of(const RdmaDevice& nic) {
  const bool is_virtual = nic.virtual_function && *nic.virtual_function;
  return {nic.name,
          joined(nic.interfaces),
          joined(transformed(nic.ports, [](const RdmaPort& port) { return text_of(port); })),
          link_of(nic),
          number_of(nic.numa_node),
          ats_of(nic),
          (is_virtual ? "VF of " : "") + text_of(nic.model),
          text_of(nic.firmware)};
}

// Rows with the hosts that have them: those of a job mostly look alike.
using RowsOfHosts = std::vector<std::pair<Cells, Cells>>;

// With a column of hosts before the others, where they are not the same in all rows.
void add_rows(TextTable& table, const RowsOfHosts& rows) {
  const bool all_same =
      std::ranges::all_of(rows, [&](const auto& row) { return row.second == rows.front().second; });
  if (!all_same) table.columns.insert(table.columns.begin(), {"host"});
  for (const auto& [cells, hosts] : rows) {
    Cells& row = table.rows.emplace_back(cells);
    if (!all_same) row.insert(row.begin(), shortened(joined(hosts)));
  }
}

TitledTable table_of_paths(const std::vector<Environment>& environments, bool numbered) {
  Cells nics;
  for (const Environment& environment : environments) {
    for (const Gpu& gpu : environment.gpus) {
      for (const NicPath& path : gpu.nics) add_new(nics, path.rdma_device);
    }
  }
  TextTable table{.columns = {{"GPU"}}};
  for (const std::string& nic : nics) table.columns.push_back({nic});
  RowsOfHosts rows;
  for (const Environment& environment : environments) {
    for (size_t i = 0; i < environment.gpus.size(); ++i) {
      const Gpu& gpu = environment.gpus[i];
      if (gpu.nics.empty()) continue;
      Cells row = {(numbered ? std::to_string(i) + ": " : "") + name_of(gpu)};
      for (const std::string& nic : nics) row.push_back(path_to(gpu, nic));
      add_new(value_beside(row, rows), environment.host_name);
    }
  }
  add_rows(table, rows);
  return {"GPUs and NICs", table, legend_of_distances};
}

TitledTable table_of_nics(const std::vector<Environment>& environments) {
  TextTable table;
  table.columns = {{"NIC"},
                   {"interface"},
                   {"port"},
                   {"PCIe"},
                   {"NUMA"},
                   {"ATS"},
                   {"model", false, true},
                   {"firmware", false, true}};
  RowsOfHosts rows;
  for (const Environment& environment : environments) {
    for (const RdmaDevice& nic : environment.rdma) {
      add_new(value_beside(cells_of(nic), rows), environment.host_name);
    }
  }
  add_rows(table, rows);
  return {"NICs", table};
}

}  // namespace

TitledTable gpu_table(const std::vector<Gpu>& gpus) {
  TextTable table{.columns = {{"GPU"}, {"PCIe"}, {"NUMA"}, {"ATS"}, {"ACS"}}};
  for (size_t i = 0; i < gpus.size(); ++i) {
    const Gpu& gpu = gpus[i];
    table.columns.push_back({std::to_string(i)});
    Cells& row = table.rows.emplace_back();
    row = {std::to_string(i) + ": " + name_of(gpu), link_of(gpu), number_of(gpu.numa_node),
           ats_of(gpu), acs_of(gpu)};
    for (const Gpu& other : gpus) row.push_back(path_between(gpu, other));
  }
  return {"GPUs", table,
          "ATS: translations of the IOMMU are kept by the GPU. ACS: whether bridges above it "
          "redirect what peers send. Between GPUs: NVLink, else what lies between them by PCIe "
          "(PIX, PXB, PHB, NODE, SYS as in nvidia-smi topo -m); -: no peer access; ?: not known."};
}

std::vector<TitledTable> nic_tables(const std::vector<Environment>& environments, bool numbered) {
  std::vector<TitledTable> tables = {table_of_paths(environments, numbered),
                                     table_of_nics(environments)};
  std::erase_if(tables, [](const TitledTable& titled) { return titled.table.rows.empty(); });
  return tables;
}

}  // namespace nearmetal
