#include <cmath>

#include "reports/attribution/step_model.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

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

LayerFinding finding(Layer layer, double LayerFactors::*factor_of, const Maybe<double>& factor,
                     const std::vector<SeenProbe>& seen, const std::string& hidden = "",
                     const std::string& beyond = "") {
  return {layer, factor_of, factor, seen, hidden, beyond};
}

LayerFinding communication(const Probes& probes, const SideFigures& base, const SideFigures& next) {
  const auto factor = &LayerFactors::communication_seconds;
  if (!base.exchanges && !next.exchanges) {
    return finding(Layer::communication, factor, 0.0, {}, "no gradients are exchanged");
  }
  return finding(Layer::communication, factor, next.exposed_seconds - base.exposed_seconds,
                 probes.communication());
}

std::vector<LayerFinding> where_the_cpu_computes(const Probes& probes, const UnitWords& words) {
  const Maybe<double> clock = probes.median_ratio(quantum_probe);
  const Maybe<double> host = probes.cpu_ratio();
  const auto rest = [&](const std::string& name) {
    return probes.if_split(beyond_known(probes.median_ratio(name), host));
  };
  const Unknown none{"the CPU computes"};
  return {
      finding(Layer::clock, &LayerFactors::clock, clock, {probes.seconds(quantum_probe)}),
      finding(Layer::compute, &LayerFactors::compute, rest("product/"), {probes.product()},
              "nothing of it is bound by its operations", "clock and cpu"),
      finding(Layer::memory, &LayerFactors::memory, rest(memory_probe),
              {probes.bytes(memory_probe)}, "nothing of it is bound by its bytes", "clock and cpu"),
      finding(Layer::cpu, &LayerFactors::cpu, ratio(host, clock), probes.cpu(), "", "clock"),
      finding(Layer::launch, &LayerFactors::launch, none, {}, "the CPU itself computes"),
      finding(Layer::input, &LayerFactors::input, none, {},
              std::string(words.plural) + " are where the CPU computes")};
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
  return {finding(Layer::clock, &LayerFactors::clock, clock, {probes.sm_clock()}, device),
          finding(Layer::compute, &LayerFactors::compute,
                  probes.if_split(beyond_known(probes.median_ratio("product/"), clock)),
                  {probes.product()}, device, "clock"),
          finding(Layer::memory, &LayerFactors::memory,
                  probes.if_split(probes.median_ratio(memory_probe)), {probes.bytes(memory_probe)},
                  device),
          finding(Layer::cpu, &LayerFactors::cpu, host, probes.cpu(), queueing),
          finding(Layer::launch, &LayerFactors::launch,
                  beyond_known(probes.median_ratio(queue_probe), host),
                  {probes.seconds(queue_probe), probes.seconds("launch/kernel"),
                   probes.seconds("launch/graph")},
                  queueing, "cpu"),
          finding(Layer::input, &LayerFactors::input, probes.input_ratio(),
                  {probes.bytes(input_probe), probes.bytes(pageable_probe)}, copying)};
}

}  // namespace

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
