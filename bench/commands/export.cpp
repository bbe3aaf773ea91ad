#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <vector>

#include "base/atomic_file.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "bench/cli/process.h"
#include "bench/cli/run_request.h"
#include "bench/commands/program.h"
#include "bench/run/defaults.h"
#include "bench/run/prepare_device.h"
#include "models/graph.h"
#include "models/inference.h"
#include "reports/json/archive.h"
#include "reports/json/report_fields.h"

namespace nearmetal {
namespace {

constexpr const char* export_examples = R"(
Examples:
  nearmetal export --seed 7                           parameters, under torchvision's names
  nearmetal export --steps 1 --precision bf16 --batch 8 --output step.safetensors
                                                      and what one step computes from them
  nearmetal export --steps 3 --device cpu --batch 4 --image-size 64 --output three.safetensors
  nearmetal export --steps 20 --inference --batch 16  and the logits of the trained network
  nearmetal export --steps 200 --gradient-steps 1 --device cpu --model bert_tiny --sequence 64
                                                      a curve of losses, in a file of tens of MB

Without --steps the file is a state_dict of torchvision's model (but for VGG's classifier.0.weight
where images are not 224 x 224: the layer reads the last feature map as it is) or of Hugging Face's
BertForQuestionAnswering. With --steps it also holds `images` or `tokens`, `labels`, `loss` and
`gradient_norm` of each step, `gradients.STEP.NAME` of all steps or of the first --gradient-steps,
and `trained.NAME` after the last. With --inference it also holds `logits`, what the trained network
makes of the same samples when it is evaluated with its running statistics. The settings are in its
metadata. scripts/compare_with_torch.py compares it with PyTorch: ResNets in 16 bits with
--last-scale 0.2, as at 1 rounding grows from layer to layer until it drowns the gradients, in
PyTorch too. scripts/compare_curves_with_torch.py compares curves with PyTorch's.)";

struct ExportRequest : RunRequest {
  std::optional<double> last_scale;       // of each residual block
  std::optional<int64_t> gradient_steps;  // the first, whose gradients are written
};

// The state of a network between two steps, in canonical layout.
struct State {
  std::vector<float> parameters;
  std::vector<float> running_statistics;  // mean, then variance, of every batch norm
  std::vector<int64_t> steps = {0};       // a tensor, as every batch norm of PyTorch has its own
};

struct Training {
  Samples samples;
  std::vector<int64_t> tokens, labels;  // of `samples`, in the type of PyTorch's
  std::vector<float> losses;
  std::vector<float> gradient_norms;
  std::vector<std::vector<float>> gradients;  // of the first steps
  State trained;
  std::vector<float> logits;  // of the trained network in evaluation, if it was asked for
};

State initial_state(const Graph& graph, const ExportRequest& request) {
  State state;
  const RunConfig& config = request.config;
  const auto seed = static_cast<uint64_t>(config.seed);
  state.parameters = initial_parameters(graph, seed, config.zero_init);
  for (const Parameter& parameter : graph.parameters()) {
    if (!request.last_scale || !parameter.scales_residual_branch) continue;
    const auto first = state.parameters.begin() + parameter.offset;
    std::fill_n(first, parameter.size, static_cast<float>(*request.last_scale));
  }
  for (const Node& node : graph.nodes()) {
    if (node.op != OpKind::batch_norm) continue;
    auto& values = state.running_statistics;
    values.insert(values.end(), node.shape.channels, 0.0f);
    values.insert(values.end(), node.shape.channels, 1.0f);
  }
  return state;
}

std::vector<float> evaluated_logits(const PreparedDevice& device, const Training& training,
                                    const Terminal& terminal) {
  PreparedDevice evaluation = device;
  evaluation.config.inference = true;
  evaluation.config.plans.reset();  // they are of training
  evaluation.graph = graph_of(evaluation.config);
  const std::unique_ptr<Program> program = prepare_program(evaluation, terminal);
  program->restart(inference_parameters(device.graph, training.trained.parameters,
                                        training.trained.running_statistics));
  training.samples.give_to(*program);
  program->enqueue_step();
  program->wait_step();
  return program->logits();
}

void train_one_step(Program& program, int64_t gradient_steps, Training& training) {
  program.enqueue_step();
  const StepRecord record = program.wait_step();
  if (!std::isfinite(record.loss) || record.update_skipped) {
    throw std::runtime_error("the " + std::string(record.update_skipped ? "gradient" : "loss") +
                             " of step " + std::to_string(training.losses.size()) +
                             " is not finite; try a lower --loss-scale or --learning-rate");
  }
  training.losses.push_back(record.loss);
  training.gradient_norms.push_back(record.gradient_norm);
  if (std::ssize(training.losses) > gradient_steps) return;
  training.gradients.push_back(program.gradients());
}

Training train(PreparedDevice& device, const State& initial, int64_t gradient_steps,
               const Terminal& terminal) {
  const std::unique_ptr<Program> program = prepare_program(device, terminal);
  Training training;
  program->restart(initial.parameters);
  // From then on the same: PyTorch cannot draw our tokens and labels.
  const ProgramOptions options = program_options(device.config, {});
  training.samples = first_samples(device.graph, options.data_seed, options.batch_size);
  const auto& [images, tokens, labels] = training.samples;
  training.tokens.assign(tokens.begin(), tokens.end());
  training.labels.assign(labels.begin(), labels.end());
  training.samples.give_to(*program);
  const int64_t steps = *device.config.steps;
  for (int64_t step = 0; step < steps; ++step) {
    train_one_step(*program, gradient_steps, training);
  }
  training.trained = {program->parameters(), program->running_statistics(), {steps}};
  return training;
}

void add_parameters(std::vector<TensorView>& tensors, const std::string& prefix, const Graph& graph,
                    std::span<const float> values) {
  for (const Parameter& parameter : graph.parameters()) {
    const auto own = values.subspan(parameter.offset, parameter.size);
    if (parameter.parts.empty()) tensors.push_back({prefix + parameter.name, parameter.dims, own});
    std::vector<int64_t> dims = parameter.dims;
    const auto parts = std::ssize(parameter.parts);
    for (int64_t part = 0; part < parts; ++part) {
      dims[0] = parameter.dims[0] / parts;
      const int64_t size = parameter.size / parts;
      tensors.push_back({prefix + parameter.parts[part], dims, own.subspan(part * size, size)});
    }
  }
}

void add_state(std::vector<TensorView>& tensors, const std::string& prefix, const Graph& graph,
               const State& state) {
  add_parameters(tensors, prefix, graph, state.parameters);
  std::span<const float> rest = state.running_statistics;
  for (const Node& node : graph.nodes()) {
    if (node.op != OpKind::batch_norm) continue;
    const int64_t channels = node.shape.channels;
    tensors.push_back({prefix + node.name + ".running_mean", {channels}, rest.first(channels)});
    rest = rest.subspan(channels);
    tensors.push_back({prefix + node.name + ".running_var", {channels}, rest.first(channels)});
    rest = rest.subspan(channels);
    tensors.push_back(
        {prefix + node.name + ".num_batches_tracked", {}, std::span<const int64_t>(state.steps)});
  }
}

void add_training(std::vector<TensorView>& tensors, const Graph& graph, const Training& training) {
  const auto add = [&]<class T>(const char* name, const std::vector<int64_t>& dims,
                                const std::vector<T>& values) {
    tensors.push_back({name, dims, std::span<const T>(values)});
  };
  const auto steps = std::ssize(training.losses), labels = graph.labels_per_sample();
  const auto batch = std::ssize(training.labels) / labels;
  // One for each label of each sample.
  const auto of_labels = [&](std::vector<int64_t> dims) {
    if (labels > 1) dims.push_back(labels);
    return dims;
  };
  const Shape& image = graph.image();
  if (graph.reads_tokens()) {
    add("tokens", {batch, image.tokens()}, training.tokens);
  } else {
    add("images", {batch, image.channels, image.height, image.width}, training.samples.images);
  }
  add("labels", of_labels({batch}), training.labels);
  add("loss", {steps}, training.losses);
  add("gradient_norm", {steps}, training.gradient_norms);
  for (size_t step = 0; step < training.gradients.size(); ++step) {
    add_parameters(tensors, "gradients." + std::to_string(step) + ".", graph,
                   training.gradients[step]);
  }
  add_state(tensors, "trained.", graph, training.trained);
  if (!training.logits.empty()) add("logits", of_labels({batch, graph.classes()}), training.logits);
}

// A setting that would do nothing is a mistake.
void require_steps_for(const std::vector<std::string>& given) {
  const std::set<std::string> of_parameters = {"model",    "image_size", "classes",
                                               "sequence", "seed",       "zero_init"};
  std::vector<std::string> flags;
  for (const std::string& setting : std::set(given.begin(), given.end())) {
    if (of_parameters.contains(setting)) continue;
    std::string& flag = flags.emplace_back("--" + setting);
    std::ranges::replace(flag, '_', '-');
  }
  if (flags.empty()) return;
  throw std::invalid_argument("without --steps nothing is trained, which " +
                              joined(flags, " and ") + " would be for: add --steps N, or leave " +
                              (flags.size() > 1 ? "them" : "it") + " out");
}

std::filesystem::path destination_of(const RunConfig& config) {
  if (config.output == "-") throw std::invalid_argument("--output: export writes to files alone");
  return config.output.value_or("nearmetal-" + config.model + ".safetensors");
}

// A device is only needed to train.
std::optional<PreparedDevice> find_device(const RunRequest& request, const Context& context,
                                          const std::filesystem::path& path) {
  const auto require_path = [&](const RunConfig& config) { require_writable(path, config.force); };
  if (request.config.steps) {
    RunRequest training = request;
    training.config.inference = false;
    return prepare_device(training, context, 0, require_path);
  }
  require_steps_for(request.given);
  require_path(request.config);
  return std::nullopt;
}

// Refuses what holds for `run`, but not for what is written here.
void check_request(const ExportRequest& request, const Graph& graph) {
  const RunConfig& asked = request.config;
  if (asked.steps && asked.batch == largest_that_fits) {
    throw std::invalid_argument("--batch auto is for run; give export a number");
  }
  if (asked.pipeline > 1) {
    throw std::invalid_argument(
        "export holds the network as one device trains it; leave --pipeline out");
  }
  if (asked.zero_init && request.last_scale) {
    throw std::invalid_argument("--zero-init is --last-scale 0; give one of them");
  }
  if (request.last_scale &&
      std::ranges::none_of(graph.parameters(), &Parameter::scales_residual_branch)) {
    throw std::invalid_argument(
        "--last-scale is for residual branches that end in a batch norm, and " + asked.model +
        " has none; leave it out");
  }
  if (request.gradient_steps && *request.gradient_steps > asked.steps.value_or(-1)) {
    throw std::invalid_argument("--gradient-steps are the first of --steps: give --steps " +
                                std::to_string(*request.gradient_steps) + " or more, too");
  }
}

ExitCode run_export(const ExportRequest& request, const Context& context) {
  const RunConfig& asked = request.config;
  Terminal terminal = context.terminal;
  terminal.quiet = asked.quiet;
  check_samples({asked, request.given});
  const Graph graph = trained_graph_of(asked);
  check_request(request, graph);
  const std::filesystem::path path = destination_of(asked);
  std::optional<PreparedDevice> device = find_device(request, context, path);

  const Tool tool = build_info();
  std::map<std::string, std::string> metadata = {
      {"format", "pt"},
      {"nearmetal_version", tool.version},
      {"git_commit", tool.git_commit.value.value_or("unknown")}};
  const State initial = initial_state(graph, request);
  std::vector<TensorView> tensors;
  add_state(tensors, "", graph, initial);
  Training training;
  if (device) {
    terminal.remark(device_remark(device->config.device, device->why));
    metadata["device_name"] = device->info.name;
    metadata.insert(device->info.libraries.begin(), device->info.libraries.end());
    const int64_t gradient_steps = request.gradient_steps.value_or(*device->config.steps);
    training = train(*device, initial, gradient_steps, terminal);
    if (asked.inference) training.logits = evaluated_logits(*device, training, terminal);
    add_training(tensors, graph, training);
  }
  metadata["config"] = json::line_of(device ? device->config : asked);
  write_safetensors(path, tensors, metadata, asked.force);
  terminal.remark("exported: " + path.string());
  return ExitCode::ok;
}

// The options of `run` that decide what is computed, and a file for it.
void add_export_options(Options& options, ExportRequest& request) {
  RunConfig& run = request.config;
  add_settings(options, request, in_export);
  options.under(to_string(SettingGroup::files));
  options.path("--output", "FILE", run.output, "file to write [nearmetal-MODEL.safetensors]");
  options.toggle("--force", run.force, "replace an existing file");
  add_quiet(options, request, SettingGroup::files);
  options.under(to_string(SettingGroup::work));
  options.number("--steps", "N", run.steps, {1, 1000},
                 "train N steps on the first batch and write their results");
  options.under(to_string(SettingGroup::files));
  options.number("--gradient-steps", "N", request.gradient_steps, {0, 1000},
                 "write the gradients of the first N steps alone [all]");
  options.under(to_string(SettingGroup::optimizer));
  options.number("--last-scale", "X", request.last_scale, {0, 1},
                 "start the last scale of each block at X; 0.2 suits 16 bits");
}

}  // namespace

Command export_command() {
  return make_command("export", "Write parameters, and what training makes of them, to a file",
                      export_examples, add_export_options, run_export);
}

}  // namespace nearmetal
