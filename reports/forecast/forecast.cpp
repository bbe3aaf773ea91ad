#include "reports/forecast/forecast.h"

#include <algorithm>
#include <array>
#include <set>
#include <stdexcept>

#include "base/errors.h"
#include "base/text.h"
#include "reports/compare/comparison_row.h"
#include "reports/compare/work_text.h"
#include "reports/forecast/exchange_model.h"
#include "reports/forecast/growth.h"

namespace nearmetal {
namespace {

constexpr double confidence = 0.9;  // of the bands
constexpr double enough_efficiency = 0.95, large_loss = 0.05;
constexpr double usual_cost = 0.07, usual_rest = 0.03;  // of several ranks; beside known sums
constexpr int64_t most_ranks_of_loss = 4096;
constexpr std::array reached_shares = {1.0, 0.9, 0.8, 0.7};  // of a network that was given
// Those of StepParts, then of ExchangeParts.
constexpr std::array term_names = {
    "computation",     "fixed cost of a micro-batch",  "several ranks of a host",
    "several hosts",   "waiting for the slowest rank", "bytes of sums",
    "latency of sums", "computation beside sums"};

double sum_of(const auto& parts) {
  double sum = 0;
  for (const double part : parts) sum += part;
  return sum;
}

Interval band_of(const Weighted& values) {
  constexpr double beyond = (1 - confidence) / 2;
  const std::vector<double> bounds = weighted_quantiles(values, {beyond, 1 - beyond});
  return {bounds.front(), bounds.back()};
}

struct Target {
  int64_t ranks = 1;
  int64_t per_host = 0;  // 0: not told
  double batch = 0;      // 0: not told
  int64_t accumulate = 1;
  bool is_asked = true;  // else a size that was measured
};

struct Outcome {
  Weighted rates, runs;  // samples per second: of possibilities, and of runs, which have noise
  std::array<double, term_names.size()> terms{};  // of the fifth of possibilities in the middle

  ForecastValue rate() const { return {weighted_quantiles(rates, {0.5}).front(), band_of(runs)}; }
};

int64_t most_per_host(const std::vector<MeasuredSize>& sizes) {
  return std::ranges::max(sizes, {}, &MeasuredSize::per_host).per_host;
}

// A forecast by `steps`; of `all` sizes there are more where some are held out.
class Forecaster {
 public:
  Forecaster(const MeasuredSizes& all, std::vector<MeasuredSize> steps,
             const ForecastRequest& request);

  Outcome at(const Target& target) const;
  Target target(int64_t ranks) const;
  ForecastPoint point(int64_t ranks) const;
  bool can_reach(int64_t ranks) const { return !exchange_ || exchange_->can_sum(ranks); }
  bool has_exchange() const { return exchange_.has_value(); }
  int64_t per_host() const { return per_host_; }
  std::vector<std::string> assumptions() const;

 private:
  struct Means {  // of a hypothesis, beside those that Growth has
    bool slows = false;
    double reached = 1;
  };
  StepSize step_size(const Target& target) const;
  std::vector<int64_t> hosts_end_at() const;

  std::vector<MeasuredSize> steps_;
  ForecastRequest request_;
  int64_t per_host_ = 0;  // 0: not told
  double largest_batch_ = 0;
  std::vector<Means> means_;
  std::optional<ExchangeModel> exchange_;
  std::optional<Growth> growth_;
};

Target target_of(const MeasuredSize& size) {
  return {size.ranks, size.per_host, size.batch, size.accumulate, false};
}

// Published results do not tell it: at one of the measured sizes, perhaps, but not at the largest.
std::vector<int64_t> Forecaster::hosts_end_at() const {
  if (per_host_ > 0) return {per_host_};
  std::set<int64_t> ranks;
  for (const MeasuredSize& size : steps_) ranks.insert(size.ranks);
  if (ranks.size() > 1) ranks.erase(*ranks.rbegin());
  return {ranks.begin(), ranks.end()};
}

Forecaster::Forecaster(const MeasuredSizes& all, std::vector<MeasuredSize> steps,
                       const ForecastRequest& request)
    : steps_(std::move(steps)),
      request_(request),
      per_host_(request.per_host.value_or(most_per_host(all.sizes))),
      largest_batch_(std::ranges::max(all.sizes, {}, &MeasuredSize::batch).batch) {
  if (all.same_batch && std::ranges::any_of(all.sizes, has_sums)) {
    exchange_.emplace(steps_, all.sizes, request, most_per_host(all.sizes));
  }
  std::vector<Hypothesis> hypotheses;
  for (const int64_t per_host : hosts_end_at()) {
    for (const bool slows : {false, true}) {
      if (slows && (exchange_ ? exchange_->slowing() == 0 : all.same_batch)) continue;
      Hypothesis hypothesis{.per_host = per_host, .with_work = slows && !exchange_};
      for (const MeasuredSize& size : steps_) {
        if (!exchange_) break;
        hypothesis.known_seconds.push_back(
            sum_of(exchange_->measured_parts(size.ranks, size.per_host, slows)));
      }
      for (const double reached : reached_shares) {
        if (reached < 1 && !request.network) continue;
        hypotheses.push_back(hypothesis);
        means_.push_back({slows, reached});
      }
    }
  }
  std::vector<StepPoint> points;
  for (const MeasuredSize& size : steps_) {
    points.push_back({step_size(target_of(size)), size.step_seconds()});
  }
  growth_.emplace(std::move(points), std::move(hypotheses), all.deviation,
                  exchange_ ? usual_rest : usual_cost);
}

StepSize Forecaster::step_size(const Target& target) const {
  return {target.ranks, target.per_host, target.batch > 0 ? target.batch / largest_batch_ : 1,
          static_cast<double>(target.accumulate)};
}

Target Forecaster::target(int64_t ranks) const {
  const MeasuredSize& largest = steps_.back();
  const auto batch = request_.batch ? static_cast<double>(*request_.batch) : largest.batch;
  return {ranks, per_host_, batch, request_.accumulate.value_or(largest.accumulate)};
}

Outcome Forecaster::at(const Target& target) const {
  std::vector<ExchangeParts> parts(means_.size());
  for (size_t i = 0; exchange_ && i < means_.size(); ++i) {
    const auto& [slows, reached] = means_[i];
    const bool is_new = reached == 1 || exchange_->crosses_hosts(target.ranks);
    parts[i] = !is_new           ? parts[i - 1]
               : target.is_asked ? exchange_->asked_parts(target.ranks, slows, reached)
                                 : exchange_->measured_parts(target.ranks, target.per_host, slows);
  }
  const double samples =
      (target.batch > 0 ? target.batch : 1) * static_cast<double>(target.ranks * target.accumulate);
  const std::vector<Possibility> possibilities = growth_->at(step_size(target));
  Outcome answer;
  for (const Possibility& one : possibilities) {
    const double seconds = sum_of(one.seconds) + sum_of(parts[one.hypothesis]);
    answer.rates.emplace_back(samples / seconds, one.weight);
    answer.runs.emplace_back(samples / seconds / one.noise, one.weight);
  }
  // Not the mean of all, as a few possibilities may take many times as long.
  const std::vector<double> middle = weighted_quantiles(answer.rates, {0.4, 0.6});
  double weights = 0;
  for (size_t i = 0; i < possibilities.size(); ++i) {
    const auto& [weight, hypothesis, noise, seconds] = possibilities[i];
    if (answer.rates[i].first < middle.front() || answer.rates[i].first > middle.back()) continue;
    weights += weight;
    for (size_t k = 0; k < seconds.size(); ++k) {
      answer.terms[k] += weight * seconds[k];
      answer.terms[seconds.size() + k] += weight * parts[hypothesis][k];
    }
  }
  for (double& term : answer.terms) term /= weights;
  return answer;
}

ForecastPoint Forecaster::point(int64_t ranks) const {
  if (!can_reach(ranks)) {
    throw std::invalid_argument(
        "--gpus " + std::to_string(ranks) + " needs several hosts of " + std::to_string(per_host_) +
        ", between which nothing was summed: give --network, such as 400G,3us" +
        (request_.per_host ? "" : ", or --per-host where one host has more"));
  }
  const Target target = this->target(ranks);
  const Outcome answer = at(target);
  const MeasuredSize& fewest = steps_.front();
  const double of_fewest = fewest.throughput / static_cast<double>(fewest.ranks);
  ForecastPoint point{.ranks = ranks,
                      .accumulate = target.accumulate,
                      .sample = fewest.runs.front()->run.sample,
                      .rate = answer.rate()};
  if (per_host_ > 0) point.hosts = (ranks + per_host_ - 1) / per_host_;
  if (target.batch > 0) point.batch = target.batch;
  point.efficiency = point.rate.median / static_cast<double>(ranks) / of_fewest;
  double largest = 0;
  for (size_t k = 0; k < term_names.size(); ++k) {
    if (answer.terms[k] != 0) point.terms.push_back({term_names[k], answer.terms[k]});
    if (k == 0 || answer.terms[k] <= largest) continue;
    largest = answer.terms[k];
    point.dominant = term_names[k];
  }
  point.enough_bits_per_second = point.enough_latency_seconds =
      Unknown{"throughput alone tells of no network"};
  if (!exchange_ || ranks == 1) return point;
  // What the sums may take beside all else.
  double left =
      target.batch * static_cast<double>(target.accumulate) / (enough_efficiency * of_fewest);
  for (size_t k = 0; k < StepParts().size(); ++k) left -= answer.terms[k];
  point.enough_bits_per_second = exchange_->enough_bits_per_second(ranks, left);
  point.enough_latency_seconds = exchange_->enough_latency_seconds(ranks, left);
  return point;
}

std::vector<std::string> Forecaster::assumptions() const {
  std::vector<std::string> texts = {"a run is " + percent(growth_->deviation(), 2) +
                                    " off (standard deviation), by the spread of runs, or 1 % "
                                    "where there is one of each, or as no law fits better"};
  if (exchange_) {
    append(texts, exchange_->assumptions());
  } else {
    texts.emplace_back(
        "throughput alone is known, not what sums take: the cost of several ranks follows a mean "
        "of laws (there once ranks exchange, as bytes of a ring, by rounds of a tree), each by how "
        "well it fits, so that the band is wide");
  }
  return texts;
}

std::vector<HoldOut> held_out(const MeasuredSizes& found, const ForecastRequest& request) {
  std::vector<MeasuredSize> steps = found.sizes;
  const int64_t most = steps.back().ranks;
  std::erase_if(steps, [&](const MeasuredSize& size) { return size.ranks == most; });
  const bool tells_hosts = most_per_host(found.sizes) > 0;
  const auto per_host = tells_hosts ? std::nullopt : request.per_host;
  const Forecaster forecaster(found, steps, {.per_host = per_host, .ready = request.ready});
  std::vector<HoldOut> hold_outs;
  for (const MeasuredSize& size : found.sizes) {
    if (size.ranks < most) continue;
    hold_outs.push_back(
        {size.arm, size.ranks, size.throughput, forecaster.at(target_of(size)).rate()});
  }
  return hold_outs;
}

// What is asked and throughput alone, or this batch alone, cannot answer.
void check_request(const MeasuredSizes& found, const ForecastRequest& request, bool has_exchange) {
  const auto refuse = [](const std::string& why) { throw std::invalid_argument(why); };
  const std::string no_sums = " needs the times of sums, and these results have throughput alone";
  if (!has_exchange && request.network) refuse("--network" + no_sums);
  if (!has_exchange && request.gradient_type) refuse("--gradient-type" + no_sums);
  const SetRun& run = *found.sizes.front().runs.front();
  if (request.accumulate && is_imported(run) && key_value(run, "accumulate").empty()) {
    refuse("--accumulate: these results do not tell how many micro-batches their steps have");
  }
  const double batch = found.sizes.back().batch;
  const bool is_free = !request.batch || (!found.same_batch && batch > 0);
  if (is_free || batch == static_cast<double>(*request.batch)) return;
  refuse("--batch " + std::to_string(*request.batch) +
         (batch > 0 ? ": all sizes have batch " + shortest(batch, 10)
                    : ": these results do not tell their batch"));
}

std::map<std::string, std::string> work_of(const MeasuredSizes& found,
                                           const ForecastRequest& request) {
  std::map<std::string, std::string> work;
  for (const KeyField& field : found.sizes.front().runs.front()->key) {
    const bool of_batch = field.name == "batch" || field.name == "accumulate" ||
                          field.name == "global_batch_size" || follows_batch(field.name);
    const bool varies = of_batch && !found.same_batch;
    if (field.severity == Severity::layout || field.may_be_unknown || varies) continue;
    work[field.name] = field.value;
  }
  if (request.accumulate) work["accumulate"] = std::to_string(*request.accumulate);
  if (request.accumulate == 1) work.erase("accumulate");  // which keys leave out
  return work;
}

// Sides follow the same law, each with costs and noise of its own: those of another draw. Where one
// side has other hypotheses they are independent.
ForecastValue loss_of(const Outcome& bare, const Outcome& vm) {
  constexpr size_t draws = Growth::draws_of_a_law, parts = 60;
  Weighted of_rates, of_runs;
  const auto add = [&](Weighted& losses, const Weighted& base, const Weighted& next) {
    for (size_t i = 0; base.size() == next.size() && i < next.size(); ++i) {
      const auto& [rate, weight] = base[i - i % draws + (i % draws + draws / 3) % draws];
      losses.emplace_back(1 - next[i].first / rate, next[i].second * weight);
    }
    if (!losses.empty()) return;
    std::vector<double> shares;
    for (size_t i = 0; i < parts; ++i) shares.push_back((static_cast<double>(i) + 0.5) / parts);
    const std::vector<double> rates = weighted_quantiles(next, shares);
    for (const double one : weighted_quantiles(base, shares)) {
      for (const double other : rates) losses.emplace_back(1 - other / one, 1);
    }
  };
  add(of_rates, bare.rates, vm.rates);
  add(of_runs, bare.runs, vm.runs);
  return {weighted_quantiles(of_rates, {0.5}).front(), band_of(of_runs)};
}

}  // namespace

Forecast forecast_of(const std::vector<RunSet>& sides, const ForecastRequest& request) {
  Forecast forecast;
  Report& report = forecast.report;
  report.kind = Kind::predicted;
  std::vector<Forecaster> forecasters;
  for (const RunSet& set : sides) {
    const std::string side = sides.size() < 2 ? "" : forecasters.empty() ? "bare metal" : "VM";
    const MeasuredSizes found = measured_sizes(set, request.batch);
    const Forecaster& forecaster = forecasters.emplace_back(found, found.sizes, request);
    check_request(found, request, forecaster.has_exchange());
    for (const int64_t ranks : request.ranks) {
      Arm& arm = report.arms.emplace_back();
      arm.name = counted(ranks, "rank") + (side.empty() ? "" : ", " + side);
      arm.kind = Kind::predicted;
      arm.forecast = forecaster.point(ranks);
      arm.forecast->basis = std::ssize(report.forecasts);
    }
    ForecastBasis& basis = report.forecasts.emplace_back();
    basis.side = side;
    for (const MeasuredSize& size : found.sizes) add_new(basis.arms, size.arm);
    basis.has_exchange = forecaster.has_exchange();
    basis.assumptions = forecaster.assumptions();
    basis.hold_outs = held_out(found, request);
    basis.work = work_of(found, request);
  }
  if (sides.size() < 2) return forecast;
  const auto loss_at = [&](int64_t ranks) {
    const auto of_side = [&](const Forecaster& side) { return side.at(side.target(ranks)); };
    return loss_of(of_side(forecasters[0]), of_side(forecasters[1]));
  };
  for (Arm& arm : report.arms) {
    if (arm.forecast->basis == 1) arm.forecast->loss = loss_at(arm.forecast->ranks);
  }
  for (int64_t ranks = 1; ranks <= most_ranks_of_loss && !forecast.large_loss; ranks *= 2) {
    const auto can_reach = [&](const Forecaster& side) { return side.can_reach(ranks); };
    if (!std::ranges::all_of(forecasters, can_reach)) break;
    const ForecastValue loss = loss_at(ranks);
    if (loss.median >= large_loss) forecast.large_loss = {ranks, loss};
  }
  return forecast;
}

std::vector<HoldOut> check_forecast(const Report& predicted, const RunSet& measured,
                                    const std::vector<std::string>& allow_differ) {
  std::vector<HoldOut> checks;
  std::vector<std::string> differences;
  for (const RunArm& arm : measured.arms) {
    const SomeRuns runs = runs_where(arm, has_throughput);
    for (const Arm& of_report : predicted.arms) {
      const ForecastPoint& point = *of_report.forecast;
      if (runs.empty() || runs.front()->run.world_size != point.ranks) continue;
      const size_t before = differences.size();
      for (const auto& field : predicted.forecasts[point.basis].work) {
        const std::string other = value_in(runs.front()->key, field.first, "none");
        const auto is_it = [&](const std::string& may) { return covers(may, field.first); };
        if (other == field.second || std::ranges::any_of(allow_differ, is_it)) continue;
        differences.push_back(field.first + ": " + field.second + " | " + other);
      }
      if (differences.size() > before) continue;
      checks.push_back({arm.name, point.ranks, mean_of(throughput_sessions(arm)), point.rate});
    }
  }
  if (!checks.empty()) return checks;
  throw NotComparable("no size of the forecast was measured" +
                      (differences.empty()
                           ? std::string(" with so many ranks")
                           : " doing the same work (forecast | measured): " + joined(differences)));
}

}  // namespace nearmetal
