#include "reports/fractions.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "reports/statistics.h"
#include "reports/text.h"
#include "reports/text_table.h"

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

double geometric_mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += std::log(value);
  return std::exp(sum / static_cast<double>(values.size()));
}

// `scale` x speed of `arm` / speed of `base`.
SpeedRatio ratio(const RunArm& arm, const RunArm& base, double scale = 1) {
  const std::vector<double> of_arm = throughputs(arm), of_base = throughputs(base);
  SpeedRatio result{scale * geometric_mean(of_arm) / geometric_mean(of_base),
                    Unknown{"fewer than 2 runs"}};
  const auto next = log_mean(of_arm), first = log_mean(of_base);
  if (!next || !first) return result;
  const Interval factors = interval(difference(*first, *next), confidence);
  result.interval = Interval{scale * factors.lower, scale * factors.upper};
  return result;
}

// Worst over the ranks of a run, mean over the runs; unknown where a rank of a run is.
template <class ValueOf>
Maybe<double> worst_of_ranks(const RunArm& arm, const ValueOf& value_of) {
  std::vector<double> worst;
  for (const Run* run : complete_runs(arm)) {
    double largest = 0;
    for (const Rank& rank : run->ranks) {
      const Maybe<double> value = value_of(rank);
      if (!value) return value;
      largest = std::max(largest, *value);
    }
    worst.push_back(largest);
  }
  return mean(worst);
}

Maybe<double> p99_seconds(const Rank& rank) {
  if (!rank.step_time) return Unknown{rank.step_time.reason};
  return rank.step_time->p99_seconds;
}

const MonitoredSeries* series_of(const Rank& rank, const char* name) {
  if (!rank.monitoring) return nullptr;
  for (const MonitoredSeries& series : rank.monitoring->series) {
    if (series.name == name) return &series;
  }
  return nullptr;
}

Maybe<double> memory_bytes(const Rank& rank) {
  const MonitoredSeries* series = series_of(rank, "memory_used_bytes");
  return series == nullptr ? Maybe<double>(Unknown{"not monitored"})
                           : Maybe<double>(series->maximum);
}

Maybe<double> watts(const Rank& rank) {
  const MonitoredSeries* series = series_of(rank, "power_watts");
  return series == nullptr ? Maybe<double>(Unknown{"not monitored"}) : Maybe<double>(series->mean);
}

// Mean over the runs of what their jobs show.
Maybe<double> of_jobs(const RunArm& arm, const std::function<double(const Run& run)>& value_of) {
  std::vector<double> values;
  for (const Run* run : complete_runs(arm)) {
    if (run->jobs.empty()) return Unknown{"one job"};
    values.push_back(value_of(*run));
  }
  return mean(values);
}

double worst_of_best(const Run& run) {
  const auto [worst, best] = std::minmax_element(
      run.jobs.begin(), run.jobs.end(), [](const ConcurrentJob& a, const ConcurrentJob& b) {
        return a.throughput_images_per_second < b.throughput_images_per_second;
      });
  return worst->throughput_images_per_second / best->throughput_images_per_second;
}

double start_skew(const Run& run) {
  double skew = 0;
  for (const ConcurrentJob& job : run.jobs) skew = std::max(skew, job.start_seconds);
  return skew;
}

class Fractions {
 public:
  explicit Fractions(const RunSet& set) {
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
  const RunArm* find(const std::function<bool(const ArmShare& share)>& wanted) const {
    const auto found = std::find_if(arms_.begin(), arms_.end(),
                                    [&](const RunArm* arm) { return wanted(*arm->share); });
    return found == arms_.end() ? nullptr : *found;
  }
  const RunArm* with(const char* way, int64_t jobs) const {
    return find([&](const ArmShare& share) { return share.way == way && share.jobs == jobs; });
  }
  // One job that has what each of these jobs has. Unequal shares have no such arm.
  const RunArm* alone_on_the_share_of(const ArmShare& share) const {
    if (share.way == "timeslice" || share.way == "serial") return with("alone", 1);
    const std::vector<int64_t>& parts = share.threads_percent;
    if (parts.empty()) return nullptr;
    if (std::adjacent_find(parts.begin(), parts.end(), std::not_equal_to<>()) != parts.end()) {
      return nullptr;
    }
    return find([&](const ArmShare& other) {
      return other.way == share.way && other.jobs == 1 &&
             other.threads_percent == std::vector<int64_t>{parts.front()};
    });
  }

  // How many times as long a job takes. Serial jobs have the GPU to themselves in turn.
  static Maybe<SpeedRatio> slowdown(const RunArm& arm, const RunArm* alone) {
    if (alone == nullptr) return Unknown{"no such job ran alone"};
    if (alone == &arm) return Unknown{"it is the reference"};
    const bool in_turn = arm.share->way == "serial";
    return ratio(*alone, arm, in_turn ? 1 : static_cast<double>(arm.share->jobs));
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
    point.fairness = of_jobs(arm, [](const Run& run) { return run.jain_fairness.value_or(1); });
    point.worst_of_best = of_jobs(arm, worst_of_best);
    point.start_skew_seconds = Unknown{"in turn"};
    if (arm.share->way != "serial") point.start_skew_seconds = of_jobs(arm, start_skew);
    point.memory_bytes = worst_of_ranks(arm, memory_bytes);
    const Maybe<double> power = worst_of_ranks(arm, watts);
    point.images_per_joule = Unknown{power.reason};
    if (power && *power > 0) point.images_per_joule = point.throughput_images_per_second / *power;
    return point;
  }

  void compare(const RunArm& arm, FractionPoint& point) const {
    const int64_t jobs = arm.share->jobs;
    for (const auto& [way, member] : {std::pair("serial", &FractionPoint::of_serial),
                                      std::pair("timeslice", &FractionPoint::of_timeslice)}) {
      const RunArm* other = with(way, jobs);
      point.*member = Unknown{"no arm of as many jobs is so"};
      if (other == &arm) point.*member = Unknown{"it is the reference"};
      if (other != nullptr && other != &arm) point.*member = ratio(arm, *other);
    }
    const RunArm* alone = with("alone", 1);
    point.slowdown = slowdown(arm, alone);
    point.interference = slowdown(arm, alone_on_the_share_of(*arm.share));
    point.p99_inflation = Unknown{"no job ran alone"};
    if (alone == nullptr || alone == &arm) return;
    const Maybe<double> of_arm = worst_of_ranks(arm, p99_seconds);
    const Maybe<double> of_alone = worst_of_ranks(*alone, p99_seconds);
    if (of_arm && of_alone) point.p99_inflation = *of_arm / *of_alone;
  }

  std::vector<const RunArm*> arms_;
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

std::vector<std::string> row_of(const FractionPoint& point) {
  return {point.arm,
          std::to_string(point.runs),
          point.throughput_interval
              ? with_interval(point.throughput_images_per_second, *point.throughput_interval)
              : significant(point.throughput_images_per_second),
          cell(point.of_serial),
          cell(point.of_timeslice),
          plain_cell(point.slowdown),
          plain_cell(point.interference),
          cell(point.p99_inflation),
          cell(point.fairness, 1, 4),
          cell(point.worst_of_best),
          cell(point.memory_bytes, 1e-9),
          cell(point.images_per_joule)};
}

}  // namespace

const char* const fraction_columns =
    "x serial, x time slices: throughput of all jobs over that arm's; slowdown: how many times as "
    "long a job takes as alone on the whole; by neighbours: as alone on the same share; p99 step: "
    "over that of one alone";

bool shares_a_gpu(const RunSet& set) {
  return std::any_of(set.arms.begin(), set.arms.end(),
                     [](const RunArm& arm) { return arm.share.has_value(); });
}

std::vector<FractionPoint> fractions_of(const RunSet& set) { return Fractions(set).points(); }

std::string unsupported_text(const UnsupportedArm& arm) {
  return printable(arm.name) + ": unsupported: " + printable(arm.reason);
}

TextTable fraction_table(const RunSet& set) {
  TextTable table{{{"arm"},
                   {"runs", true},
                   {"images/s [95 %]", true},
                   {"x serial", true},
                   {"x time slices", true},
                   {"slowdown", true},
                   {"by neighbours", true},
                   {"p99 step", true},
                   {"fairness", true},
                   {"worst/best", true},
                   {"GB", true},
                   {"images/J", true}},
                  {}};
  for (const FractionPoint& point : fractions_of(set)) table.rows.push_back(row_of(point));
  return table;
}

}  // namespace nearmetal
