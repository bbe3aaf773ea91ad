#include "reports/forecast/forecast.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <stdexcept>
#include <tuple>

#include "base/errors.h"
#include "base/text.h"
#include "reports/compare/comparison_row.h"
#include "reports/compare/work_text.h"
#include "reports/forecast/step_time.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

// Public results of one run differ by about as much from the next run (docs/imported.md).
constexpr double usual_deviation = 0.01, least_deviation = 0.002;
constexpr double confidence = 0.9;  // of the bands
constexpr double enough_efficiency = 0.95, large_loss = 0.05;
constexpr double usual_cost = 0.055, usual_rest = 0.025;  // of several ranks; beside known sums
constexpr int64_t most_ranks_of_loss = 4096;
constexpr std::array reached_shares = {1.0, 0.9, 0.8, 0.7};  // of a network that was given
// Those of Possibility, then of exchange_parts().
constexpr std::array term_names = {
    "computation",     "fixed cost of a micro-batch",  "several ranks of a host",
    "several hosts",   "waiting for the slowest rank", "bytes of sums",
    "latency of sums", "computation beside sums"};

using Work = std::map<std::string, std::string>;
using SizesByWork = std::map<Work, MeasuredSizes>;

double number_of(const SetRun& run, const char* field) {
  return std::strtod(key_value(run, field).c_str(), nullptr);
}

bool can_count(const RunArm& arm, const SetRun& run) {
  const auto is = [&](const char* field, const char* value) {
    return key_value(run, field) == value;
  };
  const bool alone = is("update", to_string(Update::independent)) && run.run.world_size > 1;
  return has_throughput(run) && run.run.world_size >= 1 && arm.whole.empty() && is("share", "") &&
         run.run.jobs.empty() && !run.run.pipeline && !is("forward_only", "yes") &&
         !is("inference", "yes") && !alone;
}

MeasuredSize size_of(const RunArm& arm, const SomeRuns& runs) {
  const SetRun& run = *runs.front();
  MeasuredSize size{{.ranks = run.run.world_size}, arm.name, runs};
  std::map<int64_t, int64_t> ranks;  // of each host
  for (const Rank& rank : run.run.ranks) {
    size.per_host = std::max(size.per_host, ++ranks[rank.environment]);
  }
  size.batch = number_of(run, "batch");
  if (size.batch == 0) {
    size.batch = number_of(run, "global_batch_size") / static_cast<double>(size.ranks);
  }
  size.accumulate = std::max<int64_t>(1, std::llround(number_of(run, "accumulate")));
  size.throughput =
      geometric_mean(transformed(runs, [](const SetRun* one) { return *one->run.throughput; }));
  return size;
}

// The comparable key of a run without its layout; `any_batch`: nor what follows from its batch.
Work work_of_run(const SetRun& run, bool any_batch) {
  constexpr std::array of_batch = {"batch", "accumulate", "global_batch_size"};
  Work work;
  for (const auto& [name, value, severity, may_be_unknown] : run.key) {
    const bool has_batch = std::ranges::count(of_batch, name) > 0 || follows_batch(name);
    if (severity == Severity::layout || may_be_unknown || (any_batch && has_batch)) continue;
    work[name] = value;
  }
  return work;
}

std::set<int64_t> numbers_of_ranks(const MeasuredSizes& sizes) {
  const std::vector<int64_t> ranks = transformed(sizes, &MeasuredSize::ranks);
  return {ranks.begin(), ranks.end()};
}

// Those of two numbers of ranks or more, of one batch or of any, and of one system or of any.
SizesByWork groups_of(const MeasuredSizes& sizes, bool any_batch, bool any_system) {
  SizesByWork groups;
  for (const MeasuredSize& size : sizes) {
    Work work = work_of_run(*size.runs.front(), any_batch);
    if (any_system) work.erase("system");
    groups[work].push_back(size);
  }
  std::erase_if(groups,
                [](const auto& group) { return numbers_of_ranks(group.second).size() < 2; });
  return groups;
}

size_t most_numbers_of_ranks(const SizesByWork& groups) {
  size_t most = 0;
  for (const auto& [work, sizes] : groups) most = std::max(most, numbers_of_ranks(sizes).size());
  return most;
}

// Of runs of an arm, relative.
double deviation_of(const MeasuredSizes& sizes) {
  const auto log_of = [](const SetRun* run) { return std::log(*run->run.throughput); };
  PooledVariance of_runs;
  for (const MeasuredSize& size : sizes) of_runs.add(transformed(size.runs, log_of));
  return of_runs.degrees_of_freedom > 0 ? std::max(least_deviation, std::sqrt(of_runs.value()))
                                        : usual_deviation;
}

std::string sizes_text(const MeasuredSizes& sizes) {
  const auto text = [](const MeasuredSize& size) {
    return size.arm + " (" + counted(size.ranks, "rank") +
           (size.batch > 0 ? ", batch " + shortest(size.batch, 10) : "") + ")";
  };
  return sizes.empty() ? "none" : shortened(joined(transformed(sizes, text)));
}

MeasuredSizes all_sizes(const RunSet& set) {
  MeasuredSizes sizes;
  for (const RunArm& arm : set.arms) {
    std::map<std::pair<int64_t, Work>, SomeRuns> alike;  // in one arm where a user named it
    for (const SetRun& run : arm.runs) {
      if (can_count(arm, run)) alike[{run.run.world_size, work_of_run(run, false)}].push_back(&run);
    }
    for (const auto& [work, runs] : alike) sizes.push_back(size_of(arm, runs));
  }
  std::ranges::stable_sort(sizes, {}, &MeasuredSize::ranks);
  return sizes;
}

// What a forecast may rest on. Refuses where less than two numbers of ranks did the same work, with
// this batch if one is given, or where several works have such sizes. Jobs that share a device,
// pipelines and ranks that train for themselves are left out.
MeasuredSizes measured_sizes(const RunSet& set, const std::optional<int64_t>& batch) {
  const MeasuredSizes all = all_sizes(set);
  MeasuredSizes of_batch = all;
  std::erase_if(of_batch, [&](const MeasuredSize& size) {
    return batch && size.batch != static_cast<double>(*batch);
  });
  SizesByWork groups = groups_of(of_batch, false, false);
  // Published results have no sums, which would be those of one batch, so that more sizes are
  // better; and each size of a system may be one by its name.
  const bool published = !all.empty() && is_imported(*all.front().runs.front());
  for (const bool any_system : {false, true}) {
    if (!groups.empty() && !published) break;
    SizesByWork more = groups_of(all, true, any_system);
    if (most_numbers_of_ranks(more) > most_numbers_of_ranks(groups)) groups = std::move(more);
  }
  if (groups.size() != 1) {
    const auto text = [](const auto& group) { return sizes_text(group.second); };
    throw std::invalid_argument(
        groups.empty() ? "a forecast needs two numbers of ranks or more that did the same work; "
                         "there are: " +
                             sizes_text(all)
                       : "a forecast is of one work, and these differ; name arms as FILE#ARM, or "
                         "--batch: " +
                             joined(transformed(groups, text), " | "));
  }
  MeasuredSizes found = std::move(groups.begin()->second);
  const bool tells_batch = std::ranges::count(found, 0, &MeasuredSize::batch) == 0;
  for (MeasuredSize& size : found) size.batch *= tells_batch ? 1 : 0;
  return found;
}

bool have_one_batch(const MeasuredSizes& sizes) {
  return std::ranges::all_of(sizes, [&](const MeasuredSize& size) {
    return size.batch == sizes[0].batch && size.accumulate == sizes[0].accumulate;
  });
}

ForecastValue value_of(const std::vector<double>& possibilities, const std::vector<double>& runs) {
  constexpr double beyond = (1 - confidence) / 2;
  return {median(possibilities), {quantile(runs, beyond), quantile(runs, 1 - beyond)}};
}

// Samples per second of possibilities, and of runs, which have noise.
struct Outcome {
  std::vector<double> rates, runs;
  std::array<double, term_names.size()> terms{};  // of the fifth of possibilities in the middle

  ForecastValue rate() const { return value_of(rates, runs); }
};

int64_t most_per_host(const MeasuredSizes& sizes) {
  return std::ranges::max(sizes, {}, &MeasuredSize::per_host).per_host;
}

// A forecast by `steps`; of `all` sizes there are more where some are held out.
class Forecaster {
 public:
  Forecaster(const MeasuredSizes& all, MeasuredSizes steps, const ForecastRequest& request)
      : steps_(std::move(steps)),
        request_(request),
        per_host_(request.per_host.value_or(most_per_host(all))) {
    const bool same_batch = have_one_batch(all);
    if (same_batch && std::ranges::any_of(all, timed_sums)) {
      exchange_.emplace(steps_, all, request, most_per_host(all));
    }
    // Published results do not tell where a host ends: at one of the measured sizes, perhaps, but
    // not at the largest.
    std::set<int64_t> ends = {per_host_};
    if (per_host_ == 0) {
      ends = numbers_of_ranks(steps_);
      if (ends.size() > 1) ends.erase(steps_.back().ranks);
    }
    std::vector<Hypothesis> hypotheses;
    for (const int64_t per_host : ends) {
      for (const bool slows : {false, true}) {
        if (slows && (exchange_ ? exchange_->measured.slowing == 0 : same_batch)) continue;
        Hypothesis& hypothesis = hypotheses.emplace_back(Hypothesis{per_host, slows, !same_batch});
        if (!exchange_) continue;
        for (const MeasuredSize& size : steps_) {
          StepParts parts = exchange_parts(exchange_->measured, size);
          if (!slows) parts.back() = 0;
          hypothesis.known_seconds.push_back(total_seconds(parts));
        }
      }
    }
    const auto point_of = [](const MeasuredSize& size) {
      return StepPoint{size, size.step_seconds()};
    };
    growth_.emplace(transformed(steps_, point_of), std::move(hypotheses), deviation_of(all),
                    exchange_ ? usual_rest : usual_cost);
  }

  JobSize asked(int64_t ranks) const {
    const MeasuredSize& largest = steps_.back();
    const auto batch = request_.batch ? static_cast<double>(*request_.batch) : largest.batch;
    return {ranks, per_host_, batch, request_.accumulate.value_or(largest.accumulate)};
  }

  Outcome at(const JobSize& size) const {
    std::vector<StepParts> exchanges;  // by the share of the network that sums reach
    for (const double reached : reached_shares) {
      if (!exchange_) break;
      SimulatedJob job = exchange_->asked;
      job.between.bytes_per_second *= reached;
      exchanges.push_back(exchange_parts(job, size));
      if (!request_.network || !job.crosses_hosts(size.ranks)) break;
    }
    if (exchanges.empty()) exchanges.emplace_back();
    Outcome answer;
    std::vector<std::array<double, term_names.size()>> terms;
    for (const auto& [slows, noise, seconds] : growth_->at(size)) {
      StepParts parts = exchanges[terms.size() / 2 % exchanges.size()];
      if (!slows) parts.back() = 0;
      auto& all = terms.emplace_back();
      std::ranges::copy(parts, std::ranges::copy(seconds, all.begin()).out);
      answer.rates.push_back(size.samples() * static_cast<double>(size.ranks) / total_seconds(all));
      answer.runs.push_back(answer.rates.back() / noise);
    }
    // Not the mean of all, as a few possibilities may take many times as long.
    const double low = quantile(answer.rates, 0.4), high = quantile(answer.rates, 0.6);
    double count = 0;
    for (size_t i = 0; i < terms.size(); ++i) {
      if (answer.rates[i] < low || answer.rates[i] > high) continue;
      ++count;
      for (size_t k = 0; k < terms[i].size(); ++k) answer.terms[k] += terms[i][k];
    }
    for (double& term : answer.terms) term /= count;
    return answer;
  }

  ForecastPoint point(int64_t ranks) const {
    if (!can_reach(ranks)) {
      throw std::invalid_argument(
          "--gpus " + std::to_string(ranks) + " needs several hosts of " +
          std::to_string(per_host_) +
          ", between which nothing was summed: give --network, such as 400G,3us" +
          (request_.per_host ? "" : ", or --per-host where one host has more"));
    }
    const JobSize size = asked(ranks);
    const Outcome answer = at(size);
    const MeasuredSize& fewest = steps_.front();
    const double of_fewest = fewest.throughput / static_cast<double>(fewest.ranks);
    ForecastPoint point{.ranks = ranks,
                        .accumulate = size.accumulate,
                        .sample = fewest.runs.front()->run.sample,
                        .rate = answer.rate()};
    if (per_host_ > 0) point.hosts = (ranks + per_host_ - 1) / per_host_;
    if (size.batch > 0) point.batch = size.batch;
    point.efficiency = point.rate.median / static_cast<double>(ranks) / of_fewest;
    for (size_t k = 0; k < term_names.size(); ++k) {
      if (answer.terms[k] != 0) point.terms.push_back({term_names[k], answer.terms[k]});
    }
    const auto* const largest =
        std::ranges::max_element(answer.terms.begin() + 1, answer.terms.end());
    if (*largest > 0) point.dominant = term_names[largest - answer.terms.begin()];
    point.enough_bits_per_second = point.enough_latency_seconds =
        Unknown{"throughput alone tells of no network"};
    if (!exchange_ || ranks == 1) return point;
    // What the sums may take beside all else.
    double left = size.samples() / (enough_efficiency * of_fewest);
    for (size_t k = 0; k < StepParts().size(); ++k) left -= answer.terms[k];
    std::tie(point.enough_bits_per_second, point.enough_latency_seconds) =
        exchange_->enough(ranks, left);
    return point;
  }

  bool can_reach(int64_t ranks) const {
    return !exchange_ || !exchange_->asked.crosses_hosts(ranks) ||
           exchange_->asked.between.bytes_per_second > 0;
  }
  bool has_exchange() const { return exchange_.has_value(); }
  std::vector<std::string> assumptions() const {
    std::vector<std::string> texts = {"a run is " + percent(growth_->deviation(), 2) +
                                      " off (standard deviation), by the spread of runs, or 1 % "
                                      "where there is one of each, or as no law fits better"};
    if (exchange_) {
      append(texts, exchange_->assumptions);
    } else {
      texts.emplace_back(
          "throughput alone is known, not what sums take: the cost of several ranks follows laws "
          "between being there once ranks exchange and growing with each (as bytes of a ring, by "
          "rounds of a tree), each by how well it fits, so that the band is wide");
    }
    return texts;
  }

 private:
  MeasuredSizes steps_;
  ForecastRequest request_;
  int64_t per_host_ = 0;  // 0: not told
  std::optional<ExchangeModel> exchange_;
  std::optional<Growth> growth_;
};

// Those of the most ranks, by those of fewer.
std::vector<HoldOut> held_out(const MeasuredSizes& found, const ForecastRequest& request) {
  const auto first = std::ranges::find(found, found.back().ranks, &MeasuredSize::ranks);
  const auto per_host = most_per_host(found) > 0 ? std::nullopt : request.per_host;
  const Forecaster forecaster(found, {found.begin(), first},
                              {.per_host = per_host, .ready = request.ready});
  return transformed(MeasuredSizes{first, found.end()}, [&](const MeasuredSize& size) {
    return HoldOut{size.arm, size.ranks, size.throughput, forecaster.at(size).rate()};
  });
}

// What is asked and throughput alone, or this batch alone, cannot answer.
void check_request(const MeasuredSizes& found, const ForecastRequest& request, bool has_exchange) {
  const auto refuse = [](const std::string& why) { throw std::invalid_argument(why); };
  const std::string no_sums = " needs the times of sums, and these results have throughput alone";
  if (!has_exchange && request.network) refuse("--network" + no_sums);
  if (!has_exchange && request.gradient_type) refuse("--gradient-type" + no_sums);
  const SetRun& run = *found.front().runs.front();
  if (request.accumulate && is_imported(run) && key_value(run, "accumulate").empty()) {
    refuse("--accumulate: these results do not tell how many micro-batches their steps have");
  }
  const double batch = found.back().batch;
  const bool is_free = !request.batch || (!have_one_batch(found) && batch > 0);
  if (is_free || batch == static_cast<double>(*request.batch)) return;
  refuse("--batch " + std::to_string(*request.batch) +
         (batch > 0 ? ": all sizes have batch " + shortest(batch, 10)
                    : ": these results do not tell their batch"));
}

// Possibilities are in the order of their laws, so that both sides follow like ones; costs and
// noise are their own, those of the neighbour.
ForecastValue loss_of(const Outcome& bare, const Outcome& vm) {
  const auto losses = [](const std::vector<double>& base, const std::vector<double>& next) {
    std::vector<double> found;
    for (size_t i = 0; i < next.size(); ++i) found.push_back(1 - next[i] / base[i ^ 1]);
    return found;
  };
  return value_of(losses(bare.rates, vm.rates), losses(bare.runs, vm.runs));
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
    const Forecaster& forecaster = forecasters.emplace_back(found, found, request);
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
    for (const MeasuredSize& size : found) add_new(basis.arms, size.arm);
    basis.has_exchange = forecaster.has_exchange();
    basis.assumptions = forecaster.assumptions();
    basis.hold_outs = held_out(found, request);
    basis.work = work_of_run(*found.front().runs.front(), !have_one_batch(found));
    if (request.accumulate) basis.work["accumulate"] = std::to_string(*request.accumulate);
    if (request.accumulate == 1) basis.work.erase("accumulate");  // which keys leave out
  }
  if (sides.size() < 2) return forecast;
  const auto loss_at = [&](int64_t ranks) {
    const auto of_side = [&](const Forecaster& side) { return side.at(side.asked(ranks)); };
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
