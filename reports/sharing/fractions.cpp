#include "reports/sharing/fractions.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "reports/compare/compare.h"
#include "reports/compare/comparison_row.h"
#include "reports/compare/work_text.h"
#include "reports/document/metric.h"
#include "reports/sharing/arm_figures.h"
#include "reports/sharing/references.h"
#include "reports/statistics/statistics.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

// The geometric mean over the jobs of each run.
std::vector<double> job_speeds(const RunArm& arm) {
  std::vector<double> speeds;
  for (const Run* run : timed_runs(arm)) {
    speeds.push_back(geometric_mean(speeds_of_jobs(*run)));
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
  WeightedSamples samples = {{-1, speeds}};
  for (const auto& [other, weight] : weights) {
    samples.emplace_back(weight, throughputs(*other));
    logarithm += weight * std::log(geometric_mean(samples.back().second));
  }
  const double value = std::exp(logarithm);
  return SpeedRatio{value, interval_around(value, samples)};
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

// Works of unlike jobs that no arm did alone; empty: there are none.
std::string missing_alone(const std::vector<const RunArm*>& jobs,
                          const std::vector<const RunArm*>& alone) {
  std::vector<std::string> works;
  for (size_t job = 0; job < jobs.size(); ++job) {
    if (alone.at(job) != nullptr) continue;
    const std::string work = work_of(jobs[job]->runs.front());
    if (std::ranges::find(works, work) == works.end()) works.push_back(work);
  }
  return works.empty() ? "" : "no arm did this alone: " + joined(works, "; ");
}

JobPoint job_point(const RunArm& job, const RunArm* alone) {
  const std::vector<double> values = throughputs(job);
  JobPoint point{.task = task_of_run(job.runs.front()),
                 .work = work_of(job.runs.front()),
                 .rate = words_of(unit_of(job)).rate,
                 .runs = std::ssize(values)};
  point.throughput = geometric_mean(values);
  point.throughput_interval = interval_around(*point.throughput, {{1, values}});
  const Unknown none{missing_alone({&job}, {alone})};
  point.alone = none;
  point.of_alone = none;
  if (alone == nullptr) return point;
  point.alone = geometric_mean(throughputs(*alone));
  point.of_alone = speed_ratio(job, *alone);
  return point;
}

class Fractions {
 public:
  Fractions(const RunSet& set, bool any_batch) : set_(set), references_(set, any_batch) {}

  std::vector<FractionPoint> points() const {
    std::vector<FractionPoint> points;
    for (const RunArm* arm : references_.arms()) points.push_back(point_of(*arm));
    return points;
  }

 private:
  FractionPoint point_of(const RunArm& arm) const {
    FractionPoint point;
    point.arm = arm.name;
    point.way = arm.share->mode;
    point.jobs = arm.share->jobs;
    point.runs = std::ssize(timed_runs(arm));
    point.fairness = fairness_of(arm);
    point.worst_of_best = worst_of_best(arm);
    point.memory_bytes = memory_of(arm);
    point.power_watts = power_of(set_, arm);
    point.job_speeds = job_speeds_of(arm);
    point.given = share_limits_text(set_, *arm.share, *timed_runs(arm).front());
    const std::vector<const RunArm*> unlike = references_.unlike_jobs_of(arm);
    const std::vector<const RunArm*> alone = references_.alone(arm);
    add_throughput(arm, !unlike.empty(), point);
    compare(arm, unlike, alone, point);
    for (size_t job = 0; job < unlike.size(); ++job) {
      point.unlike_jobs.push_back(job_point(*unlike[job], alone.at(job)));
    }
    return point;
  }

  void add_throughput(const RunArm& arm, bool unlike, FractionPoint& point) const {
    if (unlike) {
      point.throughput = point.samples_per_joule = Unknown{unlike_work};
      point.throughput_interval = Unknown{unlike_work};
      return;
    }
    const std::vector<double> values = throughputs(arm);
    point.throughput = geometric_mean(values);
    point.throughput_interval = interval_around(*point.throughput, {{1, values}});
    point.samples_per_joule = samples_per_joule(set_, arm, *point.throughput);
  }

  Maybe<JobProgress> progress_in(const RunArm& arm) const {
    const std::vector<const RunArm*> alone = references_.alone(arm);
    const std::string missing = missing_alone(references_.unlike_jobs_of(arm), alone);
    if (!missing.empty()) return Unknown{missing};
    return progress_of(arm, alone);
  }

  // With as many jobs, which did the same.
  Maybe<SpeedRatio> against(const RunArm& arm, SharingMode way, bool unlike) const {
    if (!arm.share->neighbours.empty()) return Unknown{"its neighbours train nothing"};
    const RunArm* other = references_.find(arm, [&](const ArmShare& share) {
      return share.mode == way && share.jobs == arm.share->jobs;
    });
    if (other == nullptr) return Unknown{"no arm of as many jobs is so"};
    if (other == &arm) return Unknown{"it is the reference"};
    if (!unlike) return speed_ratio(arm, *other);
    const Maybe<JobProgress> progress = progress_in(arm), base = progress_in(*other);
    if (!progress || !base) return Unknown{progress ? base.reason : progress.reason};
    return ratio_of(*progress, *base);
  }

  void compare(const RunArm& arm, const std::vector<const RunArm*>& unlike,
               const std::vector<const RunArm*>& alone, FractionPoint& point) const {
    point.of_serial = against(arm, SharingMode::serial, !unlike.empty());
    point.of_timeslice = against(arm, SharingMode::timeslice, !unlike.empty());
    point.slowdown = slowdown(arm, alone);
    point.interference = slowdown(arm, references_.alone_on_shares(arm));
    point.p99_inflation =
        unlike.empty() ? p99_inflation({&arm}, {alone.front()}) : p99_inflation(unlike, alone);
    const Maybe<JobProgress> progress = progress_in(arm);
    point.weighted_speedup = Unknown{progress.reason};
    if (progress) point.weighted_speedup = weighted_speedup(*progress);
    if (unlike.empty()) return;
    point.fairness = point.worst_of_best = Unknown{progress.reason};  // rates do not compare
    if (!progress) return;
    point.fairness = fairness_of(*progress);
    point.worst_of_best = worst_of_best(*progress);
  }

  const RunSet& set_;
  References references_;
};

std::string cell(const Maybe<SpeedRatio>& ratio) {
  if (!ratio) return "-";
  if (!ratio->interval) return significant(ratio->value, 3);
  return with_interval(ratio->value, *ratio->interval);
}

std::string plain_cell(const Maybe<SpeedRatio>& ratio) {
  return ratio ? significant(ratio->value, 3) : "-";
}

std::string cell(const Maybe<double>& value, double scale = 1, int digits = 3) {
  return value ? significant(scale * *value, digits) : "-";
}

std::string cell(const Maybe<double>& mean, const Maybe<Interval>& interval) {
  if (!mean) return "-";
  return interval ? with_interval(*mean, *interval) : significant(*mean);
}

// "2436 to 2440", or one where they do not differ to four digits.
std::string cell(const Maybe<Interval>& speeds) {
  if (!speeds) return "-";
  const std::string slowest = significant(speeds->lower), fastest = significant(speeds->upper);
  return slowest == fastest ? slowest : slowest + " to " + fastest;
}

std::string speed_legend(const DeviceWords& device) {
  return "x serial, x time slices: throughput of all jobs over that of the arm so named; slowdown: "
         "time of a job over its time alone on " +
         std::string(device.whole) + "; by neighbours: over its time alone on the same share";
}

constexpr const char* unlike_legend =
    "; weighted speedup: the sum over jobs of each one's speed over its speed alone; it takes the "
    "place of throughput for unlike jobs, and is 1 for jobs one after another";

std::string cost_legend(const UnitWords& words, const DeviceWords& device) {
  return std::string("each job: ") + words.rate +
         " of the slowest and of the fastest job; fairness: Jain's index; p99 step: over that of a "
         "job alone; GB, W: peak memory and mean power of " +
         device.name + "; a job has: " + device.part + ", at most";
}

TextTable speed_table(const std::vector<FractionPoint>& points, const UnitWords& words) {
  TextTable table{{{"arm"},
                   {"runs", true},
                   {std::string(words.rate) + " [95 %]", true},
                   {"x serial", true},
                   {"x time slices", true},
                   {"slowdown", true},
                   {"by neighbours", true}},
                  {}};
  const bool unlike = has_unlike_jobs(points);
  if (unlike) table.columns.insert(table.columns.begin() + 3, {"weighted speedup", true});
  for (const FractionPoint& point : points) {
    std::vector<std::string> row = {point.arm,
                                    std::to_string(point.runs),
                                    cell(point.throughput, point.throughput_interval),
                                    cell(point.of_serial),
                                    cell(point.of_timeslice),
                                    plain_cell(point.slowdown),
                                    plain_cell(point.interference)};
    if (unlike) row.insert(row.begin() + 3, cell(point.weighted_speedup));
    table.rows.push_back(std::move(row));
  }
  return table;
}

// A row for each of an arm's jobs, in the unit of its own work.
TextTable unlike_table(const std::vector<FractionPoint>& points) {
  TextTable table{{{"arm"},
                   {"job", true},
                   {"work"},
                   {"speed [95 %]", true},
                   {"unit"},
                   {"alone", true},
                   {"x alone", true}},
                  {}};
  for (const FractionPoint& point : points) {
    for (size_t job = 0; job < point.unlike_jobs.size(); ++job) {
      const JobPoint& told = point.unlike_jobs[job];
      table.rows.push_back({point.arm, std::to_string(job + 1), told.work,
                            cell(told.throughput, told.throughput_interval), told.rate,
                            cell(told.alone, 1, 4), cell(told.of_alone)});
    }
  }
  return table;
}

// Each reason once why a job has nothing beside it.
std::string unlike_table_legend(const std::vector<FractionPoint>& points) {
  std::vector<std::string> reasons;
  for (const FractionPoint& point : points) {
    for (const JobPoint& job : point.unlike_jobs) {
      const bool told = std::ranges::find(reasons, job.alone.reason) != reasons.end();
      if (!job.alone && !told) reasons.push_back(job.alone.reason);
    }
  }
  return joined(reasons, "; ");
}

TextTable cost_table(const std::vector<FractionPoint>& points, const UnitWords& words) {
  TextTable table{{{"arm"},
                   {"each job", true},
                   {"worst/best", true},
                   {"fairness", true},
                   {"p99 step", true},
                   {"GB", true},
                   {"W", true},
                   {words.per_joule, true},
                   {"a job has"}},
                  {}};
  for (const FractionPoint& point : points) {
    table.rows.push_back({point.arm, cell(point.job_speeds), cell(point.worst_of_best),
                          cell(point.fairness, 1, 4), cell(point.p99_inflation),
                          cell(point.memory_bytes, 1e-9), cell(point.power_watts),
                          cell(point.samples_per_joule), point.given});
  }
  return table;
}

struct NeighboursOfOneLoad {
  Neighbour all;        // sums over neighbours and runs
  int64_t counted = 0;  // neighbours, over all runs
};

// The joint work of the neighbours of one load, for each arm that has some, as the mean of its
// runs.
TextTable neighbours_table(const RunSet& set) {
  TextTable table{{{"arm"}, {"neighbours", true}, {"load"}, {"all of them", true}}, {}};
  for (const RunArm& arm : set.arms) {
    std::map<std::string, NeighboursOfOneLoad> loads;
    int64_t runs = 0;
    for (const SetRun& run : arm.runs) {
      if (run.run.status != Status::complete) continue;
      ++runs;
      for (const Neighbour& one : run.run.neighbours) {
        NeighboursOfOneLoad& load = loads[one.load];
        ++load.counted;
        load.all.runs_per_second += one.runs_per_second;
        load.all.bytes_per_second += one.bytes_per_second;
        load.all.flops_per_second += one.flops_per_second;
      }
    }
    for (auto& [name, load] : loads) {
      Neighbour mean = load.all;
      for (double* rate : {&mean.runs_per_second, &mean.bytes_per_second, &mean.flops_per_second}) {
        *rate /= static_cast<double>(runs);
      }
      table.rows.push_back({arm.name, std::to_string(load.counted / runs), name, rate_text(mean)});
    }
  }
  return table;
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

bool has_unlike_jobs(const std::vector<FractionPoint>& points) {
  return std::ranges::any_of(points,
                             [](const FractionPoint& point) { return !point.unlike_jobs.empty(); });
}

std::vector<FractionPoint> fractions_of(const RunSet& set, bool any_batch) {
  return Fractions(set, any_batch).points();
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
      return other.share == arm.share && references.same_context(other, arm);
    });
    if (same == best.arms.end()) {
      best.arms.push_back(arm);
      continue;
    }
    any_choice |= key_value(arm.runs.front(), "batch") != key_value(same->runs.front(), "batch");
    if (geometric_mean(throughputs(arm)) > geometric_mean(throughputs(*same))) {
      *same = arm;
    }
  }
  return any_choice ? best : RunSet{};
}

std::string rate_text(const Neighbour& neighbour) {
  if (neighbour.flops_per_second > 0) {
    return significant(1e-12 * neighbour.flops_per_second) + " TFLOP/s";
  }
  if (neighbour.bytes_per_second > 0) {
    return significant(1e-9 * neighbour.bytes_per_second) + " GB/s";
  }
  return significant(neighbour.runs_per_second) + " runs/s";
}

std::string unsupported_text(const UnsupportedArm& arm) {
  return printable(arm.name) + ": unsupported: " + printable(arm.reason);
}

std::vector<TitledTable> fraction_tables(const RunSet& set) {
  const std::vector<FractionPoint> points = fractions_of(set);
  const UnitWords& words = words_of(units_of(set));
  const bool unlike = has_unlike_jobs(points);
  const DeviceWords& device = device_words_of(set);
  std::vector<TitledTable> tables = {{std::string("Jobs that share ") + device.shared,
                                      speed_table(points, words),
                                      speed_legend(device) + (unlike ? unlike_legend : "")}};
  if (unlike) {
    tables.push_back({"Each of unlike jobs, and its speed alone", unlike_table(points),
                      unlike_table_legend(points)});
  }
  const std::string use = std::string(", and use of ") + device.name;
  tables.push_back({"Each job" + use, cost_table(points, words), cost_legend(words, device)});
  TextTable neighbours = neighbours_table(set);
  if (!neighbours.rows.empty()) {
    tables.push_back({"What the neighbours did", std::move(neighbours)});
  }
  const RunSet best = with_best_batches(set);
  if (best.arms.empty()) return tables;
  const std::vector<FractionPoint> best_points = fractions_of(best, true);
  tables.push_back({"The best batch of each way", speed_table(best_points, words)});
  tables.push_back({"Each job of these" + use, cost_table(best_points, words)});
  return tables;
}

}  // namespace nearmetal
