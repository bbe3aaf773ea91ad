#include "reports/sharing/cost.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>
#include <string_view>

#include "base/text.h"
#include "reports/compare/comparison_row.h"
#include "reports/compare/work_text.h"
#include "reports/sharing/arm_figures.h"

namespace nearmetal {
namespace {

constexpr double million = 1e6, hour_seconds = 3600;

struct UsualTraining {
  const char* networks;           // as reports and published logs name them, each between blanks
  const char* size;               // image_size or sequence of the comparable key, where it has one
  double samples, epoch_samples;  // of ImageNet; 0: epochs are not counted
  const char* text;               // behind that, with its source
};

// Russakovsky et al., "ImageNet Large Scale Visual Recognition Challenge", 2015, table 2.
constexpr double imagenet = 1'281'167;
constexpr UsualTraining usual_trainings[] = {
    {" resnet18 resnet34 resnet50 resnet101 resnet152 resnet50_v1 resnet101_v1 resnet152_v1 resnet "
     "resnet50_v1.5 resnet101_v1.5 resnet152_v1.5 vgg16 vgg16_bn ",
     "224", 90 * imagenet, imagenet,
     ", 90 epochs of ImageNet: torchvision, references/classification/README.md"},
    {" vit_b_16 ", "224", 300 * imagenet, imagenet,
     ", 300 epochs of ImageNet: torchvision, references/classification/README.md"},
    {" bert bert_large ", "512", 2'552'704, 0,
     ", MLPerf's mean of 20 runs at batch 256: mlcommons/logging, 5.0.0/rcps_bert.json"}};

// None for inference, too.
const UsualTraining* usual_training_of(const SetRun& run) {
  const auto is_yes = [&](const char* field) { return key_value(run, field) == "yes"; };
  const std::string model = key_value(run, "model");
  const std::string network = " " + (model.empty() ? key_value(run, "benchmark") : model) + " ";
  const std::string size = key_value(run, "image_size") + key_value(run, "sequence");
  for (const UsualTraining& usual : usual_trainings) {
    const bool is_network = std::string_view(usual.networks).find(network) != network.npos;
    const bool fits = size.empty() || size == usual.size;
    if (is_network && fits && !is_yes("forward_only") && !is_yes("inference")) return &usual;
  }
  return nullptr;
}

Maybe<double> samples_of(const SetRun& run, const CostRequest& request) {
  if (request.samples) return *request.samples;
  const UsualTraining* usual = usual_training_of(run);
  if (usual != nullptr && !request.epochs) return usual->samples;
  if (usual != nullptr && usual->epoch_samples > 0) return *request.epochs * usual->epoch_samples;
  return Unknown{"no usual training of such work, or no epoch of it, is known; give --samples"};
}

Maybe<double> paid_gpus(const RunSet& set, const SetRun& run, const CostRequest& request) {
  const bool per_host = request.gpus_per_host.has_value();
  if (is_imported(run) && (per_host || run.run.world_size < 1)) {
    return Unknown{"the published file does not tell its GPUs, or their hosts"};
  }
  if (is_imported(run)) return static_cast<double>(run.run.world_size);
  std::set<int64_t> hosts;
  for (const Rank& rank : run.run.ranks) {
    hosts.insert(rank.environment);
    const Gpu* gpu = gpu_of(set, rank);
    if (per_host || gpu == nullptr || !gpu->vgpu_profile) continue;
    return Unknown{"a vGPU is an unknown part of a GPU; give --gpus-per-host"};
  }
  if (!per_host || run.run.device == Device::cpu) return gpus_of(run.run);
  const auto paid = static_cast<double>(*request.gpus_per_host * std::ssize(hosts));
  return std::max(paid, gpus_of(run.run).value.value_or(0));
}

// Jobs that run at once train a network each, and so do ranks that exchange nothing.
double networks_at_once(const RunArm& arm, const SetRun& run) {
  int64_t networks = std::max<int64_t>(1, std::ssize(run.run.jobs));
  if (arm.share && arm.share->mode == SharingMode::serial) networks = 1;
  const std::string update = key_value(run, "update") + key_value(run, "variable_update");
  if (update == to_string(Update::independent)) networks = run.run.world_size;
  return static_cast<double>(networks);
}

Maybe<double> times(const Maybe<double>& a, const Maybe<double>& b) {
  return !a ? a : !b ? b : *a * *b;
}

void price_run(SetRun& run, const RunSet& set, const RunArm& arm, const CostRequest& request,
               Maybe<double> watts) {
  auto& costs = run.run.costs;
  const Maybe<double>& rate = run.run.throughput;
  const auto million_hours = rate ? Maybe(million / *rate / hour_seconds) : rate;
  const auto hours = times(times(1 / million, samples_of(run, request)), million_hours);
  costs[CostFigure::hours] = times(networks_at_once(arm, run), hours);
  Maybe<double> gpus = paid_gpus(set, run, request);
  if (!arm.whole.empty() && !value_in(run.key, "share").empty()) {
    gpus = watts = Unknown{"jobs of other work share its GPU"};
  }
  if (request.price_per_gpu_hour) {
    const Maybe<double> price = times(*request.price_per_gpu_hour, gpus);
    costs[CostFigure::cost] = times(price, hours);
    costs[CostFigure::cost_per_million] = times(price, million_hours);
  }
  if (request.price_per_kwh) {
    costs[CostFigure::energy] = times(times(1e-3, watts), hours);
    costs[CostFigure::energy_cost] = times(*request.price_per_kwh, costs[CostFigure::energy]);
  }
}

struct Answer {
  int64_t arms = 0;  // whatever the limits
  std::pair<double, std::string> cheapest{INFINITY, ""}, fastest{INFINITY, ""};
};

void add_answers(RunSet& set, const CostRequest& request, const std::string& side) {
  const Metric& hours = metric_from(to_string(CostFigure::hours));
  const Metric& cost = metric_from(to_string(CostFigure::cost));
  std::string limits;
  if (request.deadline_hours) limits += " within " + shortest(*request.deadline_hours, 6) + " h";
  if (request.budget) limits += " for at most " + shortest(*request.budget, 10);
  const auto exceeds = [](const SideSummary& found, const std::optional<double>& limit) {
    return limit && (found.interval ? found.interval->upper : *found.geometric_mean) > *limit;
  };
  std::map<std::string, Answer> answers;
  for (const RunArm& arm : set.arms) {
    const SideSummary time = summary_of_arm(arm, hours), price = summary_of_arm(arm, cost);
    if (!time.geometric_mean || !price.geometric_mean) continue;
    Answer& answer = answers[side + task_of_run(arm.runs[0]) + limits];
    ++answer.arms;
    if (exceeds(time, request.deadline_hours) || exceeds(price, request.budget)) continue;
    const std::string text =
        arm.name + ", cost " + mean_text(price, cost) + " in " + mean_text(time, hours) + " h";
    answer.cheapest = std::min(answer.cheapest, {*price.geometric_mean, text});
    answer.fastest = std::min(answer.fastest, {*time.geometric_mean, text});
  }
  for (const auto& [work, answer] : answers) {
    if (answer.arms == 1 && limits.empty()) continue;
    set.cost_notes.push_back(work + (answer.fastest.second.empty()
                                         ? ": no layout is shown to meet that"
                                         : ": cheapest is " + answer.cheapest.second +
                                               "; fastest is " + answer.fastest.second));
  }
}

}  // namespace

void check(const CostRequest& request, bool form_has_costs) {
  const bool limits = request.deadline_hours || request.budget || request.gpus_per_host;
  const auto refuse = [](const char* why) { throw std::invalid_argument(why); };
  if (request.samples && request.epochs) refuse("--samples and --epochs exclude each other");
  if (limits && !request.price_per_gpu_hour) {
    refuse("--deadline, --budget and --gpus-per-host need --price-per-gpu-hour");
  }
  if (form_has_costs || !request.asked()) return;
  refuse("this form has no costs; report --format text, markdown, html, github or csv has them");
}

void add_costs(RunSet& set, const CostRequest& request, const std::string& side) {
  if (!request.asked()) return;
  for (RunArm& arm : set.arms) {
    Maybe<double> watts = power_of(set, arm);
    if (is_imported(arm)) watts = Unknown{"the published file does not tell its power"};
    for (SetRun& run : arm.runs) {
      price_run(run, set, arm, request, watts);
      const Maybe<double> samples = samples_of(run, request);
      if (!samples) continue;
      add_new(set.cost_notes,
              "time and cost are those of " + shortest(*samples / million, 6) + " million " +
                  words_of(run.run.sample).plural +
                  (request.samples || request.epochs ? "" : usual_training_of(run)->text));
    }
  }
  const std::string hosts = std::to_string(request.gpus_per_host.value_or(0)) + " of each host";
  set.cost_notes.push_back(
      "time is that of the steps alone, without set-up, evaluation and real input, for each of the "
      "networks that are trained at once; GPUs are paid as wholes, idle ones " +
      (request.gpus_per_host ? "up to " + hosts : "not"));
  add_answers(set, request, side);
}

}  // namespace nearmetal
