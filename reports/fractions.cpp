#include "reports/fractions.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "reports/statistics.h"

namespace nearmetal {
namespace {

constexpr double confidence = 0.95;

std::vector<const Run*> complete_runs(const RunArm& arm) {
  std::vector<const Run*> runs;
  for (const SetRun& run : arm.runs) {
    const Maybe<double>& value = run.run.throughput_images_per_second;
    if (run.run.status == Status::complete && value) runs.push_back(&run.run);
  }
  return runs;
}

std::vector<double> throughputs(const RunArm& arm) {
  std::vector<double> values;
  for (const Run* run : complete_runs(arm)) values.push_back(*run->throughput_images_per_second);
  return values;
}

// Speed of `arm` / speed of `base`.
SpeedRatio ratio(const RunArm& arm, const RunArm& base) {
  const std::vector<double> of_arm = throughputs(arm), of_base = throughputs(base);
  SpeedRatio result{geometric_mean(of_arm) / geometric_mean(of_base), Unknown{"fewer than 2 runs"}};
  const auto next = log_mean(of_arm), first = log_mean(of_base);
  if (next && first) result.interval = interval(difference(*first, *next), confidence);
  return result;
}

// Of each run, the geometric mean over its jobs.
std::vector<double> job_speeds(const RunArm& arm) {
  std::vector<double> speeds;
  for (const Run* run : complete_runs(arm)) {
    std::vector<double> of_jobs;
    for (const ConcurrentJob& job : run->jobs) of_jobs.push_back(job.throughput_images_per_second);
    if (of_jobs.empty()) of_jobs = {*run->throughput_images_per_second};
    speeds.push_back(geometric_mean(of_jobs));
  }
  return speeds;
}

// How many times as long jobs take as those of `alone`, one arm for each job.
Maybe<SpeedRatio> slowdown(const RunArm& arm, const std::vector<const RunArm*>& alone) {
  const std::vector<double> speeds = job_speeds(arm);
  std::map<const RunArm*, double> weights;
  for (const RunArm* other : alone) {
    if (other == nullptr) return Unknown{"no such job ran alone"};
    if (other == &arm) return Unknown{"it is the reference"};
    weights[other] += 1 / static_cast<double>(alone.size());
  }
  double logarithm = -std::log(geometric_mean(speeds));
  std::vector<std::optional<LogEstimate>> estimates = {log_mean(speeds)};
  std::vector<WeightedEstimate> terms = {{-1, {}}};
  for (const auto& [other, weight] : weights) {
    logarithm += weight * std::log(geometric_mean(throughputs(*other)));
    estimates.push_back(log_mean(throughputs(*other)));
    terms.push_back({weight, {}});
  }
  SpeedRatio result{std::exp(logarithm), Unknown{"fewer than 2 runs"}};
  for (size_t i = 0; i < terms.size(); ++i) {
    if (!estimates[i]) return result;
    terms[i].estimate = *estimates[i];
  }
  result.interval = interval(combined(terms), confidence);
  return result;
}

// Over the ranks of a run, beginning with 0; mean over the runs; unknown where a rank of a run is.
template <class ValueOf, class Combine>
Maybe<double> over_ranks(const RunArm& arm, const ValueOf& value_of, const Combine& combine) {
  std::vector<double> of_runs;
  for (const Run* run : complete_runs(arm)) {
    double of_run = 0;
    for (const Rank& rank : run->ranks) {
      Maybe<double> value = value_of(rank);
      if (!value) return value;
      of_run = combine(of_run, *value);
    }
    of_runs.push_back(of_run);
  }
  return mean(of_runs);
}

template <class ValueOf>
Maybe<double> worst_of_ranks(const RunArm& arm, const ValueOf& value_of) {
  return over_ranks(arm, value_of, [](double a, double b) { return std::max(a, b); });
}

Maybe<double> p99_seconds(const Rank& rank) {
  if (!rank.step_time) return Unknown{rank.step_time.reason};
  return rank.step_time->p99_seconds;
}

Maybe<double> monitored(const Rank& rank, const char* name, double MonitoredSeries::*figure) {
  if (!rank.monitoring) return Unknown{"not monitored"};
  const MonitoredSeries* series = series_named(*rank.monitoring, name);
  return series == nullptr ? Maybe<double>(Unknown{"not told here"})
                           : Maybe<double>(series->*figure);
}

Maybe<double> memory_bytes(const Rank& rank) {
  return monitored(rank, "memory_used_bytes", &MonitoredSeries::maximum);
}

// With MIG each rank tells of its own device, and they are of one GPU; else each tells of all.
Maybe<double> memory_of(const RunArm& arm) {
  if (arm.share->way == "mig") return over_ranks(arm, memory_bytes, std::plus<>());
  return worst_of_ranks(arm, memory_bytes);
}

Maybe<double> watts(const Rank& rank) {
  return monitored(rank, "power_watts", &MonitoredSeries::mean);
}

// Mean over the runs of what their jobs show.
Maybe<double> of_jobs(const RunArm& arm,
                      const std::function<Maybe<double>(const Run& run)>& value_of) {
  std::vector<double> values;
  for (const Run* run : complete_runs(arm)) {
    if (run->jobs.empty()) return Unknown{"one job"};
    Maybe<double> value = value_of(*run);
    if (!value) return value;
    values.push_back(*value);
  }
  return mean(values);
}

Maybe<double> worst_of_best(const Run& run) {
  const auto [worst, best] = std::minmax_element(
      run.jobs.begin(), run.jobs.end(), [](const ConcurrentJob& a, const ConcurrentJob& b) {
        return a.throughput_images_per_second < b.throughput_images_per_second;
      });
  return worst->throughput_images_per_second / best->throughput_images_per_second;
}

// One GPU for each job; of several the power of one is not that of all. The jobs of a GPU that MIG
// divides all see its power, which is not divided.
Maybe<double> images_per_joule(const RunArm& arm, double throughput) {
  if (arm.share->way == "vgpu" && arm.share->jobs > 1)
    return Unknown{"the jobs are on several VMs"};
  if (!arm.share->neighbours.empty()) return Unknown{"its neighbours take power, too"};
  for (const Run* run : complete_runs(arm)) {
    if (run->world_size > arm.share->jobs) return Unknown{"a job has several GPUs"};
  }
  Maybe<double> power = worst_of_ranks(arm, watts);
  if (!power) return power;
  return *power > 0 ? Maybe<double>(throughput / *power) : Maybe<double>(Unknown{"not monitored"});
}

class Fractions {
 public:
  Fractions(const RunSet& set, Batches batches) : set_(set), batches_(batches) {
    for (const RunArm& arm : set.arms) {
      if (arm.share && !complete_runs(arm).empty()) arms_.push_back(&arm);
    }
  }

  std::vector<FractionPoint> points() const {
    std::vector<FractionPoint> points;
    for (const RunArm* arm : arms_) points.push_back(point_of(*arm));
    return points;
  }

 private:
  // Of those that did the same work on the same hardware as `arm`, undisturbed.
  const RunArm* find(const RunArm& arm,
                     const std::function<bool(const ArmShare& share)>& wanted) const {
    const std::string context = context_of(arm);
    for (const RunArm* other : arms_) {
      if (!other->share->neighbours.empty()) continue;
      if (wanted(*other->share) && context_of(*other) == context) return other;
    }
    return nullptr;
  }
  std::string context_of(const RunArm& arm) const {
    std::vector<KeyField> key = arm.runs.front().key;
    if (batches_ == Batches::any) {  // and the learning rate, which follows from it
      std::erase_if(key, [](const KeyField& field) {
        return field.name == "batch" || field.name == "learning_rate";
      });
    }
    return context_sha256(key) + boards_of(arm.runs.front().run);
  }
  // The key has their chips alone. A MIG device is part of its board.
  std::string boards_of(const Run& run) const {
    std::set<std::string> boards;
    for (const Rank& rank : run.ranks) {
      if (const Gpu* gpu = gpu_of(set_, rank)) boards.insert(gpu_board(gpu->name));
    }
    std::string text;
    for (const std::string& board : boards) text += '\0' + board;
    return text;
  }
  const RunArm* alone(const RunArm& arm) const {
    return find(arm, [](const ArmShare& share) { return share.way == "alone"; });
  }
  const RunArm* alone_on(const RunArm& arm, int64_t percent) const {
    return find(arm, [&](const ArmShare& share) {
      return share.way == arm.share->way && share.jobs == 1 &&
             share.threads_percent == std::vector<int64_t>{percent};
    });
  }
  const RunArm* alone_on_a(const RunArm& arm, const std::string& profile) const {
    return find(arm, [&](const ArmShare& share) {
      return share.way == arm.share->way && share.jobs == 1 &&
             share.profiles == std::vector<std::string>{profile};
    });
  }
  // For each job the arm of one that has the same share, and no neighbours; null: there is none.
  std::vector<const RunArm*> alone_on_the_shares_of(const RunArm& arm) const {
    const ArmShare& share = *arm.share;
    const auto jobs = static_cast<size_t>(share.jobs);
    const bool on_all = share.way == "timeslice" || share.way == "serial";
    std::vector<const RunArm*> arms(jobs, on_all ? alone(arm) : nullptr);
    for (size_t job = 0; !on_all && job < std::min(jobs, share.threads_percent.size()); ++job) {
      arms.at(job) = alone_on(arm, share.threads_percent[job]);
    }
    for (size_t job = 0; job < std::min(jobs, share.profiles.size()); ++job) {
      arms[job] = alone_on_a(arm, share.profiles[job]);
    }
    return arms;
  }

  FractionPoint point_of(const RunArm& arm) const {
    const std::vector<double> values = throughputs(arm);
    FractionPoint point;
    point.arm = arm.name;
    point.jobs = arm.share->jobs;
    point.runs = static_cast<int64_t>(values.size());
    point.throughput_images_per_second = geometric_mean(values);
    const auto estimate = log_mean(values);
    point.throughput_interval = Unknown{"fewer than 2 runs"};
    if (estimate) point.throughput_interval = interval(*estimate, confidence);
    compare(arm, point);
    point.fairness = of_jobs(arm, [](const Run& run) {
      return run.jain_fairness ? Maybe<double>(*run.jain_fairness)
                               : Maybe<double>(Unknown{"the report does not tell"});
    });
    point.worst_of_best = of_jobs(arm, worst_of_best);
    point.memory_bytes = memory_of(arm);
    point.images_per_joule = images_per_joule(arm, point.throughput_images_per_second);
    point.given = given_to(set_, *arm.share, *complete_runs(arm).front());
    return point;
  }

  void compare(const RunArm& arm, FractionPoint& point) const {
    const int64_t jobs = arm.share->jobs;
    for (const auto& [way, member] : {std::pair("serial", &FractionPoint::of_serial),
                                      std::pair("timeslice", &FractionPoint::of_timeslice)}) {
      const RunArm* other = find(arm, [&, way = way](const ArmShare& share) {
        return share.way == way && share.jobs == jobs;
      });
      point.*member = Unknown{"no arm of as many jobs is so"};
      if (!arm.share->neighbours.empty()) {
        point.*member = Unknown{"its neighbours train nothing"};
        continue;
      }
      if (other == &arm) point.*member = Unknown{"it is the reference"};
      if (other != nullptr && other != &arm) point.*member = ratio(arm, *other);
    }
    const RunArm* on_all = alone(arm);
    point.slowdown = slowdown(arm, std::vector<const RunArm*>(static_cast<size_t>(jobs), on_all));
    point.interference = slowdown(arm, alone_on_the_shares_of(arm));
    point.p99_inflation = Unknown{"no job ran alone"};
    if (on_all == nullptr || on_all == &arm) return;
    const Maybe<double> of_arm = worst_of_ranks(arm, p99_seconds);
    const Maybe<double> of_alone = worst_of_ranks(*on_all, p99_seconds);
    if (of_arm && of_alone) point.p99_inflation = *of_arm / *of_alone;
  }

  const RunSet& set_;
  Batches batches_;
  std::vector<const RunArm*> arms_;
};

}  // namespace

bool shares_a_gpu(const RunSet& set) {
  return std::any_of(set.arms.begin(), set.arms.end(),
                     [](const RunArm& arm) { return arm.share.has_value(); });
}

std::vector<FractionPoint> fractions_of(const RunSet& set, Batches batches) {
  return Fractions(set, batches).points();
}

RunSet with_best_batches(const RunSet& set) {
  std::set<std::string> batches;
  RunSet best;
  for (const RunArm& arm : set.arms) {
    if (!arm.share || complete_runs(arm).empty()) continue;
    for (const KeyField& field : arm.runs.front().key) {
      if (field.name == "batch") batches.insert(field.value);
    }
    const auto same = std::find_if(best.arms.begin(), best.arms.end(),
                                   [&](const RunArm& other) { return other.share == arm.share; });
    if (same == best.arms.end()) {
      best.arms.push_back(arm);
    } else if (geometric_mean(throughputs(arm)) > geometric_mean(throughputs(*same))) {
      *same = arm;
    }
  }
  return batches.size() > 1 ? best : RunSet{};
}

}  // namespace nearmetal
