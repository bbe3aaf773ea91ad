// The first steps of every command that computes: settle its settings, build its network, find its
// device, and there prepare its program with the plans of its kernels.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/cli/command_line.h"
#include "bench/cli/run_request.h"
#include "bench/run/defaults.h"
#include "models/graph.h"
#include "models/program.h"

namespace nearmetal {

/// The network of a run, as it is trained.
Graph trained_graph_of(const RunConfig& config);
/// The network as it is trained or evaluated.
Graph graph_of(const RunConfig& config);

/// That network, each of whose cuts the settings name in one way then. Throws std::invalid_argument
/// where the network cannot be built for images of this size, cannot be trained on such a batch of
/// them, or has no such cuts.
Graph resolve_network(RunConfig& config);

/// The parameters at the start. For inference those of a network that has not been trained are
/// folded with expected_statistics().
std::vector<float> start_parameters(const RunConfig& config);

struct Samples {
  std::vector<float> images;
  std::vector<int32_t> tokens;  // in place of images
  std::vector<int32_t> labels;

  void give_to(Program& program) const;
};

/// `distinct` samples with labels spread over the classes, repeated until the batch is full.
Samples repeated_samples(const Graph& graph, uint64_t seed, int64_t batch, int64_t distinct);

/// The samples that a program with this data_seed draws for its first step.
Samples first_samples(const Graph& graph, uint64_t data_seed, int64_t batch);

/// The plans of a program: which kernel does each operation, by a report, the plan cache, or
/// timing.
struct KernelSource {
  std::vector<KernelChoice> known;
  bool pinned = false;               // exactly these
  std::optional<std::string> cache;  // its path
  std::string context;               // of the cache
  std::vector<Warning> warnings;     // of a cache that cannot be used
};

/// The plans of the first run that has any. Throws InvalidReport, or std::invalid_argument where
/// there is none.
std::vector<KernelChoice> pinned_kernel_choices(const std::string& place);

/// --plans REPORT pins those of its first run that has any; else those of the plan cache are taken,
/// and config.plan_cache says which it is. Throws InvalidReport or std::invalid_argument for a
/// report to pin.
KernelSource find_kernel_choices(RunConfig& config, const DeviceInfo& device);

/// The place (REPORT or REPORT#ARM) that --plans gets for a job of `config`. Among arms that did
/// the same work it is the one of that name, else the first. Throws InvalidReport, or
/// std::invalid_argument where none did, or where the batch is still to be found.
std::string place_of_kernel_choices(const RunConfig& config, const std::string& arm);

/// Keeps plans that are new. Warns of a cache that cannot be written, as the next run tunes again,
/// and of kernels of this program that were refused.
std::vector<Warning> keep_choices(const KernelSource& source,
                                  const std::vector<KernelChoice>& choices);

/// Warns of a job of several ranks in which kernels were timed on a GPU that cannot time them
/// apart, as the rank that timed them is slower afterwards (docs/notes/step_speed.md).
std::vector<Warning> warnings_of_timing(const KernelSource& source,
                                        const std::vector<KernelChoice>& choices,
                                        const DeviceInfo& device, int ranks);

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
