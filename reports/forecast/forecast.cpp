#include "reports/forecast/forecast.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <stdexcept>

#include "base/errors.h"
#include "base/text.h"
#include "reports/compare/comparison_row.h"
#include "reports/compare/work_text.h"
#include "reports/forecast/exchange_model.h"
#include "reports/forecast/growth.h"
#include "reports/forecast/measured_sizes.h"

namespace nearmetal {
namespace {

constexpr double enough_efficiency = 0.95;
constexpr std::array reached_shares = {0.7, 0.8, 0.9, 1.0};  // of a network that was given

struct Target {
  int64_t ranks = 1;
  int64_t per_host = 0;  // 0: not told
  double batch = 0;      // 0: not told
  int64_t accumulate = 1;
  bool is_asked = true;  // else a size that was measured
};

using Weighted = std::vector<std::pair<double, double>>;  // values with their weights

struct Answer {
  Weighted rates, runs;  // samples per second, of laws and of single runs
  std::vector<ForecastTerm> terms;
  double known_seconds = 0, seconds = 0;  // of a mean step
};

double median_of(const Weighted& values) { return weighted_quantiles(values, {0.5}).front(); }

Interval band_of(const Weighted& values) {
  constexpr double beyond = (1 - forecast_confidence) / 2;
  const std::vector<double> bounds = weighted_quantiles(values, {beyond, 1 - beyond});
  return {bounds.front(), bounds.back()};
}

ForecastRate rate_of(const Answer& answer) {
  return {median_of(answer.rates), band_of(answer.runs)};
}

int64_t most_per_host(const std::vector<MeasuredSize>& sizes) {
  return std::ranges::max(sizes, {}, &MeasuredSize::per_host).per_host;
}

// What a forecast of these sizes rests on: `steps`, of which `all` has more where some are held
// out.
class Forecaster {
 public:
  Forecaster(const MeasuredSizes& all, std::vector<MeasuredSize> steps,
             const ForecastRequest& request);

  Answer at(const Target& target) const;
  const std::optional<ExchangeModel>& exchange() const { return exchange_; }
  double deviation() const { return growth_->deviation(); }

 private:
  struct Means {  // of a hypothesis, beside those that Growth has
    bool slows = false;
    double reached = 1;
  };
  StepSize step_size(const Target& target) const;

  std::vector<MeasuredSize> steps_;
  double largest_batch_ = 1;
  std::vector<Means> means_;
  std::optional<ExchangeModel> exchange_;
  std::optional<Growth> growth_;
};

Target target_of(const MeasuredSize& size) {
  return {size.ranks, size.per_host, size.batch, size.accumulate, false};
}

// Where a published result ends a host is not told: at one of the measured sizes, perhaps.
std::vector<int64_t> ranks_per_host(const std::vector<MeasuredSize>& steps,
                                    const ForecastRequest& request) {
  if (request.per_host) return {*request.per_host};
  if (most_per_host(steps) > 0) return {most_per_host(steps)};
  std::set<int64_t> ranks;
  for (const MeasuredSize& size : steps) ranks.insert(size.ranks);
  if (ranks.size() > 1) ranks.erase(*ranks.rbegin());
  return {ranks.begin(), ranks.end()};
}

Forecaster::Forecaster(const MeasuredSizes& all, std::vector<MeasuredSize> steps,
                       const ForecastRequest& request)
    : steps_(std::move(steps)) {
  if (all.same_batch && std::ranges::any_of(all.sizes, has_sums)) {
    exchange_.emplace(steps_, all.sizes, request, most_per_host(all.sizes));
  }
  largest_batch_ = std::max(1e-9, std::ranges::max(all.sizes, {}, &MeasuredSize::batch).batch);
  std::vector<Hypothesis> hypotheses;
  for (const int64_t per_host : ranks_per_host(steps_, request)) {
    for (const bool slows : {false, true}) {
      for (const double reached : reached_shares) {
        if (slows && (exchange_ ? exchange_->slowing() == 0 : all.same_batch)) continue;
        if (reached < 1 && !request.network) continue;
        Hypothesis hypothesis{.per_host = per_host, .with_work = slows && !exchange_};
        for (const MeasuredSize& size : steps_) {
          hypothesis.known_seconds.push_back(
              exchange_ ? exchange_->measured_parts(size, slows).seconds() : 0);
        }
        hypotheses.push_back(std::move(hypothesis));
        means_.push_back({slows, reached});
      }
    }
  }
  std::vector<StepPoint> points;
  for (const MeasuredSize& size : steps_) {
    points.push_back({step_size(target_of(size)), size.step_seconds()});
  }
  growth_.emplace(std::move(points), std::move(hypotheses), all.deviation);
}

StepSize Forecaster::step_size(const Target& target) const {
  return {target.ranks, target.per_host, target.batch > 0 ? target.batch / largest_batch_ : 1,
          static_cast<double>(target.accumulate)};
}

void add_term(std::vector<ForecastTerm>& terms, const std::string& name, double seconds) {
  if (seconds != 0) terms.push_back({name, seconds});
}

Answer Forecaster::at(const Target& target) const {
  std::vector<ExchangeParts> parts(means_.size());
  for (size_t i = 0; exchange_ && i < means_.size(); ++i) {
    const bool as_before = i > 0 && means_[i].slows == means_[i - 1].slows &&
                           !(target.is_asked && exchange_->crosses_hosts(target.ranks));
    parts[i] = as_before ? parts[i - 1]
               : target.is_asked
                   ? exchange_->asked_parts(target.ranks, means_[i].slows, means_[i].reached)
                   : exchange_->measured_parts({.ranks = target.ranks, .per_host = target.per_host},
                                               means_[i].slows);
  }
  const double samples =
      (target.batch > 0 ? target.batch : 1) * static_cast<double>(target.ranks * target.accumulate);
  Answer answer;
  Possibility mean{};
  ExchangeParts exchange;
  double weights = 0;
  const auto possibilities = growth_->at(step_size(target));
  for (const Possibility& one : possibilities) {
    const double seconds = one.seconds() + parts[one.hypothesis].seconds();
    answer.rates.emplace_back(samples / seconds, one.weight);
    answer.runs.emplace_back(samples / seconds / one.noise, one.weight);
  }
  // The parts of the fifth around the median, as a few possibilities may take many times as long.
  const std::vector<double> middle = weighted_quantiles(answer.rates, {0.4, 0.6});
  const auto is_middle = [&](size_t i) {
    return answer.rates[i].first >= middle.front() && answer.rates[i].first <= middle.back();
  };
  for (size_t i = 0; i < possibilities.size(); ++i) {
    if (is_middle(i)) weights += possibilities[i].weight;
  }
  for (size_t i = 0; i < possibilities.size(); ++i) {
    if (!is_middle(i)) continue;
    const Possibility& one = possibilities[i];
    const ExchangeParts& known = parts[one.hypothesis];
    const double weight = one.weight / weights;
    mean.compute += weight * one.compute;
    mean.fixed += weight * one.fixed;
    mean.inside += weight * one.inside;
    mean.between += weight * one.between;
    exchange.waiting += weight * known.waiting;
    exchange.bytes += weight * known.bytes;
    exchange.latency += weight * known.latency;
    exchange.slowing += weight * known.slowing;
  }
  add_term(answer.terms, "computation", mean.compute);
  add_term(answer.terms, "fixed cost of a micro-batch", mean.fixed);
  add_term(answer.terms, "waiting for the slowest rank", exchange.waiting);
  add_term(answer.terms, "bytes of sums", exchange.bytes);
  add_term(answer.terms, "latency of sums", exchange.latency);
  add_term(answer.terms, "computation beside sums", exchange.slowing);
  const char* const rest = exchange_ ? "other cost of " : "cost of ";
  if (target.per_host == 0) {
    add_term(answer.terms, std::string(rest) + "several ranks", mean.inside + mean.between);
  } else {
    add_term(answer.terms, std::string(rest) + "several ranks of a host", mean.inside);
    add_term(answer.terms, std::string(rest) + "several hosts", mean.between);
  }
  answer.known_seconds = exchange.seconds();
  answer.seconds = mean.seconds() + answer.known_seconds;
  return answer;
}

std::vector<HoldOut> held_out(const MeasuredSizes& found, const ForecastRequest& request) {
  const int64_t most = found.sizes.back().ranks;
  std::vector<MeasuredSize> steps = found.sizes;
  std::erase_if(steps, [&](const MeasuredSize& size) { return size.ranks == most; });
  const Forecaster forecaster(
      found, steps,
      {.per_host = most_per_host(found.sizes) > 0 ? std::nullopt : request.per_host,
       .ready = request.ready});
  std::vector<HoldOut> hold_outs;
  for (const MeasuredSize& size : found.sizes) {
    if (size.ranks < most) continue;
    Target target = target_of(size);
    if (target.per_host == 0) target.per_host = request.per_host.value_or(0);
    const ForecastRate rate = rate_of(forecaster.at(target));
    hold_outs.push_back(
        {.arm = size.arm->name,
         .ranks = size.ranks,
         .measured = size.throughput,
         .forecast = rate,
         .error = rate.median / size.throughput - 1,
         .in_band = rate.band.lower <= size.throughput && size.throughput <= rate.band.upper});
  }
  return hold_outs;
}

void refuse(const std::string& why) { throw std::invalid_argument(why); }

// Options that throughput alone cannot answer.
void check_options(const MeasuredSizes& found, const ForecastRequest& request, bool has_exchange) {
  const MeasuredSize& largest = found.sizes.back();
  if (!has_exchange && request.network) {
    refuse("--network needs the times of sums, and these results have throughput alone");
  }
  if (!has_exchange && request.gradient_type) {
    refuse("--gradient-type needs the times of sums, and these results have throughput alone");
  }
  if (request.accumulate && !found.tells_accumulate) {
    refuse("--accumulate: these results do not tell how many micro-batches their steps have");
  }
  if (!request.batch || (!found.same_batch && largest.batch > 0)) return;
  if (largest.batch != static_cast<double>(*request.batch)) {
    refuse("--batch " + std::to_string(*request.batch) + ": " +
           (largest.batch > 0 ? "all sizes have batch " + shortest(largest.batch, 10)
                              : "these results do not tell their batch"));
  }
}

void check_ranks(int64_t ranks, int64_t per_host, bool is_given, const ExchangeModel& exchange) {
  if (ranks <= per_host || exchange.knows_network()) return;
  refuse("--gpus " + std::to_string(ranks) + " needs several hosts of " + std::to_string(per_host) +
         ", between which nothing was summed: give --network, such as 400G,3us" +
         (is_given ? "" : ", or --per-host where one host has more"));
}

std::vector<std::string> assumptions_of(const MeasuredSizes& found, const Forecaster& forecaster) {
  std::vector<std::string> texts;
  if (forecaster.exchange()) {
    texts = forecaster.exchange()->assumptions();
  } else {
    texts.emplace_back(
        "throughput alone is known, of no sums: what several ranks cost grows by a mean of laws "
        "(there once ranks exchange, as bytes of a ring, by rounds of a tree), each weighed by how "
        "well it fits, so that the band is wide");
  }
  texts.push_back("a run is " + percent(forecaster.deviation(), 2) + " off (standard deviation), " +
                  (found.deviation_is_known ? "as repeated runs are, or more where no law fits"
                                            : "as published runs usually are, or as no law fits"));
  if (found.sizes.front().batch == 0) {
    texts.emplace_back("the batch is not told: seconds are those of a sample of each rank");
  }
  return texts;
}

std::map<std::string, std::string> work_of(const MeasuredSizes& found,
                                           const ForecastRequest& request) {
  std::map<std::string, std::string> work;
  for (const KeyField& field : found.sizes.front().runs.front()->key) {
    const bool varies = !found.same_batch && (field.name == "batch" || follows_batch(field.name));
    if (field.severity == Severity::layout || field.may_be_unknown || varies) continue;
    work[field.name] = field.value;
  }
  if (request.accumulate) work["accumulate"] = std::to_string(*request.accumulate);
  if (work["accumulate"] == "1" || !found.same_batch || work["accumulate"].empty()) {
    work.erase("accumulate");
  }
  return work;
}

// A side: its sizes, and a forecaster of all of them.
struct Side {
  MeasuredSizes found;
  ForecastRequest request;
  int64_t per_host = 0;
  Forecaster forecaster;

  Side(const RunSet& set, const ForecastRequest& asked)
      : found(measured_sizes(set, asked.batch)),
        request(asked),
        per_host(asked.per_host.value_or(most_per_host(found.sizes))),
        forecaster(found, found.sizes, asked) {}

  bool can_reach(int64_t ranks) const {
    return !forecaster.exchange() || ranks <= per_host || forecaster.exchange()->knows_network();
  }
  Target target(int64_t ranks) const {
    const MeasuredSize& largest = found.sizes.back();
    const double batch = request.batch ? static_cast<double>(*request.batch) : largest.batch;
    return {ranks, per_host, batch, request.accumulate.value_or(largest.accumulate)};
  }
};

ForecastPoint point_of(const Side& side, int64_t ranks) {
  const Target target = side.target(ranks);
  const Answer answer = side.forecaster.at(target);
  const MeasuredSize& fewest = side.found.sizes.front();
  ForecastPoint point{.ranks = ranks,
                      .accumulate = target.accumulate,
                      .sample = fewest.runs.front()->run.sample,
                      .rate = rate_of(answer),
                      .terms = answer.terms};
  if (side.per_host > 0) point.hosts = (ranks + side.per_host - 1) / side.per_host;
  if (target.batch > 0) point.batch = target.batch;
  const double of_fewest = fewest.throughput / static_cast<double>(fewest.ranks);
  point.efficiency = point.rate.median / static_cast<double>(ranks) / of_fewest;
  const ForecastTerm* dominant = nullptr;
  for (const ForecastTerm& term : point.terms) {
    if (term.name == "computation") continue;
    if (dominant == nullptr || term.seconds > dominant->seconds) dominant = &term;
  }
  if (dominant != nullptr) point.dominant = dominant->name;
  const auto& exchange = side.forecaster.exchange();
  if (!exchange || ranks == 1) return point;
  // What may be spent on the sums beside all else.
  const double samples = target.batch * static_cast<double>(target.accumulate);
  const double left =
      samples / (enough_efficiency * of_fewest) - (answer.seconds - answer.known_seconds);
  point.enough_bits_per_second = exchange->enough_bits_per_second(ranks, left);
  point.enough_latency_seconds = exchange->enough_latency_seconds(ranks, left);
  return point;
}

// Of independent sides, by equal shares of each.
ForecastLoss loss_of(const Answer& bare, const Answer& vm) {
  constexpr int parts = 60;
  std::vector<double> shares;
  for (int i = 0; i < parts; ++i) shares.push_back((i + 0.5) / parts);
  const auto losses = [&](const Weighted& of_bare, const Weighted& of_vm) {
    Weighted found;
    const std::vector<double> vms = weighted_quantiles(of_vm, shares);
    for (const double of_one : weighted_quantiles(of_bare, shares)) {
      for (const double other : vms) found.emplace_back(1 - other / of_one, 1);
    }
    return found;
  };
  return {median_of(losses(bare.rates, vm.rates)), band_of(losses(bare.runs, vm.runs))};
}

Forecast forecast_of(const Side& side) {
  Forecast forecast;
  forecast.basis.has_exchange = side.forecaster.exchange().has_value();
  check_options(side.found, side.request, forecast.basis.has_exchange);
  for (const MeasuredSize& size : side.found.sizes) add_new(forecast.basis.arms, size.arm->name);
  forecast.basis.hold_outs = held_out(side.found, side.request);
  forecast.basis.assumptions = assumptions_of(side.found, side.forecaster);
  forecast.basis.work = work_of(side.found, side.request);
  for (const int64_t ranks : side.request.ranks) {
    if (const auto& exchange = side.forecaster.exchange()) {
      check_ranks(ranks, side.per_host, side.request.per_host.has_value(), *exchange);
    }
    forecast.points.push_back(point_of(side, ranks));
  }
  return forecast;
}

}  // namespace

Forecast forecast_of(const RunSet& set, const ForecastRequest& request) {
  return forecast_of(Side(set, request));
}

ForecastPair forecast_pair(const RunSet& bare, const RunSet& vm, const ForecastRequest& request) {
  const Side bare_side(bare, request), vm_side(vm, request);
  ForecastPair pair{.bare = forecast_of(bare_side), .vm = forecast_of(vm_side)};
  pair.bare.basis.side = "bare metal";
  pair.vm.basis.side = "VM";
  const auto loss_at = [&](int64_t ranks) {
    return loss_of(bare_side.forecaster.at(bare_side.target(ranks)),
                   vm_side.forecaster.at(vm_side.target(ranks)));
  };
  for (ForecastPoint& point : pair.vm.points) point.loss = loss_at(point.ranks);
  constexpr int64_t most = 4096;
  for (int64_t ranks = 1; ranks <= most && !pair.first_large_loss; ranks *= 2) {
    if (!bare_side.can_reach(ranks) || !vm_side.can_reach(ranks)) break;
    const ForecastLoss loss = loss_at(ranks);
    if (loss.median >= large_loss) pair.first_large_loss = {ranks, loss};
  }
  return pair;
}

Report predicted_report(const std::vector<Forecast>& forecasts) {
  Report report;
  report.kind = Kind::predicted;
  for (const Forecast& forecast : forecasts) {
    for (ForecastPoint point : forecast.points) {
      point.basis = std::ssize(report.forecasts);
      Arm& arm = report.arms.emplace_back();
      arm.kind = Kind::predicted;
      const std::string& side = forecast.basis.side;
      arm.name = counted(point.ranks, "rank") + (side.empty() ? "" : ", " + side);
      arm.forecast = std::move(point);
    }
    report.forecasts.push_back(forecast.basis);
  }
  return report;
}

std::vector<ForecastCheck> check_forecast(const Report& predicted, const RunSet& measured,
                                          const std::vector<std::string>& allow_differ) {
  std::vector<ForecastCheck> checks;
  std::vector<std::string> differences;
  for (const RunArm& arm : measured.arms) {
    const SomeRuns runs = runs_where(arm, has_throughput);
    for (const Arm& of_report : predicted.arms) {
      const ForecastPoint& point = *of_report.forecast;
      if (runs.empty() || runs.front()->run.world_size != point.ranks) continue;
      const auto& work = predicted.forecasts[point.basis].work;
      bool agrees = true;
      for (const auto& [name, value] : work) {
        const bool allowed = std::ranges::any_of(
            allow_differ, [&](const std::string& given) { return covers(given, name); });
        const std::string found = value_in(runs.front()->key, name, "none");
        if (allowed || found == value) continue;
        agrees = false;
        add_new(differences, name + ": " + value + " | " + found);
      }
      if (!agrees) continue;
      const double throughput = mean_of(throughput_sessions(arm));
      checks.push_back(
          {arm.name, &point, throughput, point.rate.median / throughput - 1,
           point.rate.band.lower <= throughput && throughput <= point.rate.band.upper});
    }
  }
  if (!checks.empty()) return checks;
  throw NotComparable("no size of the forecast was measured" +
                      (differences.empty()
                           ? std::string(" with so many ranks")
                           : " doing the same work (forecast | measured): " + joined(differences)));
}

}  // namespace nearmetal
