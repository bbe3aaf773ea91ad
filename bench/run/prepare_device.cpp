#include "bench/run/prepare_device.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <stdexcept>

#include "base/errors.h"
#include "base/text.h"
#include "bench/cli/process.h"
#include "bench/run/defaults.h"
#include "models/synthetic.h"
#include "reports/compare/read_runs.h"
#include "reports/compare/run_set.h"
#include "reports/document/settings.h"
#include "reports/document/warning_text.h"
#include "reports/json/kernel_cache.h"
#include "reports/json/report_files.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

std::string first_word(const fs::path& path) {
  std::string word;
  std::ifstream(path) >> word;
  return word;
}

bool is_gpu_node(const std::string& name) {
  const std::string prefix = "nvidia";
  return name == "nvidiactl" || (name.size() > prefix.size() && name.starts_with(prefix) &&
                                 name.find_first_not_of("0123456789", prefix.size()) == name.npos);
}

// A display controller (PCI class 03) of NVIDIA (vendor 10de).
bool is_nvidia_display(const fs::path& pci_device) {
  return first_word(pci_device / "vendor") == "0x10de" &&
         first_word(pci_device / "class").starts_with("0x03");
}

template <class Accept>
std::optional<fs::path> find_in(const fs::path& folder, Accept accept) {
  std::error_code ignored;  // a folder that is not there holds nothing
  for (fs::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored)) {
    if (accept(entry->path())) return entry->path();
  }
  return std::nullopt;
}

std::optional<fs::path> nvidia_trace(const fs::path& root) {
  std::error_code ignored;
  for (const char* path : {"proc/driver/nvidia/version", "dev/dxg"}) {
    if (fs::exists(root / path, ignored)) return root / path;
  }
  const auto node =
      find_in(root / "dev", [](const fs::path& path) { return is_gpu_node(path.filename()); });
  return node ? node : find_in(root / "sys/bus/pci/devices", is_nvidia_display);
}

DeviceInfo describe(const PreparedDevice& device) {
  const bool cuda = device.config.device == Device::cuda;
  const auto not_supported = [&](const std::string& what) {
    return NotSupported(std::string("the ") + to_string(device.config.device) + " device (" +
                        device.why + ") does not work: " + what +
                        (cuda ? "; --device cpu does without" : ""));
  };
  try {
    return device.backend.describe(static_cast<int>(device.config.gpu));
  } catch (const DriverTooOld& error) {
    throw not_supported(std::string(error.what()) + ": " + error.fix);
  } catch (const std::runtime_error& error) {
    throw not_supported(error.what());
  }
}

}  // namespace

std::pair<Device, std::string> choose_device(Device asked, const fs::path& root) {
  if (asked != Device::automatic) return {asked, "asked for"};
  const auto trace = nvidia_trace(root);
  if (!trace) return {Device::cpu, "no NVIDIA device or driver is visible"};
  return {Device::cuda, "there is " + trace->string()};
}

std::string device_remark(Device device, const std::string& why) {
  return std::string("nearmetal: device ") + to_string(device) + " (" + why + ")";
}

std::string device_remark(const PreparedDevice& device) {
  return device_remark(device.config.device, device.why);
}

PreparedDevice prepare_device(const RunRequest& request, const Context& context, int local_rank,
                              const std::function<void(const RunConfig&)>& before_loading) {
  RunConfig config = request.config;
  const auto [chosen, why] = choose_device(config.device);
  fill_defaults(config, chosen);
  check_settings({config, request.given});
  Graph graph = settle_network(config);
  if (config.plans) config.plans = place_of_kernel_choices(config, request.arm);
  before_loading(config);
  Backend& backend = context.load(to_string(config.device));
  if (config.device == Device::cuda && !request.is_given("gpu") && local_rank > 0) {
    config.gpu = local_rank % std::max(1, backend.device_count());
  }
  PreparedDevice device{config, why, std::move(graph), backend, {}};
  device.info = describe(device);
  if (request.gpu_share) {
    backend.take_share(static_cast<int>(config.gpu), *request.gpu_share);
    device.info = describe(device);
  }
  return device;
}

ProgramOptions program_options(const RunConfig& config, const KernelSource& kernels,
                               int64_t world_size, int64_t rank) {
  ProgramOptions options;
  options.batch_size = config.batch.value();
  options.micro_batches = micro_batches_of(config);
  options.pipeline = {static_cast<int>(config.pipeline), static_cast<int>(stage_of(config, rank)),
                      config.schedule};
  options.precision = config.precision.value();
  options.forward_only = !trains(config);
  options.input = config.input;
  options.kernels = config.kernels;
  options.launch_as_graph = config.launch != LaunchMode::stream;
  options.host_sleeps = config.host_wait == HostWait::block;
  options.optimizer = {config.learning_rate.value(), config.momentum, config.weight_decay.value(),
                       config.optimizer.value()};
  options.loss_scale = config.loss_scale.value();
  if (exchanges_gradients(config, world_size)) {
    options.gradient_type = from_name<Precision>(to_string(config.gradient_type));
  }
  options.data_seed = substream(static_cast<uint64_t>(config.seed),
                                static_cast<uint64_t>(replica_of(config, rank)));
  options.gpu = static_cast<int>(config.gpu);
  options.threads = static_cast<int>(config.threads);
  options.kernel_choices = kernels.known;
  options.kernel_choices_pinned = kernels.pinned;
  return options;
}

std::unique_ptr<Program> prepare_program(PreparedDevice& device, const Terminal& terminal) {
  const KernelSource kernels = find_kernel_choices(device.config, device.info);
  std::unique_ptr<Program> program =
      device.backend.prepare(device.graph, program_options(device.config, kernels));
  for (const auto& warnings :
       {kernels.warnings, keep_choices(kernels, program->kernel_choices())}) {
    for (const Warning& warning : warnings) terminal.remark("warning: " + told_text(warning));
  }
  return program;
}

}  // namespace nearmetal
