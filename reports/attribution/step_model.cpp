#include "reports/attribution/step_model.h"

#include <algorithm>
#include <cmath>

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

const ProbeTime* probe_of(const Rank& rank, const std::string& name) {
  if (!rank.probes) return nullptr;
  for (const ProbeTime& probe : rank.probes->probes) {
    if (probe.name == name) return &probe;
  }
  return nullptr;
}

Maybe<double> slowest_time(const ExplainedSide& side, const std::string& name,
                           Maybe<double> ProbeTime::*time) {
  return slowest_ranks(side, [&](const Rank& rank) -> Maybe<double> {
    const ProbeTime* probe = probe_of(rank, name);
    return probe == nullptr ? Maybe<double>(Unknown{"not measured"}) : probe->*time;
  });
}

ProbeTime slowest_probe(const ExplainedSide& side, ProbeTime probe) {
  for (const auto time :
       {&ProbeTime::median_seconds, &ProbeTime::mean_seconds, &ProbeTime::p99_seconds}) {
    const Maybe<double> slowest = slowest_time(side, probe.name, time);
    if (slowest) probe.*time = slowest;
  }
  return probe;
}

template <class ValueOf>
Maybe<double> median_of_runs(const ExplainedSide& side, const ValueOf& value_of) {
  std::vector<double> values;
  for (const Run* run : side.runs) {
    if (const Maybe<double> value = value_of(*run)) values.push_back(*value);
  }
  return median_of(values, "not measured");
}

Maybe<double> sums_alone(const Run& run) {
  if (!run.communication) return Unknown{"no gradients are exchanged"};
  return run.communication->buckets_seconds;
}

Maybe<double> exposed(const Run& run) {
  if (!run.communication) return Unknown{"no gradients are exchanged"};
  return run.communication->exposed_seconds_per_step;
}

double mean_step(const ExplainedSide& side) {
  std::vector<double> logs;
  for (const Run* run : side.runs) {
    logs.push_back(std::log(mean_step_seconds(*run->window)));
  }
  return std::exp(mean(logs));
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
  figures.exposed_seconds = median_of_runs(side, exposed).value.value_or(0);
  figures.sums_alone_seconds = median_of_runs(side, sums_alone);
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

double step_seconds(const StepModel& model, const LayerFactors& factors) {
  const double on_cpu = model.cpu_computes ? factors.clock * factors.cpu : 1;
  const double clock = model.cpu_computes ? 1 : factors.clock;
  const double device =
      on_cpu * (model.memory * factors.memory + model.compute * clock * factors.compute);
  const double queueing = model.queueing * factors.cpu * factors.launch;
  const double input = model.input * factors.input;
  return std::max({device, queueing, input}) + model.exposed + factors.communication_seconds;
}

double beyond(double factor, double known) {
  if ((factor > 1) != (known > 1)) return factor;
  const double rest = factor / known;
  return (rest > 1) == (known > 1) ? rest : 1;
}

}  // namespace nearmetal
