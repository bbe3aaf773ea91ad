#include "bench/run/prepare_device.h"

#include <algorithm>
#include <stdexcept>

#include "base/errors.h"
#include "base/pattern.h"
#include "base/text.h"
#include "bench/cli/process.h"
#include "bench/environment/system_files.h"
#include "models/inference.h"
#include "models/networks/registry.h"
#include "models/pipeline_cuts.h"
#include "models/synthetic.h"
#include "reports/compare/read_runs.h"
#include "reports/compare/run_set.h"
#include "reports/document/settings.h"
#include "reports/document/warning.h"
#include "reports/json/kernel_cache.h"
#include "reports/json/report_files.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

// Batch norm would see one value per channel and give zero, whatever the value.
void require_trainable(const Graph& graph, const RunConfig& config) {
  for (const Node& node : graph.nodes()) {
    if (node.op != OpKind::batch_norm || config.batch != 1 || !trains(config)) continue;
    if (node.shape.height * node.shape.width > 1) continue;
    throw std::invalid_argument("an image size of " + std::to_string(config.image_size) +
                                " is too small for a batch of 1: " + node.name +
                                " would normalise single values; use a larger one of the two");
  }
}

// Images or tokens, of so many values in all.
void append_inputs(const Graph& graph, uint64_t seed, int64_t values, Samples& samples) {
  for (int64_t i = 0; i < values; ++i) {
    if (graph.reads_tokens()) {
      samples.tokens.push_back(token_at(seed, 0, i, graph.node(0).vocabulary));
    } else {
      samples.images.push_back(normal_at(seed, i));
    }
  }
}

// Appends the values again, and again, up to `count`.
template <class T>
void repeat(std::vector<T>& values, int64_t count) {
  const auto distinct = std::ssize(values);
  if (distinct == 0) return;
  values.reserve(count);
  for (int64_t i = distinct; i < count; ++i) values.push_back(values[i - distinct]);
}

// The report without arms and runs that have no kernel choices.
Report report_with_kernel_choices(const std::string& place) {
  const auto [file, arm_name] = report_place(place);
  Report report = read_report(file);
  if (!arm_name.empty()) keep_only_arm(report, arm_name, file);
  for (Arm& arm : report.arms)
    std::erase_if(arm.runs, [](const Run& r) { return r.kernel_choices.empty(); });
  std::erase_if(report.arms, [](const Arm& arm) { return arm.runs.empty(); });
  return report;
}

bool same_operations(const RunConfig& a, const RunConfig& b) {
  bool same = true;
  for_each_setting([&](const Setting& setting, auto member) {
    if (decides_operations(setting.name) && a.*member != b.*member) same = false;
  });
  return same;
}

std::vector<Warning> warnings_of_refused(const std::vector<KernelChoice>& choices) {
  std::vector<std::string> refused;
  for (const KernelChoice& choice : choices) {
    if (choice.implementation == refused_implementation) refused.push_back(choice.key);
  }
  if (refused.empty()) return {};
  const std::string others =
      refused.size() == 1 ? "" : " and " + std::to_string(refused.size() - 1) + " more";
  return {{"kernels_refused",
           "a kernel gave a wrong result and was left out, which costs speed ('" + refused.front() +
               "'" + others + "): report this as a bug, with the report"}};
}

// A display controller (PCI class 03) of NVIDIA (vendor 10de).
bool is_nvidia_display(const fs::path& pci_device) {
  return first_line(pci_device / "vendor").value == "0x10de" &&
         first_line(pci_device / "class").value.value_or("").starts_with("0x03");
}

std::optional<fs::path> nvidia_trace(const fs::path& root) {
  for (const char* path : {"proc/driver/nvidia/version", "dev/dxg"}) {
    if (is_there(root / path)) return root / path;
  }
  static const Pattern gpu_node("nvidia(ctl|[0-9]+)");
  for (const std::string& name : names_in(root / "dev")) {
    if (gpu_node.matches(name)) return root / "dev" / name;
  }
  const fs::path pci_devices = root / "sys/bus/pci/devices";
  for (const std::string& name : names_in(pci_devices)) {
    if (is_nvidia_display(pci_devices / name)) return pci_devices / name;
  }
  return std::nullopt;
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
    throw not_supported(message_of(error));
  }
}

}  // namespace

Graph trained_graph_of(const RunConfig& config) {
  NetworkOptions options{.image_size = config.image_size, .classes = config.classes};
  if (config.sequence) options.sequence = *config.sequence;
  return build_network(config.model, options);
}

Graph graph_of(const RunConfig& config) {
  Graph trained = trained_graph_of(config);
  return config.inference ? inference_graph(trained) : trained;
}

Graph resolve_network(RunConfig& config) {
  Graph graph = graph_of(config);
  require_trainable(graph, config);
  const auto stages = static_cast<int>(config.pipeline);
  if (config.cuts) config.cuts = cut_names(graph, named_cuts(graph, *config.cuts, stages));
  require_cut_points(graph, stages);
  return graph;
}

std::vector<float> start_parameters(const RunConfig& config) {
  const Graph trained = trained_graph_of(config);
  std::vector<float> parameters =
      initial_parameters(trained, static_cast<uint64_t>(config.seed), config.zero_init);
  if (!config.inference) return parameters;
  return inference_parameters(trained, parameters, expected_statistics(trained, parameters));
}

void Samples::give_to(Program& program) const {
  if (tokens.empty()) return program.use_batch(images, labels);
  program.use_sequences(tokens, labels);
}

Samples repeated_samples(const Graph& graph, uint64_t seed, int64_t batch, int64_t distinct) {
  const int64_t values = graph.image().elements();
  const int64_t labels = distinct * graph.labels_per_sample();
  Samples samples;
  append_inputs(graph, seed, distinct * values, samples);
  for (int64_t i = 0; i < labels; ++i) {
    samples.labels.push_back(static_cast<int32_t>(i * graph.classes() / labels));
  }
  repeat(samples.images, batch * values);
  repeat(samples.tokens, batch * values);
  repeat(samples.labels, batch * graph.labels_per_sample());
  return samples;
}

Samples first_samples(const Graph& graph, uint64_t data_seed, int64_t batch) {
  Samples samples;
  append_inputs(graph, image_seed(data_seed), batch * graph.image().elements(), samples);
  for (int64_t i = 0; i < batch * graph.labels_per_sample(); ++i) {
    samples.labels.push_back(label_at(label_seed(data_seed), 0, i, graph.classes()));
  }
  return samples;
}

std::vector<KernelChoice> pinned_kernel_choices(const std::string& place) {
  const Report report = report_with_kernel_choices(place);
  if (report.arms.empty()) throw std::invalid_argument("--plans: " + place + " holds no plans");
  return report.arms[0].runs[0].kernel_choices;
}

std::string place_of_kernel_choices(const RunConfig& config, const std::string& arm) {
  if (config.batch == largest_that_fits) {
    throw std::invalid_argument("--plans needs a number for --batch");
  }
  const Report report = report_with_kernel_choices(*config.plans);
  const Arm* found = nullptr;
  for (const Arm& other : report.arms) {
    const bool same = same_operations(config_of(report, other), config);
    if (same && (found == nullptr || other.name == arm)) found = &other;
  }
  if (found == nullptr) {
    throw std::invalid_argument("--plans: " + *config.plans + " holds no plans for `" +
                                joined(run_arguments({config, settings_of_operations}), " ") + "`");
  }
  const auto [file, named] = report_place(*config.plans);
  return !named.empty() || report.arms.size() == 1 ? *config.plans : file + "#" + found->name;
}

KernelSource find_kernel_choices(RunConfig& config, const DeviceInfo& device) {
  KernelSource source;
  if (config.plans) {
    config.plan_cache = "off";
    source.known = pinned_kernel_choices(*config.plans);
    source.pinned = true;
    return source;
  }
  if (!config.plan_cache) {
    const auto path = default_kernel_cache_path();
    config.plan_cache = path ? path->string() : "off";
  }
  if (config.plan_cache == "off") return source;
  source.cache = config.plan_cache;
  source.context = kernel_choice_context(device, build_info());
  source.known = load_kernel_choices(*source.cache, source.context, source.warnings);
  return source;
}

std::vector<Warning> keep_choices(const KernelSource& source,
                                  const std::vector<KernelChoice>& choices) {
  std::vector<Warning> warnings = warnings_of_refused(choices);
  if (!source.cache || choices.empty() || choices == source.known) return warnings;
  try {
    save_kernel_choices(*source.cache, source.context, choices);
  } catch (const OutputError& error) {
    warnings.push_back({"plan_cache", error.what()});
  }
  return warnings;
}

std::vector<Warning> warnings_of_timing(const KernelSource& source,
                                        const std::vector<KernelChoice>& choices,
                                        const DeviceInfo& device, int ranks) {
  if (device.times_kernels_apart || ranks == 1) return {};
  const bool timed = std::ranges::any_of(choices, [&](const KernelChoice& choice) {
    return std::ranges::find(source.known, choice) == source.known.end();
  });
  if (!timed) return {};
  const std::string cache = source.cache ? "" : "with a plan cache ";
  return {{"kernels_timed",
           "a rank timed kernels first, which slows its steps (a job of two H200s with 64 images "
           "each by 2 %); " +
               cache + "the next run finds them chosen"}};
}

std::pair<Device, std::string> choose_device(Device asked, const fs::path& root) {
  if (asked != Device::automatic) return {asked, "asked for"};
  const auto trace = nvidia_trace(root);
  if (!trace) return {Device::cpu, "no NVIDIA device or driver is visible"};
  return {Device::cuda, "there is " + trace->string()};
}

std::string device_remark(Device device, const std::string& why) {
  return std::string("nearmetal: device ") + to_string(device) + " (" + why + ")";
}

PreparedDevice prepare_device(const RunRequest& request, const Context& context, int local_rank,
                              const std::function<void(const RunConfig&)>& before_loading) {
  RunConfig config = request.config;
  const auto [chosen, why] = choose_device(config.device);
  fill_defaults(config, chosen);
  check_settings({config, request.given});
  Graph graph = resolve_network(config);
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
    for (const Warning& warning : warnings) terminal.remark("warning: " + attributed_text(warning));
  }
  return program;
}

}  // namespace nearmetal
