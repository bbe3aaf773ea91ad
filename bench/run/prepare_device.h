// What every command that computes does first: settle its settings and find its device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "bench/cli/command.h"
#include "bench/cli/defaults.h"
#include "bench/cli/run_request.h"
#include "bench/run/plan_source.h"
#include "models/graph.h"
#include "models/program.h"

namespace nearmetal {

struct PreparedDevice {
  RunConfig config;  // nothing left open but a batch to be found
  std::string why;   // this device
  Graph graph;
  Backend& backend;
  DeviceInfo info;
};

/// Fills the defaults, checks the settings, builds the network and describes the device. Of the
/// GPUs that this process sees, a rank takes that of its number on its host unless one was named.
/// `before_loading` sees the settings before the backend is loaded, which takes seconds. Throws
/// std::invalid_argument for settings that contradict each other or cannot be trained, and
/// NotSupported where the device does not work.
PreparedDevice prepare_device(
    const RunRequest& request, const Context& context, int local_rank = 0,
    const std::function<void(const RunConfig&)>& before_loading = [](const RunConfig&) {});

/// What the configuration asks of the program of a rank; its batch must be known.
ProgramOptions program_options(const RunConfig& config, const PlanSource& plans,
                               int64_t world_size = 1, int64_t rank = 0);

/// The program of a process that trains alone, without parameters yet. It takes and keeps plans as
/// find_plans() and keep_plans() do.
std::unique_ptr<Program> prepare_program(PreparedDevice& device, const Terminal& terminal);

}  // namespace nearmetal
