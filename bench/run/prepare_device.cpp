#include "bench/run/prepare_device.h"

#include <algorithm>
#include <stdexcept>

#include "models/errors.h"
#include "models/networks/registry.h"
#include "models/synthetic.h"

namespace nearmetal {
namespace {

// Batch norm would see one value per channel and give zero, whatever the value.
void require_trainable(const Graph& graph, const RunConfig& config) {
  for (const Node& node : graph.nodes()) {
    if (node.op != OpKind::batch_norm || config.batch != 1 || config.forward_only) continue;
    if (node.shape.height * node.shape.width > 1) continue;
    throw std::invalid_argument("an image size of " + std::to_string(config.image_size) +
                                " is too small for a batch of 1: " + node.name +
                                " would normalise single values; use a larger one of the two");
  }
}

DeviceInfo describe(const PreparedDevice& device) {
  try {
    return device.backend.describe(static_cast<int>(device.config.gpu));
  } catch (const std::runtime_error& error) {
    const bool cuda = device.config.device == Device::cuda;
    throw NotSupported(std::string("the ") + to_string(device.config.device) + " device (" +
                       device.why + ") does not work: " + error.what() +
                       (cuda ? "; --device cpu does without" : ""));
  }
}

}  // namespace

PreparedDevice prepare_device(const RunRequest& request, const Context& context, int local_rank,
                              const std::function<void(const RunConfig&)>& before_loading) {
  RunConfig config = request.config;
  const auto [chosen, why] = choose_device(config.device);
  fill_defaults(config, chosen);
  check_settings({config, request.given});
  Graph graph = build_network(config.model, {config.image_size, config.classes});
  require_trainable(graph, config);
  before_loading(config);
  Backend& backend = context.load(to_string(config.device));
  if (config.device == Device::cuda && !request.is_given("gpu") && local_rank > 0) {
    config.gpu = local_rank % std::max(1, backend.device_count());
  }
  PreparedDevice device{config, why, std::move(graph), backend, {}};
  device.info = describe(device);
  if (request.gpu_part) {
    backend.take_part(static_cast<int>(config.gpu), *request.gpu_part);
    device.info = describe(device);
  }
  return device;
}

ProgramOptions program_options(const RunConfig& config, const PlanSource& plans, int64_t world_size,
                               int64_t rank) {
  ProgramOptions options;
  options.batch_size = config.batch.value();
  options.precision = config.precision.value();
  options.forward_only = config.forward_only;
  options.input = config.input;
  options.launch_as_graph = config.launch != LaunchMode::stream;
  options.host_sleeps = config.host_wait == HostWait::block;
  options.sgd = {config.learning_rate.value(), config.momentum, config.weight_decay};
  options.loss_scale = config.loss_scale.value();
  if (exchanges_gradients(config, world_size)) {
    options.gradient_type = from_name<Precision>(to_string(config.gradient_type));
  }
  options.data_seed = substream(static_cast<uint64_t>(config.seed), static_cast<uint64_t>(rank));
  options.gpu = static_cast<int>(config.gpu);
  options.threads = static_cast<int>(config.threads);
  options.plans = plans.known;
  options.plans_pinned = plans.pinned;
  return options;
}

std::unique_ptr<Program> prepare_program(PreparedDevice& device, const Terminal& terminal) {
  const PlanSource plans = find_plans(device.config, device.info);
  std::unique_ptr<Program> program =
      device.backend.prepare(device.graph, program_options(device.config, plans));
  for (const auto& warnings : {plans.warnings, keep_plans(plans, program->plans())}) {
    for (const Warning& warning : warnings) terminal.remark("warning: " + warning.text);
  }
  return program;
}

}  // namespace nearmetal
