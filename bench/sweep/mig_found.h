// The MIG devices of this machine: read, and never changed.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "comm/launch/launch_plan.h"

namespace nearmetal {

constexpr const char* nvml_of_the_driver = "libnvidia-ml.so.1";

/// Puts into the host, where it is this machine, what the driver reports of its GPUs, in the order
/// of the PCI bus, and their MIG devices. Another stays as it is.
Host& with_mig_devices(Host& host, const std::string& nvml_library = nvml_of_the_driver);

/// The ways from the host's GPUs to one another and to NICs, where the host is this machine and the
/// driver tells them, put into it.
void add_gpu_places(Host& host, const std::string& nvml_library = nvml_of_the_driver);

/// Asks the driver where jobs share by MIG on this machine and the file lists no devices of it; and
/// expects of all layouts the configuration that the command line names, else those of the file,
/// which are relative to its folder.
void settle_mig(LayoutFile& file, const std::optional<std::string>& config,
                const std::filesystem::path& path);

/// Whether MIG divides the GPU, as the driver tells (Host::found).
bool is_divided(const Host& host, int64_t gpu);

/// Why a divided GPU has no whole one to offer, and what an administrator would run.
std::string no_whole_gpu_reason(int64_t gpu);

/// Throws NotSupported, with what an administrator would run, where jobs are to be on MIG devices
/// of this machine that are not there, or are others than the file lists; where they are to share
/// in another way a GPU of it that is divided; and where a configuration of mig-parted is expected
/// that its GPUs do not have (as `nvidia-mig-parted assert`).
void require_mig_devices(const LaunchPlan& plan,
                         const std::string& nvml_library = nvml_of_the_driver);

}  // namespace nearmetal
