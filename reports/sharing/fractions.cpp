#include "reports/sharing/fractions.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "base/text.h"
#include "reports/compare/comparison_row.h"
#include "reports/compare/scaling.h"
#include "reports/compare/work_text.h"
#include "reports/document/metric.h"
#include "reports/sharing/arm_figures.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

// The board of a GPU: "NVIDIA H200" of its MIG device "NVIDIA H200 MIG 1g.18gb", too.
std::string gpu_board(const std::string& product) {
  return product.substr(0, product.find(" MIG "));
}

// A failed run may not tell of what it ran on.
const SetRun& first_timed(const RunArm& arm) { return *timed_runs(arm).front(); }

// The arms that one whose jobs share a GPU is compared with.
class References {
  using Wanted = std::function<bool(const ArmShare& share)>;

 public:
  // `any_batch`: arms of other batches do the same work, too.
  References(const RunSet& set, bool any_batch, double confidence = side_confidence)
      : set_(set), any_batch_(any_batch), confidence_(confidence) {
    for (const RunArm& arm : set.arms) {
      // The whole stands where the first of its unlike jobs is.
      const bool is_first = find_in(set.arms, arm.whole, &RunArm::whole) == &arm;
      const RunArm* asked = arm.whole.empty() ? &arm
                            : is_first        ? find_in(set.wholes, arm.whole, &RunArm::name)
                                              : nullptr;
      if (asked != nullptr && asked->share && !timed_runs(*asked).empty()) arms_.push_back(asked);
    }
  }

  double confidence() const { return confidence_; }

  // Those that share and report how fast they were, in the set's order; of unlike jobs the whole.
  const std::vector<const RunArm*>& arms() const { return arms_; }

  // The unlike jobs of an arm, each by itself; empty: its jobs are alike.
  std::vector<const RunArm*> unlike_jobs_of(const RunArm& arm) const {
    std::vector<const RunArm*> jobs;
    for (const RunArm& job : set_.arms) {
      if (job.whole == arm.name) jobs.push_back(&job);
    }
    return jobs;
  }

  // Equal for arms that did the same work on the same hardware, each job with as many ranks. A job
  // among unlike ones has its own, so that it is that of the same job alone.
  std::string context_of(const RunArm& arm, const ArmShare& share) const {
    const SetRun& run = first_timed(arm);
    std::vector<KeyField> key = run.own_key.empty() ? run.key : run.own_key;
    if (any_batch_) {
      std::erase_if(key, [](const KeyField& field) {
        return field.name == "batch" || follows_batch(field.name);
      });
    }
    return arm.group + '\0' + combination_text(arm, any_batch_) + context_sha256(key) +
           boards_of(arm, share) + ranks_of_jobs(arm);
  }

  // The first arm of a context, undisturbed, and whose jobs share so; null: there is none.
  const RunArm* find(const std::string& context, const Wanted& wanted) const {
    for (const RunArm* other : arms_) {
      if (!other->share->neighbours.empty() || is_on_a_part(*other)) continue;
      if (wanted(*other->share) && context_of(*other, *other->share) == context) return other;
    }
    return nullptr;
  }

  // For each job of an arm the one that did its work alone on the whole GPU; null: there is none.
  std::vector<const RunArm*> alone(const RunArm& arm) const {
    return alone_where(
        arm, [](const ArmShare& share, size_t) { return share.mode == SharingMode::alone; });
  }

  // The same on the same share of it.
  std::vector<const RunArm*> alone_on_shares(const RunArm& arm) const {
    const ArmShare& own = *arm.share;
    if (own.mode == SharingMode::timeslice || own.mode == SharingMode::serial) return alone(arm);
    return alone_where(arm, [&](const ArmShare& share, size_t job) {
      if (share.mode != own.mode || share.jobs != 1) return false;
      if (job < own.profiles.size()) return share.profiles == std::vector{own.profiles[job]};
      return job < own.threads_percent.size() &&
             share.threads_percent == std::vector{own.threads_percent[job]};
    });
  }

 private:
  std::vector<const RunArm*> alone_where(
      const RunArm& arm, const std::function<bool(const ArmShare&, size_t job)>& wanted) const {
    const std::vector<const RunArm*> unlike = unlike_jobs_of(arm);
    std::vector<const RunArm*> found;
    for (size_t job = 0; job < static_cast<size_t>(arm.share->jobs); ++job) {
      const RunArm& asked = job < unlike.size() ? *unlike[job] : arm;
      found.push_back(find(context_of(asked, *arm.share),
                           [&](const ArmShare& share) { return wanted(share, job); }));
    }
    return found;
  }

  // A job of two ranks is no faster than one of one because it shares less.
  std::string ranks_of_jobs(const RunArm& arm) const {
    const Run& run = first_timed(arm).run;
    std::set<int64_t> ranks;
    for (const ConcurrentJob& job : run.jobs) ranks.insert(job.ranks);
    if (run.jobs.empty()) ranks.insert(run.world_size);
    std::string text;
    for (const int64_t count : ranks) text += '\0' + std::to_string(count);
    return text;
  }

  // The key has their chips alone. A MIG device is part of its board where jobs share by MIG; a
  // vGPU is none of a board that is not divided like it.
  std::string boards_of(const RunArm& arm, const ArmShare& share) const {
    std::set<std::string> boards;
    for (const Rank& rank : first_timed(arm).run.ranks) {
      const Gpu* gpu = gpu_of(set_, rank);
      if (gpu == nullptr) continue;
      boards.insert((share.mode == SharingMode::mig ? gpu_board(gpu->name) : gpu->name) + '\0' +
                    gpu->vgpu_profile.value.value_or(""));
    }
    std::string text;
    for (const std::string& board : boards) text += '\0' + board;
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

  const RunSet& set_;
  bool any_batch_;
  double confidence_;
  std::vector<const RunArm*> arms_;
};

struct JobSpeeds {
  std::vector<std::vector<double>> of_runs;  // by run and job
  std::vector<std::string> sessions;         // by run
};

// The normalised progress of an arm's jobs: the speed of each over its speed alone, which adds
// where their work does not.
struct JobProgress : JobSpeeds {
  std::vector<const RunArm*> alone;  // by job
  double part = 1;                   // of the time that each job has: in turn 1 / jobs
};

Maybe<JobSpeeds> job_speeds(const RunArm& arm) {
  JobSpeeds speeds;
  for (const SetRun* run : timed_runs(arm)) {
    if (run->run.jobs.empty()) return Unknown{"one job"};
    if (!run->run.throughput) return Unknown{run->run.throughput.reason};
    speeds.of_runs.push_back(speeds_of_jobs(run->run));
    speeds.sessions.push_back(run->session);
    if (speeds.of_runs.back().size() != speeds.of_runs.front().size()) {
      return Unknown{"its runs have unlike numbers of jobs"};
    }
  }
  return speeds;
}

// Of each job, over the runs, so that what differs from run to run favours none.
std::vector<double> means_of_jobs(const JobSpeeds& speeds) {
  std::vector<double> means;
  for (size_t job = 0; job < speeds.of_runs.front().size(); ++job) {
    means.push_back(geometric_mean(
        transformed(speeds.of_runs, [&](const auto& of_jobs) { return of_jobs.at(job); })));
  }
  return means;
}

// A figure that each run has.
template <class OfRun>
Sessions by_session(const JobSpeeds& speeds, const OfRun& of_run) {
  Sessions sessions;
  for (size_t i = 0; i < speeds.of_runs.size(); ++i) {
    sessions[speeds.sessions[i]].push_back(std::log(of_run(speeds.of_runs[i])));
  }
  return sessions;
}

Estimate worst_of_best(const JobSpeeds& speeds) {
  const std::vector<double> means = means_of_jobs(speeds);
  const auto [worst, best] = std::ranges::minmax_element(means);
  const size_t slowest = worst - means.begin(), fastest = best - means.begin();
  // The pair is the one of all pairs that differs most (Bonferroni).
  const size_t pairs = std::max<size_t>(1, means.size() * (means.size() - 1) / 2);
  const auto ratio = [=](const std::vector<double>& run) { return run[slowest] / run[fastest]; };
  return mean_estimate(by_session(speeds, ratio),
                       1 - (1 - side_confidence) / static_cast<double>(pairs));
}

void add_fairness(const Maybe<JobSpeeds>& speeds, FractionPoint& point) {
  point.fairness = point.worst_of_best = Unknown{speeds.reason};
  if (!speeds) return;
  point.fairness = mean_estimate(by_session(*speeds, jain_fairness));
  point.worst_of_best = worst_of_best(*speeds);
}

double sum_of(const JobProgress& progress, const std::vector<double>& jobs) {
  return progress.part * std::accumulate(jobs.begin(), jobs.end(), 0.0);
}

Sessions sessions_of(const JobProgress& progress) {
  return by_session(progress, [&](const auto& jobs) { return sum_of(progress, jobs); });
}

// Relative change of the sum by that of an arm alone: the share of its jobs in the sum.
std::map<const RunArm*, double> weights_of(const JobProgress& progress) {
  std::map<const RunArm*, double> weights;
  const double all = mean(transformed(
      progress.of_runs, [&](const auto& of_jobs) { return sum_of(progress, of_jobs); }));
  const auto runs = static_cast<double>(progress.of_runs.size());
  for (const std::vector<double>& jobs : progress.of_runs) {
    for (size_t job = 0; job < jobs.size(); ++job) {
      weights[progress.alone[job]] += progress.part * jobs[job] / all / runs;
    }
  }
  return weights;
}

// Of throughputs.
Estimate speed_ratio(const RunArm& arm, const RunArm& base, double confidence = side_confidence) {
  return ratio_estimate(throughput_sessions(arm), throughput_sessions(base), confidence);
}

// Works of unlike jobs that no arm did alone; empty: there are none.
std::string missing_alone(const std::vector<const RunArm*>& jobs,
                          const std::vector<const RunArm*>& alone) {
  std::vector<std::string> works;
  for (size_t job = 0; job < jobs.size(); ++job) {
    if (alone.at(job) == nullptr) add_new(works, work_of(jobs[job]->runs.front()));
  }
  return works.empty() ? "" : "no arm did this alone: " + joined(works, "; ");
}

Maybe<JobProgress> progress_of(const References& references, const RunArm& arm) {
  const std::vector<const RunArm*> alone = references.alone(arm);
  const std::string missing = missing_alone(references.unlike_jobs_of(arm), alone);
  if (!missing.empty()) return Unknown{missing};
  if (std::ranges::find(alone, nullptr) != alone.end()) return Unknown{"no such job ran alone"};
  if (std::ranges::find(alone, &arm) != alone.end()) return Unknown{"it is the reference"};
  JobProgress progress{{}, alone};
  if (arm.share->mode == SharingMode::serial)
    progress.part = 1.0 / static_cast<double>(alone.size());
  for (const SetRun* run : timed_runs(arm)) {
    std::vector<double> speeds = speeds_of_jobs(run->run);
    if (speeds.size() != alone.size()) return Unknown{"it does not report each job"};
    for (size_t job = 0; job < speeds.size(); ++job) {
      speeds[job] /= mean_of(throughput_sessions(*alone[job]));
    }
    progress.of_runs.push_back(std::move(speeds));
    progress.sessions.push_back(run->session);
  }
  return progress;
}

// The sum over the jobs: how many jobs' worth of work is done in the time of one alone.
Estimate weighted_speedup(const JobProgress& progress) {
  std::vector<SessionTerm> terms = {{1, sessions_of(progress)}};
  for (const auto& [alone, weight] : weights_of(progress)) {
    terms.push_back({-weight, throughput_sessions(*alone)});
  }
  return estimate_around(mean_of(terms.front().runs), terms);
}

// The progress of one arm over that of another whose jobs do the same.
Estimate ratio_of(const JobProgress& progress, const JobProgress& base, double confidence) {
  std::vector<SessionTerm> terms = {{1, sessions_of(progress)}, {-1, sessions_of(base)}};
  const double value = mean_of(terms[0].runs) / mean_of(terms[1].runs);
  std::map<const RunArm*, double> weights = weights_of(base);
  for (const auto& [alone, weight] : weights_of(progress)) weights[alone] -= weight;
  for (const auto& [alone, weight] : weights) {
    terms.push_back({weight, throughput_sessions(*alone)});
  }
  return estimate_around(value, terms, confidence);
}

// How many times as long jobs take as those of `alone`, one arm for each job.
Maybe<Estimate> slowdown(const RunArm& arm, const std::vector<const RunArm*>& alone) {
  Sessions speeds;  // geometric means over the jobs of each run
  for (const SetRun* run : timed_runs(arm)) {
    speeds[run->session].push_back(std::log(geometric_mean(speeds_of_jobs(run->run))));
  }
  std::map<const RunArm*, double> weights;
  for (const RunArm* other : alone) {
    if (other == nullptr) return Unknown{"no such job ran alone"};
    if (other == &arm) return Unknown{"it is the reference"};
    weights[other] += 1 / static_cast<double>(alone.size());
  }
  double logarithm = -std::log(mean_of(speeds));
  std::vector<SessionTerm> terms = {{-1, std::move(speeds)}};
  for (const auto& [other, weight] : weights) {
    terms.push_back({weight, throughput_sessions(*other)});
    logarithm += weight * std::log(mean_of(terms.back().runs));
  }
  return estimate_around(std::exp(logarithm), terms);
}

// The inflation by the worst rank of the worst job, each beside the one alone.
Maybe<double> p99_inflation(const std::vector<const RunArm*>& jobs,
                            const std::vector<const RunArm*>& alone) {
  double worst = 0;
  for (size_t job = 0; job < jobs.size(); ++job) {
    if (alone.at(job) == nullptr) return Unknown{"no such job ran alone"};
    if (alone[job] == jobs[job]) return Unknown{"it is the reference"};
    const Maybe<double> of_job = worst_p99_seconds(*jobs[job]);
    const Maybe<double> of_alone = worst_p99_seconds(*alone[job]);
    if (!of_job || !of_alone) return Unknown{of_job ? of_alone.reason : of_job.reason};
    worst = std::max(worst, *of_job / *of_alone);
  }
  return worst;
}

JobPoint job_point(const RunArm& job, const RunArm* alone) {
  JobPoint point{.task = task_of_run(job.runs.front()),
                 .work = work_of(job.runs.front()),
                 .rate = words_of(unit_of(job)).rate,
                 .throughput = mean_estimate(throughput_sessions(job))};
  const Unknown none{missing_alone({&job}, {alone})};
  point.alone = none;
  point.of_alone = none;
  if (alone == nullptr) return point;
  point.alone = mean_of(throughput_sessions(*alone));
  point.of_alone = speed_ratio(job, *alone);
  return point;
}

// With as many jobs, which did the same.
Maybe<Estimate> against(const References& references, const RunArm& arm, SharingMode mode,
                        bool unlike) {
  if (!arm.share->neighbours.empty()) return Unknown{"its neighbours train nothing"};
  const auto wanted = [&](const ArmShare& share) {
    return share.mode == mode && share.jobs == arm.share->jobs;
  };
  const RunArm* other = references.find(references.context_of(arm, *arm.share), wanted);
  if (other == nullptr) return Unknown{"no arm of as many jobs is so"};
  if (other == &arm) return Unknown{"it is the reference"};
  if (!unlike) return speed_ratio(arm, *other, references.confidence());
  const Maybe<JobProgress> progress = progress_of(references, arm),
                           base = progress_of(references, *other);
  if (!progress || !base) return Unknown{progress ? base.reason : progress.reason};
  return ratio_of(*progress, *base, references.confidence());
}

FractionPoint point_of(const RunSet& set, const References& references, const RunArm& arm) {
  FractionPoint point;
  point.arm = arm.name;
  point.mode = arm.share->mode;
  point.jobs = arm.share->jobs;
  point.runs = std::ssize(timed_runs(arm));
  const Maybe<JobSpeeds> speeds = job_speeds(arm);
  point.memory_bytes = memory_of(arm);
  point.power_watts = power_of(set, arm);
  point.job_speeds = Unknown{speeds.reason};
  if (speeds) {
    const auto [slowest, fastest] = std::ranges::minmax(means_of_jobs(*speeds));
    point.job_speeds = Interval{slowest, fastest};
  }
  point.given = share_limits_text(set, *arm.share, timed_runs(arm).front()->run);
  const std::vector<const RunArm*> unlike = references.unlike_jobs_of(arm);
  const std::vector<const RunArm*> alone = references.alone(arm);
  point.of_serial = against(references, arm, SharingMode::serial, !unlike.empty());
  point.of_timeslice = against(references, arm, SharingMode::timeslice, !unlike.empty());
  point.slowdown = slowdown(arm, alone);
  point.interference = slowdown(arm, references.alone_on_shares(arm));
  const Maybe<JobProgress> progress = progress_of(references, arm);
  point.weighted_speedup = Unknown{progress.reason};
  if (progress) point.weighted_speedup = weighted_speedup(*progress);
  if (unlike.empty()) {
    point.throughput = mean_estimate(throughput_sessions(arm));
    point.samples_per_joule = samples_per_joule(set, arm, point.throughput->value);
    point.p99_inflation = p99_inflation({&arm}, {alone.front()});
    add_fairness(speeds, point);
    return point;
  }
  point.throughput = Unknown{unlike_work};
  point.samples_per_joule = Unknown{unlike_work};
  point.p99_inflation = p99_inflation(unlike, alone);
  // Their rates do not compare.
  add_fairness(progress ? Maybe<JobSpeeds>(*progress) : Unknown{progress.reason}, point);
  for (size_t job = 0; job < unlike.size(); ++job) {
    point.unlike_jobs.push_back(job_point(*unlike[job], alone.at(job)));
  }
  return point;
}

}  // namespace

bool shares_a_device(const RunSet& set) {
  const auto shares = [](const RunArm& arm) { return arm.share.has_value(); };
  return std::ranges::any_of(set.arms, shares) || std::ranges::any_of(set.wholes, shares);
}

const DeviceWords& device_words_of(const RunSet& set) {
  const auto is_on_cpus = [](const RunArm& arm) {
    return std::ranges::all_of(arm.runs,
                               [](const SetRun& run) { return run.run.device == Device::cpu; });
  };
  const bool cpus =
      std::ranges::all_of(set.arms, is_on_cpus) && std::ranges::all_of(set.wholes, is_on_cpus);
  return words_of(cpus ? Device::cpu : Device::cuda);
}

std::vector<FractionPoint> fractions_of(const RunSet& set, bool any_batch, double confidence) {
  const References references(set, any_batch, confidence);
  return transformed(references.arms(),
                     [&](const RunArm* arm) { return point_of(set, references, *arm); });
}

RunSet with_best_batches(const RunSet& set) {
  bool any_choice = false;
  RunSet best;
  best.environments = set.environments;
  const References references(set, true);
  for (const RunArm& arm : set.arms) {
    // Unlike jobs may have a batch each, and the speed of one of them is not that of its arm.
    if (!arm.share || !arm.whole.empty() || timed_runs(arm).empty()) continue;
    const auto same = std::ranges::find_if(best.arms, [&](const RunArm& other) {
      return other.share == arm.share &&
             references.context_of(other, *other.share) == references.context_of(arm, *arm.share);
    });
    if (same == best.arms.end()) {
      best.arms.push_back(arm);
      continue;
    }
    any_choice |= key_value(arm.runs.front(), "batch") != key_value(same->runs.front(), "batch");
    if (mean_of(throughput_sessions(arm)) > mean_of(throughput_sessions(*same))) {
      *same = arm;
    }
  }
  return any_choice ? best : RunSet{};
}

}  // namespace nearmetal
