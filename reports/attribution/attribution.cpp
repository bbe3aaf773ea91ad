#include "reports/attribution/attribution.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <stdexcept>
#include <tuple>

#include "base/text.h"
#include "reports/attribution/step_model.h"
#include "reports/conditions/machine_conditions.h"
#include "reports/conditions/network_conditions.h"
#include "reports/conditions/path_conditions.h"
#include "reports/document/metric.h"

namespace nearmetal {
namespace {

// The time that a step takes; beyond lies damage, or a joke.
constexpr double longest_step_seconds = 1e6;
constexpr double shortest_step_seconds = 1e-9;

bool makes_sense(const Run& run) {
  const double step = mean_step_seconds(*run.window);
  const double exposed =
      run.communication ? run.communication->exposed_seconds_per_step.value.value_or(0) : 0;
  return step >= shortest_step_seconds && step <= longest_step_seconds &&
         exposed <= longest_step_seconds;
}

// Worse by so much must change a step that is sensitive to a layer.
constexpr double tried_change = 0.1;

Maybe<double> share_of(const Maybe<double>& seconds, double whole) {
  if (!seconds) return seconds;
  if (whole == 0) return Unknown{"the steps do not differ"};
  return *seconds / whole;
}

class Explainer {
 public:
  Explainer(const SideFigures& base, const SideFigures& next, const Maybe<double>& noise_seconds)
      : base_(base),
        next_(next),
        noise_seconds_(noise_seconds),
        model_(model_of(base)),
        unchanged_(step_seconds(model_)) {}

  std::vector<LayerShare> layers() const {
    std::vector<LayerShare> layers;
    for (const LayerFinding& finding : layer_findings(base_, next_, model_)) {
      layers.push_back(layer_of(finding));
    }
    // Layers that made the difference come before those that eased it, such as the clock of a GPU
    // that waits.
    const double direction = next_.step_seconds < base_.step_seconds ? -1 : 1;
    const auto order = [direction](const LayerShare& layer) {
      const double part = direction * layer.seconds.value.value_or(0);
      return std::tuple(!layer.counts(), !layer.seconds, !layer.sensitive, -part);
    };
    std::ranges::stable_sort(
        layers, [&](const LayerShare& a, const LayerShare& b) { return order(a) < order(b); });
    return layers;
  }

 private:
  // How much longer the base's step takes with one layer changed.
  double change(const LayerFinding& finding, double factor) const {
    return step_seconds(model_, finding.layer, factor) - unchanged_;
  }

  bool is_sensitive(const LayerFinding& finding) const {
    if (finding.layer == Layer::communication) return base_.exchanges || next_.exchanges;
    if (change(finding, 1 + tried_change) != 0) return true;
    return finding.factor && change(finding, *finding.factor) != 0;
  }

  bool probes_agree(const LayerFinding& finding) const {
    const double limit = probes_may_differ_by;
    if (finding.layer == Layer::communication) {
      return std::abs(*finding.factor) < limit * base_.exposed_seconds;
    }
    return std::abs(*finding.factor - 1) < limit;
  }

  void judge(const LayerFinding& finding, LayerShare& layer) const {
    if (probes_agree(finding)) {
      layer.below_noise = true;
      const std::string what = finding.beyond.empty()
                                   ? "both sides agree"
                                   : "what is left beyond " + finding.beyond + " agrees";
      layer.statement =
          "below the noise: " + what + " within " + plain_percent(probes_may_differ_by);
    } else if (noise_seconds_ && std::abs(*layer.seconds) < *noise_seconds_) {
      layer.below_noise = true;
      layer.statement = "below the noise: within the interval of the difference, +-" +
                        milliseconds_text(*noise_seconds_);
    } else if (finding.layer == Layer::communication) {
      layer.statement = part_of_communication(base_, next_);
    }
  }

  LayerShare layer_of(const LayerFinding& finding) const {
    LayerShare layer;
    layer.layer = finding.layer;
    layer.seen = finding.seen;
    layer.sensitive = is_sensitive(finding);
    if (!layer.sensitive) {
      layer.seconds = 0.0;
      layer.statement = "this workload is insensitive to this layer: " + finding.hidden;
    } else if (finding.factor) {
      layer.seconds = change(finding, *finding.factor);
      judge(finding, layer);
    } else {
      layer.seconds = Unknown{finding.factor.reason};
      layer.statement = "not known: " + finding.factor.reason;
    }
    layer.share_of_step = share_of(layer.seconds, base_.step_seconds);
    layer.share_of_difference = share_of(layer.seconds, next_.step_seconds - base_.step_seconds);
    return layer;
  }

  const SideFigures& base_;
  const SideFigures& next_;
  const Maybe<double>& noise_seconds_;
  StepModel model_;
  double unchanged_;
};

// Those that are specific come first, those that fit many layers last.
std::vector<const Condition*> all_conditions() {
  // Beside it nothing else of the machine counts.
  std::vector<const Condition*> all = {&condition_of(system_conditions(), "cpu_emulated")};
  for (const Conditions* table :
       {&limit_conditions(), &peer_conditions(), &gpu_conditions(), &exchange_conditions(),
        &gpu_direct_conditions(), &nic_conditions(), &system_conditions()}) {
    for (const Condition& condition : *table) all.push_back(&condition);
  }
  return all;
}

bool may_slow(const Slowed& slowed, Layer layer, const ExplainedSide& side) {
  if (slowed.over_network && !uses_network(side)) return false;
  if (std::ranges::find(slowed.layers, layer) != slowed.layers.end()) return true;
  return side.runs.front()->device == Device::cpu &&
         std::ranges::find(slowed.of_cpu_work, layer) != slowed.of_cpu_work.end();
}

// By layer.
constexpr std::array where_to_look = {
    "watch clocks, power and temperature while it runs",
    "look for another user of the device, or a smaller share of it",
    "look for another user of the memory, ECC, and the node on which it lies",
    "look for what else runs on these CPUs: processes, interrupts, other VMs",
    "look at the driver's version and the CPUs' power states",
    "look at the way of PCIe: IOMMU, switches, NUMA node of the pinned memory",
    "time the links (nearmetal micro); communication.nccl of the reports has the transports"};
static_assert(where_to_look.size() == names_of(Layer{}).size());

}  // namespace

std::string cannot_explain(const ExplainedSide& side) {
  if (side.runs.empty()) return "no complete run";
  for (const Run* run : side.runs) {
    if (!run->jobs.empty()) return "several jobs ran at once";
    if (!run->window || run->ranks.empty()) return "a run has no timed window";
    if (!makes_sense(*run)) return "the times of a run make no sense";
    for (const Rank& rank : run->ranks) {
      if (!rank.probes) return "not all runs were taken with --attribute";
    }
  }
  return "";
}

std::vector<KnownCause> known_causes(const ExplainedSide& base, const ExplainedSide& next,
                                     const std::vector<LayerShare>& layers) {
  std::vector<KnownCause> causes;
  std::set<std::string> named;
  const std::vector<const Condition*> conditions = all_conditions();
  for (const LayerShare& share : layers) {
    if (!share.counts() || *share.seconds <= 0) continue;
    bool found = false;
    for (const Condition* condition : conditions) {
      if (!may_slow(condition->slowed, share.layer, next)) continue;
      const std::optional<Finding> cause = found_between(*condition, base, next);
      if (!cause) continue;
      found = true;
      const auto& [of_doctor, own] = condition->codes;
      const std::string code = own.value_or(of_doctor);
      if (named.insert(code).second) causes.push_back({code, share.layer, cause->seen, cause->fix});
    }
    if (!found) {
      causes.push_back({"not_seen", share.layer, "nothing in the reports shows why",
                        where_to_look.at(static_cast<size_t>(share.layer))});
    }
  }
  return causes;
}

Explanation explain(const ExplainedSide& base, const ExplainedSide& next,
                    const Maybe<double>& noise_share) {
  for (const ExplainedSide* side : {&base, &next}) {
    const std::string why_not = cannot_explain(*side);
    if (!why_not.empty()) throw std::invalid_argument("nothing can be explained: " + why_not);
  }
  const SideFigures of_base = figures_of(base), of_next = figures_of(next);
  Explanation explanation;
  explanation.base_step_seconds = of_base.step_seconds;
  explanation.new_step_seconds = of_next.step_seconds;
  explanation.difference_seconds = of_next.step_seconds - of_base.step_seconds;
  explanation.noise_seconds = noise_share ? Maybe<double>(*noise_share * of_base.step_seconds)
                                          : Maybe<double>(Unknown{noise_share.reason});
  explanation.layers = Explainer(of_base, of_next, explanation.noise_seconds).layers();
  explanation.unexplained_seconds = explanation.difference_seconds;
  for (const LayerShare& layer : explanation.layers) {
    explanation.unexplained_seconds -= layer.seconds.value.value_or(0);
  }
  explanation.unexplained_share =
      share_of(explanation.unexplained_seconds, explanation.difference_seconds);
  explanation.causes = known_causes(base, next, explanation.layers);
  return explanation;
}

}  // namespace nearmetal
