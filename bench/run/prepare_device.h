// The first steps of every command that computes: settle its settings, find its device, and there
// prepare its program.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "bench/cli/command_line.h"
#include "bench/cli/run_request.h"
#include "bench/run/defaults.h"
#include "bench/run/kernel_source.h"
#include "bench/run/network.h"
#include "models/graph.h"
#include "models/program.h"
#include "reports/document/types.h"

namespace nearmetal {

/// The device that was asked for, or for `automatic`: cuda where this machine shows an NVIDIA
/// device or driver (device nodes, the kernel's driver, WSL, or a display controller of vendor 10de
/// on the PCI bus), else cpu. Whether that driver works is not looked at: one that is broken must
/// fail the run and not turn it into one on the CPU. Second: why, for people. `root` is the folder
/// to look in, "/" but in tests.
std::pair<Device, std::string> choose_device(Device asked, const std::filesystem::path& root = "/");

struct PreparedDevice {
  RunConfig config;  // nothing left open but a batch to be found
  std::string why;   // this device
  Graph graph;
  Backend& backend;
  DeviceInfo info;
};

/// "nearmetal: device cuda (asked for)"
std::string device_remark(Device device, const std::string& why);
std::string device_remark(const PreparedDevice& device);

/// Fills the defaults, checks the settings, builds the network and describes the device. A rank
/// takes, among the GPUs that this process sees, that of its number on its host unless one was
/// named. `before_loading` sees the settings before the backend is loaded, which takes seconds.
/// Throws std::invalid_argument for settings that contradict each other or cannot be trained, and
/// NotSupported where the device does not work.
PreparedDevice prepare_device(
    const RunRequest& request, const Context& context, int local_rank = 0,
    const std::function<void(const RunConfig&)>& before_loading = [](const RunConfig&) {});

/// The program options of a rank by the configuration, whose batch must be known.
ProgramOptions program_options(const RunConfig& config, const KernelSource& kernels,
                               int64_t world_size = 1, int64_t rank = 0);

/// The program of a process that trains alone, without parameters yet. It takes and keeps plans as
/// find_kernel_choices() and keep_choices() do.
std::unique_ptr<Program> prepare_program(PreparedDevice& device, const Terminal& terminal);

}  // namespace nearmetal
