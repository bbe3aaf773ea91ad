#include "bench/run/defaults.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>

#include "base/text.h"
#include "models/graph.h"
#include "models/networks/registry.h"

namespace nearmetal {
namespace {

// What was asked for of a run that does not train.
std::string untrained_flag(const RunConfig& config) {
  return config.inference ? "--inference" : "--forward-only";
}

void require(bool holds, const std::string& otherwise) {
  if (!holds) throw std::invalid_argument(otherwise);
}

template <class T>
void fill(std::optional<T>& setting, T value) {
  if (!setting) setting = value;
}

// Gradients in fp16 vanish unless the loss is scaled.
bool has_fp16_gradients(const RunConfig& config) {
  return config.precision == Precision::fp16 || config.gradient_type == GradientType::fp16;
}

// Labels are drawn at random, so that SGD only stirs the logits. They get a variance of
// learning_rate x |f|^2 / (2 (1 - momentum) batch), where f are the features that the classifier
// reads, and half of it as loss: with 1 for the square of a feature and momentum 0.9 that is 0.04
// here, for any network and batch. All samples of a step count as its batch. At 0.1 x batch / 256
// (arXiv 1706.02677), a rate for labels that can be learned, ResNet-50 gets 2 and more. The batch
// of one rank counts: the mean over several is steadier still.
double default_learning_rate(const RunConfig& config) {
  constexpr double largest = 0.1;
  const auto features = static_cast<double>(build_network(config.model).features());
  return std::min(largest, static_cast<double>(step_samples(config)) / (64 * features));
}

// AdamW's steps are as long as its rate, whatever the gradient: that of fine-tuning BERT (arXiv
// 1810.04805), of which random labels make little in the steps of a run.
constexpr double adamw_learning_rate = 5e-5;

// The largest gradients, those of the stem's weights, fall with the root of the batch, those of
// activations with the batch. This keeps the former below 65,504 (ResNet-152, 224 x 224: 6,200) and
// the latter above what fp16 holds with all its bits. Where branches begin at zero, both are
// smaller by far: of ResNets at batch 16 and 256, gradients are as exact as PyTorch's at 1024.
LossScale default_loss_scale(int64_t batch, bool zero_init) {
  const double root = std::sqrt(static_cast<double>(batch));
  const double scale = zero_init ? std::clamp(1024.0, 8 * root, 256 * root) : 8 * root;
  return {std::exp2(std::round(std::log2(scale)))};
}

// Refuses settings that do not go with stages or micro-batches.
void check_pipeline(const RunConfig& config) {
  const bool staged = config.pipeline > 1;
  require(trains(config) || (!staged && config.micro_batches == 1),
          "--pipeline and --micro-batches train; leave them out with " + untrained_flag(config));
  require(config.accumulate == 1 || (!staged && config.micro_batches == 1),
          "--accumulate has its micro-batches on one device, --micro-batches through the stages of "
          "--pipeline; give one of them");
  require(staged || config.schedule == RunConfig{}.schedule,
          "--schedule is the order of stages; give --pipeline, too");
  require(staged || !config.cuts, "--cuts makes stages; give --pipeline, too");
  if (!staged) return;
  require(!config.plans || config.cuts,
          "--plans holds for stages that are cut as they were; name the cuts with --cuts");
  require(config.update == Update::allreduce,
          "--pipeline trains one network on all ranks; leave --update independent out");
  require(!config.profile,
          "--profile times each kernel alone, and the transfers of --pipeline need both stages; "
          "profile the network on one device");
  require(!config.attribute,
          "--attribute times each kernel of a whole network; leave it out with --pipeline");
  require(!config.digest,
          "--digest compares ranks that train the same network; leave it out with --pipeline");
}

bool ends_branches_in_norms(const std::string& model) {
  return std::ranges::any_of(build_network(model).parameters(), &Parameter::scales_residual_branch);
}

}  // namespace

void fill_defaults(RunConfig& config, Device device) {
  config.device = device;
  const bool cuda = config.device == Device::cuda;
  fill(config.precision, cuda ? Precision::fp16 : Precision::fp32);
  const Network& network = find_network(config.model);
  const bool sequences = network.sample == SampleUnit::sequence;
  if (sequences) fill(config.sequence, NetworkOptions{}.sequence);
  // As many sequences of 384 tokens take as long as the images, or longer.
  fill(config.batch, int64_t{sequences ? (cuda ? 32 : 4) : (cuda ? 256 : 16)});
  fill(config.optimizer, network.optimizer);
  const bool adamw = config.optimizer == Optimizer::adamw;
  fill(config.weight_decay, adamw ? 1e-2 : 1e-4);
  // A GPU reaches its power limit after a second, and its clock swings for two more (H200: 26.5 ms
  // steps, then 31, then 27): 120 steps at the default batch outlast that.
  fill(config.warmup, int64_t{cuda ? 120 : 3});
  if (cuda) fill(config.launch, LaunchMode::graph);
  if (cuda) fill(config.all_reduce, AllReduceKind::nccl);
  if (!has_fp16_gradients(config)) fill(config.loss_scale, LossScale{});
  if (config.batch == largest_that_fits) return;
  fill(config.loss_scale, default_loss_scale(*config.batch, config.zero_init));
  fill(config.learning_rate, adamw ? adamw_learning_rate : default_learning_rate(config));
}

void check_samples(const Workload& workload) {
  const std::string& model = workload.config.model;
  const bool sequences = find_network(model).sample == SampleUnit::sequence;
  require(sequences || !workload.is_given("sequence"),
          model + " reads images, which have no --sequence; leave it out");
  for (const std::string flag : {"image-size", "classes"}) {
    require(!sequences || !workload.is_given(replaced(flag, "-", "_")),
            model + " reads sequences, which have no --" + flag + "; leave it out");
  }
}

void check_settings(const Workload& workload) {
  const RunConfig& config = workload.config;
  const bool cuda = config.device == Device::cuda;
  const auto given = [&](const char* setting) { return workload.is_given(setting); };
  require(!given("steps") || !given("duration_seconds"),
          "--steps and --duration both say how long; give one of them");
  const std::string remedy =
      given("device") || cuda
          ? std::string("leave it out with --device ") + to_string(config.device)
          : "none is visible here: leave it out, or see why with --device cuda";
  for (const Setting& setting : settings_of_run()) {
    require(!setting.only_for || *setting.only_for == config.device || !given(setting.name),
            flag_of(setting) + " is for " + (cuda ? "CPUs" : "GPUs") + "; " + remedy);
  }
  require(cuda || config.input == Input::device,
          "--input host and pageable are for GPUs; " + remedy);
  const AllReduceKind all_reduce = config.all_reduce.value_or(AllReduceKind::nccl);
  require(config.nccl_algorithm == NcclAlgorithm::automatic || all_reduce == AllReduceKind::nccl,
          "--nccl-algorithm is for sums by NCCL alone; leave --all-reduce " +
              std::string(to_string(all_reduce)) + " out");
  require(config.nccl_algorithm == NcclAlgorithm::automatic || config.launch != LaunchMode::stream,
          "--nccl-algorithm is checked in the step's graph; leave --launch stream out");
  require(cuda || config.batch != largest_that_fits,
          "--batch auto is for GPUs: a host without free memory kills processes; give a number");
  require(
      !config.forward_only || !config.inference,
      "--forward-only is the forward pass of training, --inference that of evaluation; give one "
      "of them");
  require(!config.zero_init || !config.inference,
          "--zero-init gives inference layers of zeros; leave it out with --inference");
  require(trains(config) || !config.verify,
          "--verify trains; it cannot go with " + untrained_flag(config));
  require(trains(config) || !config.digest,
          "--digest trains; it cannot go with " + untrained_flag(config));
  require(!config.digest || !cuda || config.precision != Precision::fp32,
          "--digest compares bits, and in fp32 cuDNN may have no sums that repeat; give another "
          "--precision");
  require(trains(config) || config.accumulate == 1,
          "--accumulate sums gradients; leave it out with " + untrained_flag(config));
  require(has_fp16_gradients(config) ||
              (config.loss_scale->initial == 1 && !config.loss_scale->dynamic),
          "--loss-scale is for fp16, whose gradients vanish without it; leave it out");
  require(config.optimizer == Optimizer::sgd || !given("momentum"),
          "--momentum is for SGD, and AdamW keeps its own; leave it out, or give --optimizer sgd");
  require(!given("plans") || !given("plan_cache"),
          "--plans pins all plans; leave --plan-cache out");
  check_samples(workload);
  check_pipeline(config);
}

void require_whole_replicas(const RunConfig& config, int64_t ranks) {
  const std::string stages = std::to_string(config.pipeline);
  require(ranks % config.pipeline == 0,
          "--pipeline " + stages + ": the number of ranks must be a multiple of " + stages +
              ", and this job has " + counted(ranks, "rank"));
}

std::vector<std::string> flags_without_effect(const Workload& workload, int world_size) {
  const RunConfig& config = workload.config;
  std::vector<std::string> remarks;
  for (const Setting& setting : settings_of_run()) {
    if (!workload.is_given(setting.name)) continue;
    std::string why;
    if (setting.needs == Needs::training && !trains(config)) {
      why = "nothing is trained (" + untrained_flag(config) + ")";
    }
    if (setting.needs == Needs::exchange && !exchanges_gradients(config, world_size)) {
      why = world_size > 1 ? "ranks exchange no gradients" : "there is one rank";
    }
    if (config.zero_init && setting.name == std::string("zero_init") &&
        !ends_branches_in_norms(config.model)) {
      why = config.model + " has no residual branch that ends in a batch norm";
    }
    if (!why.empty()) remarks.push_back(flag_of(setting) + " has no effect: " + why);
  }
  return remarks;
}

}  // namespace nearmetal
