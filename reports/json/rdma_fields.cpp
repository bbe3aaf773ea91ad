// The fields of what is found of RDMA devices, in the order of the document.
#include "reports/json/fields.h"

namespace nearmetal::json {

void fields(Archive& field, RdmaGid& gid) {
  field.type("rdma_gid", "An address of an RDMA port");
  field("index", gid.index, at_least(0));
  field("gid", gid.gid);
  field("type", gid.type, "IB/RoCE v1 or RoCE v2");
  field("interface", gid.interface, "Network interface");
}

void fields(Archive& field, RdmaPort& port) {
  field.type("rdma_port", "A port of an RDMA device");
  field("number", port.number, at_least(0));
  field("state", port.state, "active, down, init, armed");
  field("physical_state", port.physical_state, "linkup, disabled, polling, ...");
  field("link_layer", port.link_layer, "InfiniBand; Ethernet: RoCE");
  field("bits_per_second", port.bits_per_second, at_least(0));
  field("gids", port.gids, "GIDs that are set");
}

void fields(Archive& field, RdmaDevice& device) {
  field.type("rdma_device", "A NIC that can read and write memory by itself (RDMA)");
  field("name", device.name);
  field("interfaces", device.interfaces, "Its network interfaces, as ibdev2netdev shows them");
  field("pci_id", device.pci_id);
  field("device_id", device.device_id,
        "Id on the PCI bus, with that of the maker, such as 0x102115B3");
  field("model", device.model, "Name in the list of PCI ids, else as its driver calls it");
  field("board_id", device.board_id);
  field("firmware", device.firmware);
  field("driver", device.driver);
  field("driver_version", device.driver_version,
        "Version of the driver if it has one, as those of OFED do");
  field("device_file", device.device_file,
        "Whether its file in /dev/infiniband is there, by which programs use it");
  field("numa_node", device.numa_node, at_least(-1));
  field("link_generation", device.link_generation, at_least(0), "Generation of PCIe");
  field("link_width", device.link_width, at_least(0));
  field("largest_link_generation", device.largest_link_generation, at_least(0));
  field("largest_link_width", device.largest_link_width, at_least(0));
  field("iommu_group", device.iommu_group, at_least(0));
  field("iommu_type", device.iommu_type, "identity, DMA, DMA-FQ");
  field("virtual_function", device.virtual_function, "Whether it is one of SR-IOV");
  field("ats_capable", device.ats_capable, "It could keep translations of the IOMMU");
  field("ats", device.ats, "Translations of the IOMMU are kept by the NIC");
  field("acs_redirect", device.acs_redirect,
        "Bridges above it send what peers send one another to the root complex");
  field("ports", device.ports);
}

void fields(Archive& field, NicPath& path) {
  field.type("nic_path", "The way from a GPU to a NIC of its host");
  field("rdma_device", path.rdma_device, "Name of the RDMA device");
  field("distance", path.distance,
        "What lies between, as nvidia-smi topo -m calls it. PIX: at most one PCIe switch; PXB: "
        "several; PHB: a host bridge; NODE: the way between host bridges of a NUMA node; SYS: that "
        "between NUMA nodes");
  field("gpu_direct_rdma", path.gpu_direct_rdma,
        "Means by which the NIC may read and write the GPU's memory; none: data go through the "
        "host's");
}

void fields(Archive& field, RdmaTraffic& traffic) {
  field.type("rdma_traffic", "What went through an RDMA port in the window, of all processes");
  field("rdma_device", traffic.rdma_device, "Name of the RDMA device");
  field("port", traffic.port, at_least(0));
  field("sent_bytes", traffic.sent_bytes, at_least(0));
  field("received_bytes", traffic.received_bytes, at_least(0));
  field("errors", traffic.errors, at_least(0),
        "Errors of the link and of packets: lost, repeated or out of order");
}

}  // namespace nearmetal::json
