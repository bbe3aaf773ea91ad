// The hosts of a plan: this machine as it shows itself, or those that the user names.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/environment/gpu.h"
#include "comm/layout/layout.h"

namespace nearmetal {

constexpr const char* nvml_of_the_driver = "libnvidia-ml.so.1";

/// "localhost" with the GPUs whose device nodes are there, in the order of the PCI bus, and the
/// CPUs next to them that this process may use; without GPUs, its CPUs. Visible are those of
/// `visible`, the CUDA_VISIBLE_DEVICES that this process was given, by index or by UUID, which NVML
/// knows; where that leaves none, there are no GPUs. Touches no GPU. Throws std::invalid_argument
/// where there are GPUs that it cannot count, for a list that is not of them, and for one by index
/// where GPUs differ and CUDA_DEVICE_ORDER does not say PCI_BUS_ID. `root` is "/" but in tests.
Host this_machine(const std::filesystem::path& root = "/",
                  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"),
                  const std::string& nvml_library = nvml_of_the_driver);

/// The models of those GPUs, in their order; of one that the driver does not tell, "".
std::vector<std::string> gpu_models(const std::filesystem::path& root);

/// this_machine() for these layouts: with all of its GPUs, visible or not, where a layout names
/// GPUs by their indexes.
Host this_machine_for(const std::vector<Layout>& layouts, const std::filesystem::path& root = "/",
                      const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"));

/// "vm0:2,vm1:2": names, and GPUs of each; "2*4": two hosts of four GPUs whose names a scheduler
/// gives; else the path of a file for mpirun with lines such as "vm0 slots=2", or with a name alone
/// for each GPU. Names may be Slurm's ("gpu[01-08]") and have a user ("user@vm0"). 0 GPUs: ranks on
/// CPUs. Throws std::invalid_argument.
std::vector<Host> hosts_from(const std::string& argument);

bool is_this_machine(const std::string& address);

/// Whether a scheduler gives the names of these hosts.
bool are_unnamed(const std::vector<Host>& hosts);

/// The GPUs of this machine, but for lost ones, in the order of the PCI bus. Throws NotSupported.
std::vector<Gpu> gpus_by_bus(const std::string& nvml_library = nvml_of_the_driver);

/// The host, where it is this machine, with what the driver reports of its GPUs, in the order of
/// the PCI bus, and with their MIG devices, which are never changed. Another stays as it is.
Host with_mig_devices(Host host, const std::string& nvml_library = nvml_of_the_driver);

/// The host with the ways from its GPUs to one another and to NICs, where it is this machine and
/// the driver tells them.
Host with_gpu_places(Host host, const std::string& nvml_library = nvml_of_the_driver);

}  // namespace nearmetal
