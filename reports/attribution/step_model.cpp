#include "reports/attribution/step_model.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "reports/document/metric.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

// A host that keeps the device waiting leaves nothing else of a step.
constexpr double fills_the_step = 0.9;

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

Maybe<double> slowest_time(const ExplainedSide& side, const std::string& name,
                           Maybe<double> ProbeTime::*time) {
  return slowest_ranks(side, [&](const Rank& rank) -> Maybe<double> {
    if (!rank.probes) return Unknown{"not measured"};
    const auto found = std::ranges::find(rank.probes->probes, name, &ProbeTime::name);
    return found == rank.probes->probes.end() ? Maybe<double>(Unknown{"not measured"})
                                              : (*found).*time;
  });
}

ProbeTime slowest_probe(const ExplainedSide& side, ProbeTime probe) {
  for (const auto time :
       {&ProbeTime::median_seconds, &ProbeTime::mean_seconds, &ProbeTime::p99_seconds}) {
    if (const auto slowest = slowest_time(side, probe.name, time)) probe.*time = slowest;
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

double mean_step(const ExplainedSide& side) {
  std::vector<double> seconds;
  for (const Run* run : side.runs) seconds.push_back(mean_step_seconds(*run->window));
  return geometric_mean(seconds);
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

Maybe<double> rate_of(const SideFigures& side, const std::string& name, double ProbeTime::*amount) {
  const ProbeTime* probe = side.first_of(name);
  if (probe == nullptr) return Unknown{"not probed"};
  if (!probe->median_seconds) return probe->median_seconds;
  const double rate = probe->*amount / *probe->median_seconds;
  return std::isfinite(rate) ? Maybe<double>(rate) : Unknown{"the values make no sense"};
}

// The probes of two sides.
class Probes {
 public:
  Probes(const SideFigures& base, const SideFigures& next) : base_(base), next_(next) {}

  Maybe<double> median_ratio(const std::string& name) const {
    return ratio(next_.seconds(name), base_.seconds(name));
  }
  // The ratio of all that the CPUs do, by what they take away and by their clock.
  Maybe<double> cpu_ratio() const {
    return ratio(next_.seconds(quantum_probe, &ProbeTime::mean_seconds),
                 base_.seconds(quantum_probe, &ProbeTime::mean_seconds));
  }
  // The ratio for the same samples, each side by its own way.
  Maybe<double> input_ratio() const {
    return ratio(rate_of(base_, base_.input_copy(), &ProbeTime::bytes),
                 rate_of(next_, next_.input_copy(), &ProbeTime::bytes));
  }
  Maybe<double> sm_cycle_ratio() const { return ratio(base_.sm_hertz, next_.sm_hertz); }
  // A factor of what only the floors tell apart.
  Maybe<double> if_split(const Maybe<double>& factor) const {
    if (!base_.needs.memory_seconds) return base_.needs.memory_seconds;
    return base_.needs.compute_seconds ? factor : base_.needs.compute_seconds;
  }

  SeenProbe bytes(const std::string& name) const {
    return {name, ProbeUnit::bytes_per_second, rate_of(base_, name, &ProbeTime::bytes),
            rate_of(next_, name, &ProbeTime::bytes)};
  }
  SeenProbe seconds(const std::string& name) const {
    return {name, ProbeUnit::seconds, base_.seconds(name), next_.seconds(name)};
  }
  SeenProbe sm_clock() const {
    return {"sm_clock_hertz", ProbeUnit::hertz, base_.sm_hertz, next_.sm_hertz};
  }
  SeenProbe product() const {
    const ProbeTime* probe = base_.first_of("product/");
    return {probe == nullptr ? "product" : probe->name, ProbeUnit::flops_per_second,
            rate_of(base_, "product/", &ProbeTime::flops),
            rate_of(next_, "product/", &ProbeTime::flops)};
  }
  std::vector<SeenProbe> cpu() const {
    const std::string name = quantum_probe;
    return {{name + " mean", ProbeUnit::seconds, base_.seconds(name, &ProbeTime::mean_seconds),
             next_.seconds(name, &ProbeTime::mean_seconds)},
            {name + " p99", ProbeUnit::seconds, base_.seconds(name, &ProbeTime::p99_seconds),
             next_.seconds(name, &ProbeTime::p99_seconds)},
            {"cpu_steal_share", ProbeUnit::share, base_.steal_share, next_.steal_share}};
  }
  std::vector<SeenProbe> communication() const {
    return {
        {"exposed communication", ProbeUnit::seconds, base_.exposed_seconds, next_.exposed_seconds},
        {"sums alone", ProbeUnit::seconds, base_.sums_alone_seconds, next_.sums_alone_seconds},
        bytes("p2p/")};
  }

 private:
  const SideFigures& base_;
  const SideFigures& next_;
};

LayerFinding communication(const Probes& probes, const SideFigures& base, const SideFigures& next) {
  if (!base.exchanges && !next.exchanges) {
    return {Layer::communication, 0.0, {}, "no gradients are exchanged"};
  }
  return {Layer::communication, next.exposed_seconds - base.exposed_seconds,
          probes.communication()};
}

std::vector<LayerFinding> where_the_cpu_computes(const Probes& probes, const UnitWords& words) {
  const Maybe<double> clock = probes.median_ratio(quantum_probe);
  const Maybe<double> host = probes.cpu_ratio();
  const auto rest = [&](const std::string& name) {
    return probes.if_split(beyond_known(probes.median_ratio(name), host));
  };
  const Unknown none{"the CPU computes"};
  return {{Layer::clock, clock, {probes.seconds(quantum_probe)}},
          {Layer::compute,
           rest("product/"),
           {probes.product()},
           "nothing of it is bound by its operations",
           "clock and cpu"},
          {Layer::memory,
           rest(memory_probe),
           {probes.bytes(memory_probe)},
           "nothing of it is bound by its bytes",
           "clock and cpu"},
          {Layer::cpu, ratio(host, clock), probes.cpu(), "", "clock"},
          {Layer::launch, none, {}, "the CPU itself computes"},
          {Layer::input, none, {}, std::string(words.plural) + " are where the CPU computes"}};
}

std::vector<LayerFinding> where_a_gpu_computes(const Probes& probes, const StepModel& model,
                                               const SideFigures& base) {
  const std::string samples = words_of(base.sample).plural;
  const Maybe<double> clock = probes.if_split(probes.sm_cycle_ratio());
  const Maybe<double> host = probes.cpu_ratio();
  const std::string queueing = std::string("queueing a step (") + to_string(base.needs.launch) +
                               ") takes the host " + milliseconds_text(model.queueing) +
                               ", hidden behind the rest of the step";
  const std::string copying = base.needs.input_bytes == 0
                                  ? samples + " stay on the device (--input host copies them)"
                                  : "copying the " + samples + " takes " +
                                        milliseconds_text(model.input) +
                                        ", hidden behind the rest of the step";
  const std::string device = "the step waits for the host, or no kernel is bound by it";
  return {{Layer::clock, clock, {probes.sm_clock()}, device},
          {Layer::compute,
           probes.if_split(beyond_known(probes.median_ratio("product/"), clock)),
           {probes.product()},
           device,
           "clock"},
          {Layer::memory,
           probes.if_split(probes.median_ratio(memory_probe)),
           {probes.bytes(memory_probe)},
           device},
          {Layer::cpu, host, probes.cpu(), queueing},
          {Layer::launch,
           beyond_known(probes.median_ratio(queue_probe), host),
           {probes.seconds(queue_probe), probes.seconds("launch/kernel"),
            probes.seconds("launch/graph")},
           queueing,
           "cpu"},
          {Layer::input,
           probes.input_ratio(),
           {probes.bytes(input_probe), probes.bytes(pageable_probe)},
           copying}};
}

}  // namespace

Maybe<double> SideFigures::seconds(const std::string& name, Maybe<double> ProbeTime::*which) const {
  const ProbeTime* probe = first_of(name);
  return probe == nullptr ? Maybe<double>(Unknown{"not probed"}) : probe->*which;
}

const ProbeTime* SideFigures::first_of(const std::string& prefix) const {
  for (const ProbeTime& probe : probes) {
    if (probe.name.starts_with(prefix)) return &probe;
  }
  return nullptr;
}

SideFigures figures_of(const ExplainedSide& side) {
  const Run& first = *side.runs.front();
  const RankProbes& probed = *first.ranks.front().probes;
  SideFigures figures;
  figures.device = first.device;
  figures.sample = first.sample;
  figures.step_seconds = mean_step(side);
  figures.exchanges = first.communication.has_value();
  figures.exposed_seconds =
      median_of_exchanges(side, &Communication::exposed_seconds_per_step).value.value_or(0);
  figures.sums_alone_seconds = median_of_exchanges(side, &Communication::buckets_seconds);
  figures.needs = probed.needs;
  for (const auto part : {&StepNeeds::memory_seconds, &StepNeeds::compute_seconds}) {
    figures.needs.*part = slowest_ranks(side, [&](const Rank& rank) -> Maybe<double> {
      if (!rank.probes) return Unknown{"not probed"};
      return rank.probes->needs.*part;
    });
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

double step_seconds(const StepModel& model, Layer changed, double factor) {
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

double beyond(double factor, double known) {
  if ((factor > 1) != (known > 1)) return factor;
  const double rest = factor / known;
  return (rest > 1) == (known > 1) ? rest : 1;
}

std::string milliseconds_text(double seconds) { return significant(1e3 * seconds, 3) + " ms"; }

std::vector<LayerFinding> layer_findings(const SideFigures& base, const SideFigures& next,
                                         const StepModel& model) {
  const Probes probes(base, next);
  std::vector<LayerFinding> findings = model.cpu_computes
                                           ? where_the_cpu_computes(probes, words_of(base.sample))
                                           : where_a_gpu_computes(probes, model, base);
  findings.push_back(communication(probes, base, next));
  return findings;
}

std::string part_of_communication(const SideFigures& base, const SideFigures& next) {
  const auto differs = [](const Maybe<double>& factor) {
    return factor && std::abs(*factor - 1) >= probes_may_differ_by;
  };
  if (differs(ratio(next.seconds("p2p/"), base.seconds("p2p/")))) {
    return "the links between GPUs differ";
  }
  if (differs(ratio(next.sums_alone_seconds, base.sums_alone_seconds))) {
    return "the sums differ, also with nothing else going on";
  }
  return "the sums alone take as long: ranks wait for one another, or hide less of them";
}

}  // namespace nearmetal
