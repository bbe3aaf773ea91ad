#include "reports/attribution/attribution.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <tuple>

#include "base/text.h"
#include "reports/attribution/known_causes.h"
#include "reports/document/metric.h"
#include "reports/statistics/statistics.h"

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

// One side's figures: of several ranks that of the slowest, of several runs the median.
struct SideFigures {
  Device device = Device::cpu;
  SampleUnit sample = SampleUnit::image;
  double step_seconds = 0;
  double exposed_seconds = 0;  // 0: one rank
  bool exchanges = false;
  StepNeeds needs;
  Maybe<double> sm_hertz;            // mean of the window
  Maybe<double> steal_share;         // of the CPUs' time
  Maybe<double> sums_alone_seconds;  // of a step's gradients, with nothing else going on
  std::vector<ProbeTime> probes;

  // The probe of the copy by which samples come.
  const char* input_copy() const { return needs.input_pageable ? pageable_probe : input_probe; }
  // The only probe whose name begins so: "product/", "p2p/".
  const ProbeTime* first_of(const std::string& prefix) const {
    const auto found = std::ranges::find_if(
        probes, [&](const ProbeTime& probe) { return probe.name.starts_with(prefix); });
    return found == probes.end() ? nullptr : &*found;
  }
  // Its time.
  Maybe<double> seconds(const std::string& name,
                        Maybe<double> ProbeTime::*which = &ProbeTime::median_seconds) const {
    const ProbeTime* probe = first_of(name);
    return probe == nullptr ? Maybe<double>(Unknown{"not probed"}) : probe->*which;
  }
  // What it moves, or does, in a second.
  Maybe<double> rate(const std::string& name, double ProbeTime::*amount = &ProbeTime::bytes) const {
    const ProbeTime* probe = first_of(name);
    if (probe == nullptr) return Unknown{"not probed"};
    if (!probe->median_seconds) return probe->median_seconds;
    const double rate = probe->*amount / *probe->median_seconds;
    return std::isfinite(rate) ? Maybe<double>(rate) : Unknown{"the values make no sense"};
  }
};

Maybe<double> median_of(const std::vector<double>& values, const std::string& reason) {
  if (values.empty()) return Unknown{reason};
  return median(values);
}

// The median over the runs of the largest value that a rank has.
template <class ValueOf>
Maybe<double> slowest_ranks(const ExplainedSide& side, const ValueOf& value_of) {
  std::vector<double> values;
  std::string reason = "not measured";
  for (const Run* run : side.runs) {
    std::optional<double> largest;
    for (const Rank& rank : run->ranks) {
      const Maybe<double> value = value_of(rank);
      if (value) {
        largest = std::max(largest.value_or(*value), *value);
      } else {
        reason = value.reason;
      }
    }
    if (largest) values.push_back(*largest);
  }
  return median_of(values, reason);
}

ProbeTime slowest_probe(const ExplainedSide& side, ProbeTime probe) {
  for (const auto time :
       {&ProbeTime::median_seconds, &ProbeTime::mean_seconds, &ProbeTime::p99_seconds}) {
    const auto slowest = slowest_ranks(side, [&](const Rank& rank) -> Maybe<double> {
      const ProbeTime* found = find_in(rank.probes->probes, probe.name, &ProbeTime::name);
      return found == nullptr ? Maybe<double>(Unknown{"not measured"}) : found->*time;
    });
    if (slowest) probe.*time = slowest;
  }
  return probe;
}

// Of a figure of the runs that exchange gradients; unknown where none does.
template <class Figure>
Maybe<double> median_of_exchanges(const ExplainedSide& side, Figure Communication::*figure) {
  std::vector<double> values;
  for (const Run* run : side.runs) {
    if (!run->communication) continue;
    const Maybe<double> value = (*run->communication).*figure;
    if (value) values.push_back(*value);
  }
  return median_of(values, "not measured");
}

SideFigures figures_of(const ExplainedSide& side) {
  const Run& first = *side.runs.front();
  const RankProbes& probed = *first.ranks.front().probes;
  SideFigures figures;
  figures.device = first.device;
  figures.sample = first.sample;
  figures.step_seconds = geometric_mean(
      transformed(side.runs, [](const Run* run) { return mean_step_seconds(*run->window); }));
  figures.exchanges = first.communication.has_value();
  figures.exposed_seconds =
      median_of_exchanges(side, &Communication::exposed_seconds_per_step).value.value_or(0);
  figures.sums_alone_seconds = median_of_exchanges(side, &Communication::buckets_seconds);
  figures.needs = probed.needs;
  for (const auto part : {&StepNeeds::memory_seconds, &StepNeeds::compute_seconds}) {
    figures.needs.*part =
        slowest_ranks(side, [&](const Rank& rank) { return rank.probes->needs.*part; });
  }
  for (const ProbeTime& probe : probed.probes) {
    figures.probes.push_back(slowest_probe(side, probe));
  }
  // The slowest clock is the largest time of a cycle.
  const Maybe<double> cycle = slowest_ranks(side, [](const Rank& rank) -> Maybe<double> {
    const Maybe<double> hertz = monitored(rank, "sm_clock_hertz");
    if (!hertz || *hertz <= 0) return Unknown{"not monitored"};
    return 1 / *hertz;
  });
  figures.sm_hertz = cycle ? Maybe<double>(1 / *cycle) : Maybe<double>(Unknown{cycle.reason});
  figures.steal_share =
      slowest_ranks(side, [](const Rank& rank) { return monitored(rank, "cpu_steal_share"); });
  return figures;
}

// The parts of the base's step. All in seconds.
struct StepModel {
  double memory = 0;   // device work that its bytes bind
  double compute = 0;  // device work that its operations bind
  double queueing = 0;
  double input = 0;
  double exposed = 0;
  bool cpu_computes = false;
};

// A host that keeps the device waiting leaves nothing else of a step.
constexpr double fills_the_step = 0.9;

StepModel model_of(const SideFigures& base) {
  StepModel model;
  model.cpu_computes = base.device == Device::cpu;
  model.exposed = base.exposed_seconds;
  const double busy = std::max(0.0, base.step_seconds - base.exposed_seconds);
  const double memory = base.needs.memory_seconds.value.value_or(0);
  const double compute = base.needs.compute_seconds.value.value_or(0);
  model.queueing = base.seconds(queue_probe).value.value_or(0);
  const ProbeTime* copy = base.first_of(base.input_copy());
  if (copy != nullptr && copy->median_seconds && copy->bytes > 0) {
    model.input = base.needs.input_bytes * *copy->median_seconds / copy->bytes;
  }
  const double host = std::max(model.queueing, model.input);
  double device = busy;
  if (host >= fills_the_step * busy && host > 0) {
    // The one that binds takes what was measured; of the device only its least is known.
    (model.queueing >= model.input ? model.queueing : model.input) = busy;
    device = std::min(busy, memory + compute);
  }
  const double memory_share = memory + compute > 0 ? memory / (memory + compute) : 0;
  model.memory = device * memory_share;
  model.compute = device - model.memory;
  return model;
}

// The step with this layer so many times as long as on the base; communication: seconds longer.
double step_seconds(const StepModel& model, Layer changed = Layer::clock, double factor = 1) {
  const auto of = [&](Layer layer) { return layer == changed ? factor : 1; };
  const double on_cpu = model.cpu_computes ? of(Layer::clock) * of(Layer::cpu) : 1;
  const double clock = model.cpu_computes ? 1 : of(Layer::clock);
  const double device =
      on_cpu * (model.memory * of(Layer::memory) + model.compute * clock * of(Layer::compute));
  const double queueing = model.queueing * of(Layer::cpu) * of(Layer::launch);
  const double input = model.input * of(Layer::input);
  const double communication = changed == Layer::communication ? factor : 0;
  return std::max({device, queueing, input}) + model.exposed + communication;
}

// The ratio of two machines that do the same; beyond lies damage, or a joke.
constexpr double largest_ratio = 1e6;

Maybe<double> ratio(const Maybe<double>& other, const Maybe<double>& base) {
  if (!base || !other) return Unknown{base ? other.reason : base.reason};
  const double found = *other / *base;
  if (found >= 1 / largest_ratio && found <= largest_ratio) return found;
  return Unknown{"the values make no sense"};
}

// The rest of `factor` beyond `known`, where that is known.
Maybe<double> beyond_known(const Maybe<double>& factor, const Maybe<double>& known) {
  if (!factor || !known) return factor;
  return beyond(*factor, *known);
}

// "12.3 ms"
std::string milliseconds_text(double seconds) { return significant(1e3 * seconds, 3) + " ms"; }

struct LayerFinding {
  Layer layer = Layer::clock;
  Maybe<double> factor;  // from the base to the new side
  std::vector<SeenProbe> seen;
  std::string hidden{};  // why the step does not wait for the layer, where it does not
  std::string beyond{};  // layers that take a part of what was seen; the factor is the rest of it
};

struct FiguresOfSides {
  SideFigures base;
  SideFigures next;
  StepModel model = model_of(base);

  // The ratio of the times of a probe.
  Maybe<double> ratio_of(const std::string& name,
                         Maybe<double> ProbeTime::*which = &ProbeTime::median_seconds) const {
    return ratio(next.seconds(name, which), base.seconds(name, which));
  }
  // The ratio of all that the CPUs do, by what they take away and by their clock.
  Maybe<double> cpu_ratio() const { return ratio_of(quantum_probe, &ProbeTime::mean_seconds); }
  // A factor of what only the floors tell apart.
  Maybe<double> if_split(const Maybe<double>& factor) const {
    if (!base.needs.memory_seconds) return base.needs.memory_seconds;
    return base.needs.compute_seconds ? factor : base.needs.compute_seconds;
  }

  SeenProbe bytes(const std::string& name) const {
    return {name, ProbeUnit::bytes_per_second, base.rate(name), next.rate(name)};
  }
  SeenProbe seconds(const std::string& name, const char* figure = "",
                    Maybe<double> ProbeTime::*which = &ProbeTime::median_seconds) const {
    return {name + figure, ProbeUnit::seconds, base.seconds(name, which),
            next.seconds(name, which)};
  }
  SeenProbe product() const {
    const ProbeTime* probe = base.first_of("product/");
    return {probe == nullptr ? "product" : probe->name, ProbeUnit::flops_per_second,
            base.rate("product/", &ProbeTime::flops), next.rate("product/", &ProbeTime::flops)};
  }
  std::vector<SeenProbe> cpu() const {
    return {seconds(quantum_probe, " mean", &ProbeTime::mean_seconds),
            seconds(quantum_probe, " p99", &ProbeTime::p99_seconds),
            {"cpu_steal_share", ProbeUnit::share, base.steal_share, next.steal_share}};
  }
};

LayerFinding communication(const FiguresOfSides& sides) {
  const SideFigures &base = sides.base, &next = sides.next;
  if (!base.exchanges && !next.exchanges) {
    return {Layer::communication, 0.0, {}, "no gradients are exchanged"};
  }
  return {
      Layer::communication,
      next.exposed_seconds - base.exposed_seconds,
      {{"exposed communication", ProbeUnit::seconds, base.exposed_seconds, next.exposed_seconds},
       {"sums alone", ProbeUnit::seconds, base.sums_alone_seconds, next.sums_alone_seconds},
       sides.bytes("p2p/")}};
}

std::vector<LayerFinding> where_the_cpu_computes(const FiguresOfSides& sides) {
  const std::string samples = words_of(sides.base.sample).plural;
  const Maybe<double> clock = sides.ratio_of(quantum_probe);
  const Maybe<double> host = sides.cpu_ratio();
  const auto rest = [&](const std::string& name) {
    return sides.if_split(beyond_known(sides.ratio_of(name), host));
  };
  const Unknown none{"the CPU computes"};
  return {{Layer::clock, clock, {sides.seconds(quantum_probe)}},
          {Layer::compute,
           rest("product/"),
           {sides.product()},
           "nothing of it is bound by its operations",
           "clock and cpu"},
          {Layer::memory,
           rest(memory_probe),
           {sides.bytes(memory_probe)},
           "nothing of it is bound by its bytes",
           "clock and cpu"},
          {Layer::cpu, ratio(host, clock), sides.cpu(), "", "clock"},
          {Layer::launch, none, {}, "the CPU itself computes"},
          {Layer::input, none, {}, samples + " are where the CPU computes"}};
}

std::vector<LayerFinding> where_a_gpu_computes(const FiguresOfSides& sides) {
  const auto& [base, next, model] = sides;
  const std::string samples = words_of(base.sample).plural;
  const Maybe<double> clock = sides.if_split(ratio(base.sm_hertz, next.sm_hertz));
  const Maybe<double> host = sides.cpu_ratio();
  const std::string queueing = std::string("queueing a step (") + to_string(base.needs.launch) +
                               ") takes the host " + milliseconds_text(model.queueing) +
                               ", hidden behind the rest of the step";
  const std::string copying = base.needs.input_bytes == 0
                                  ? samples + " stay on the device (--input host copies them)"
                                  : "copying the " + samples + " takes " +
                                        milliseconds_text(model.input) +
                                        ", hidden behind the rest of the step";
  const std::string device = "the step waits for the host, or no kernel is bound by it";
  return {
      {Layer::clock,
       clock,
       {{"sm_clock_hertz", ProbeUnit::hertz, base.sm_hertz, next.sm_hertz}},
       device},
      {Layer::compute,
       sides.if_split(beyond_known(sides.ratio_of("product/"), clock)),
       {sides.product()},
       device,
       "clock"},
      {Layer::memory,
       sides.if_split(sides.ratio_of(memory_probe)),
       {sides.bytes(memory_probe)},
       device},
      {Layer::cpu, host, sides.cpu(), queueing},
      {Layer::launch,
       beyond_known(sides.ratio_of(queue_probe), host),
       {sides.seconds(queue_probe), sides.seconds("launch/kernel"), sides.seconds("launch/graph")},
       queueing,
       "cpu"},
      {Layer::input,
       ratio(base.rate(base.input_copy()), next.rate(next.input_copy())),
       {sides.bytes(input_probe), sides.bytes(pageable_probe)},
       copying}};
}

// The part of the communication that differs, in words.
std::string part_of_communication(const FiguresOfSides& sides) {
  const auto differs = [](const Maybe<double>& factor) {
    return factor && std::abs(*factor - 1) >= probes_may_differ_by;
  };
  if (differs(sides.ratio_of("p2p/"))) return "the links between GPUs differ";
  if (differs(ratio(sides.next.sums_alone_seconds, sides.base.sums_alone_seconds))) {
    return "the sums differ, also with nothing else going on";
  }
  return "the sums alone take as long: ranks wait for one another, or hide less of them";
}

// Worse by so much must change a step that is sensitive to a layer.
constexpr double tried_change = 0.1;

Maybe<double> share_of(const Maybe<double>& seconds, double whole) {
  if (!seconds) return seconds;
  if (whole == 0) return Unknown{"the steps do not differ"};
  return *seconds / whole;
}

// How much longer the base's step takes with one layer changed.
double change(const FiguresOfSides& sides, const LayerFinding& finding, double factor) {
  return step_seconds(sides.model, finding.layer, factor) - step_seconds(sides.model);
}

bool is_sensitive(const FiguresOfSides& sides, const LayerFinding& finding) {
  if (finding.layer == Layer::communication) return sides.base.exchanges || sides.next.exchanges;
  if (change(sides, finding, 1 + tried_change) != 0) return true;
  return finding.factor && change(sides, finding, *finding.factor) != 0;
}

bool probes_agree(const FiguresOfSides& sides, const LayerFinding& finding) {
  const double limit = probes_may_differ_by;
  if (finding.layer == Layer::communication) {
    return std::abs(*finding.factor) < limit * sides.base.exposed_seconds;
  }
  return std::abs(*finding.factor - 1) < limit;
}

void judge(const FiguresOfSides& sides, const LayerFinding& finding,
           const Maybe<double>& noise_seconds, LayerShare& layer) {
  if (probes_agree(sides, finding)) {
    layer.below_noise = true;
    const std::string what = finding.beyond.empty()
                                 ? "both sides agree"
                                 : "what is left beyond " + finding.beyond + " agrees";
    layer.statement = "below the noise: " + what + " within " + plain_percent(probes_may_differ_by);
  } else if (noise_seconds && std::abs(*layer.seconds) < *noise_seconds) {
    layer.below_noise = true;
    layer.statement = "below the noise: within the interval of the difference, +-" +
                      milliseconds_text(*noise_seconds);
  } else if (finding.layer == Layer::communication) {
    layer.statement = part_of_communication(sides);
  }
}

LayerShare share_of(const FiguresOfSides& sides, const LayerFinding& finding,
                    const Maybe<double>& noise_seconds) {
  LayerShare layer;
  layer.layer = finding.layer;
  layer.seen = finding.seen;
  layer.sensitive = is_sensitive(sides, finding);
  if (!layer.sensitive) {
    layer.seconds = 0.0;
    layer.statement = "this workload is insensitive to this layer: " + finding.hidden;
  } else if (finding.factor) {
    layer.seconds = change(sides, finding, *finding.factor);
    judge(sides, finding, noise_seconds, layer);
  } else {
    layer.seconds = Unknown{finding.factor.reason};
    layer.statement = "not known: " + finding.factor.reason;
  }
  layer.share_of_step = share_of(layer.seconds, sides.base.step_seconds);
  layer.share_of_difference =
      share_of(layer.seconds, sides.next.step_seconds - sides.base.step_seconds);
  return layer;
}

// What made the difference comes before what eased it, such as the clock of a GPU that waits.
std::vector<LayerShare> layer_shares(const FiguresOfSides& sides,
                                     const Maybe<double>& noise_seconds) {
  std::vector<LayerFinding> findings =
      sides.model.cpu_computes ? where_the_cpu_computes(sides) : where_a_gpu_computes(sides);
  findings.push_back(communication(sides));
  std::vector<LayerShare> layers = transformed(findings, [&](const LayerFinding& finding) {
    return share_of(sides, finding, noise_seconds);
  });
  const double direction = sides.next.step_seconds < sides.base.step_seconds ? -1 : 1;
  std::ranges::stable_sort(layers, {}, [&](const LayerShare& layer) {
    const double part = direction * layer.seconds.value.value_or(0);
    return std::tuple(!layer.counts(), !layer.seconds, !layer.sensitive, -part);
  });
  return layers;
}

}  // namespace

double beyond(double factor, double known) {
  if ((factor > 1) != (known > 1)) return factor;
  const double rest = factor / known;
  return (rest > 1) == (known > 1) ? rest : 1;
}

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

Explanation explain(const ExplainedSide& base, const ExplainedSide& next,
                    const Maybe<double>& noise_share) {
  for (const ExplainedSide* side : {&base, &next}) {
    const std::string why_not = cannot_explain(*side);
    if (!why_not.empty()) throw std::invalid_argument("nothing can be explained: " + why_not);
  }
  const FiguresOfSides sides{figures_of(base), figures_of(next)};
  Explanation explanation;
  explanation.base_step_seconds = sides.base.step_seconds;
  explanation.new_step_seconds = sides.next.step_seconds;
  explanation.difference_seconds = sides.next.step_seconds - sides.base.step_seconds;
  explanation.noise_seconds = noise_share ? Maybe<double>(*noise_share * sides.base.step_seconds)
                                          : Maybe<double>(Unknown{noise_share.reason});
  explanation.layers = layer_shares(sides, explanation.noise_seconds);
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
