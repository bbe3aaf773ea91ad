#include "reports/sharing/fractions.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "reports/sharing/arm_figures.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

constexpr double confidence = 0.95;

std::vector<double> throughputs(const RunArm& arm) {
  std::vector<double> values;
  for (const Run* run : timed_runs(arm)) values.push_back(*run->throughput);
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
  for (const Run* run : timed_runs(arm)) {
    std::vector<double> of_jobs;
    for (const ConcurrentJob& job : run->jobs) of_jobs.push_back(job.throughput);
    if (of_jobs.empty()) of_jobs = {*run->throughput};
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
  std::vector<std::pair<double, LogEstimate>> terms;
  const auto add_term = [&](double weight, const std::vector<double>& values) {
    if (const auto estimate = log_mean(values)) terms.emplace_back(weight, *estimate);
  };
  add_term(-1, speeds);
  for (const auto& [other, weight] : weights) {
    logarithm += weight * std::log(geometric_mean(throughputs(*other)));
    add_term(weight, throughputs(*other));
  }
  SpeedRatio result{std::exp(logarithm), Unknown{"fewer than 2 runs"}};
  if (terms.size() == weights.size() + 1) result.interval = interval(combined(terms), confidence);
  return result;
}

class Fractions {
 public:
  Fractions(const RunSet& set, bool any_batch) : set_(set), any_batch_(any_batch) {
    for (const RunArm& arm : set.arms) {
      if (arm.share && !timed_runs(arm).empty()) arms_.push_back(&arm);
    }
  }

  std::vector<FractionPoint> points() const {
    std::vector<FractionPoint> points;
    for (const RunArm* arm : arms_) points.push_back(point_of(*arm));
    return points;
  }

  // Whether they did the same work on the same hardware, each job with as many ranks.
  bool same_context(const RunArm& a, const RunArm& b) const {
    return context_of(a) == context_of(b);
  }

 private:
  // Of those that did the same work on the same hardware as `arm`, undisturbed.
  const RunArm* find(const RunArm& arm,
                     const std::function<bool(const ArmShare& share)>& wanted) const {
    const std::string context = context_of(arm);
    for (const RunArm* other : arms_) {
      if (!other->share->neighbours.empty() || is_on_a_part(*other)) continue;
      if (wanted(*other->share) && context_of(*other) == context) return other;
    }
    return nullptr;
  }
  std::string context_of(const RunArm& arm) const {
    std::vector<KeyField> key = arm.runs.front().key;
    if (any_batch_) {
      std::erase_if(
          key, [](const KeyField& field) { return field.name == "batch" || follows_batch(field); });
    }
    return arm.group + '\0' + context_sha256(key) + boards_of(arm) + ranks_of_jobs(arm);
  }
  // A job of two ranks is no faster than one of one because it shares less.
  std::string ranks_of_jobs(const RunArm& arm) const {
    const Run& run = *timed_runs(arm).front();  // a failed one may not tell
    std::set<int64_t> ranks;
    for (const ConcurrentJob& job : run.jobs) ranks.insert(job.ranks);
    if (run.jobs.empty()) ranks.insert(run.world_size);
    std::string text;
    for (const int64_t count : ranks) text += '\0' + std::to_string(count);
    return text;
  }
  // Whether it was not by MIG, and had a MIG device in place of the GPU: where MIG is on, CUDA
  // shows no more than the first. Reports of old tell it by the name alone.
  bool is_on_a_part(const RunArm& arm) const {
    if (arm.share->mode == SharingMode::mig) return false;
    const std::vector<Rank>& ranks = arm.runs.front().run.ranks;
    return std::ranges::any_of(ranks, [&](const Rank& rank) {
      const Gpu* gpu = gpu_of(set_, rank);
      return gpu != nullptr && (gpu->mig_profile || gpu_board(gpu->name) != gpu->name);
    });
  }
  // The key has their chips alone. A MIG device is part of its board where jobs share by MIG; a
  // vGPU is none of a board that is not divided like it.
  std::string boards_of(const RunArm& arm) const {
    std::set<std::string> boards;
    for (const Rank& rank : arm.runs.front().run.ranks) {
      const Gpu* gpu = gpu_of(set_, rank);
      if (gpu == nullptr) continue;
      boards.insert((arm.share->mode == SharingMode::mig ? gpu_board(gpu->name) : gpu->name) +
                    '\0' + gpu->vgpu_profile.value.value_or(""));
    }
    std::string text;
    for (const std::string& board : boards) text += '\0' + board;
    return text;
  }
  const RunArm* alone(const RunArm& arm) const {
    return find(arm, [](const ArmShare& share) { return share.mode == SharingMode::alone; });
  }
  const RunArm* alone_on(const RunArm& arm, int64_t percent) const {
    return find(arm, [&](const ArmShare& share) {
      return share.mode == arm.share->mode && share.jobs == 1 &&
             share.threads_percent == std::vector<int64_t>{percent};
    });
  }
  const RunArm* alone_on_a(const RunArm& arm, const std::string& profile) const {
    return find(arm, [&](const ArmShare& share) {
      return share.mode == arm.share->mode && share.jobs == 1 &&
             share.profiles == std::vector<std::string>{profile};
    });
  }
  // For each job the arm of one that has the same share, and no neighbours; null: there is none.
  std::vector<const RunArm*> alone_on_the_shares_of(const RunArm& arm) const {
    const ArmShare& share = *arm.share;
    const auto jobs = static_cast<size_t>(share.jobs);
    const bool on_all = share.mode == SharingMode::timeslice || share.mode == SharingMode::serial;
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
    point.runs = std::ssize(values);
    point.throughput = geometric_mean(values);
    const auto estimate = log_mean(values);
    point.throughput_interval = Unknown{"fewer than 2 runs"};
    if (estimate) point.throughput_interval = interval(*estimate, confidence);
    compare(arm, point);
    point.fairness = fairness_of(arm);
    point.worst_of_best = worst_of_best(arm);
    point.memory_bytes = memory_of(arm);
    point.power_watts = power_of(set_, arm);
    point.job_speeds = job_speeds_of(arm);
    point.samples_per_joule = samples_per_joule(set_, arm, point.throughput);
    point.given = share_limits_text(set_, *arm.share, *timed_runs(arm).front());
    return point;
  }

  void compare(const RunArm& arm, FractionPoint& point) const {
    const int64_t jobs = arm.share->jobs;
    for (const auto& [way, member] :
         {std::pair(SharingMode::serial, &FractionPoint::of_serial),
          std::pair(SharingMode::timeslice, &FractionPoint::of_timeslice)}) {
      const RunArm* other = find(arm, [&, way = way](const ArmShare& share) {
        return share.mode == way && share.jobs == jobs;
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
    const Maybe<double> of_arm = worst_p99_seconds(arm);
    const Maybe<double> of_alone = worst_p99_seconds(*on_all);
    if (of_arm && of_alone) point.p99_inflation = *of_arm / *of_alone;
  }

  const RunSet& set_;
  bool any_batch_;
  std::vector<const RunArm*> arms_;
};

}  // namespace

bool shares_a_gpu(const RunSet& set) {
  return std::ranges::any_of(set.arms, [](const RunArm& arm) { return arm.share.has_value(); });
}

std::vector<FractionPoint> fractions_of(const RunSet& set, bool any_batch) {
  return Fractions(set, any_batch).points();
}

RunSet with_best_batches(const RunSet& set) {
  std::set<std::string> batches;
  RunSet best;
  best.environments = set.environments;
  const Fractions fractions(set, true);
  for (const RunArm& arm : set.arms) {
    if (!arm.share || timed_runs(arm).empty()) continue;
    for (const KeyField& field : arm.runs.front().key) {
      if (field.name == "batch") batches.insert(field.value);
    }
    const auto same = std::ranges::find_if(best.arms, [&](const RunArm& other) {
      return other.share == arm.share && fractions.same_context(other, arm);
    });
    if (same == best.arms.end()) {
      best.arms.push_back(arm);
    } else if (geometric_mean(throughputs(arm)) > geometric_mean(throughputs(*same))) {
      *same = arm;
    }
  }
  return batches.size() > 1 ? best : RunSet{};
}

}  // namespace nearmetal
