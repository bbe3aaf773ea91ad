#include "reports/sharing/fraction_tables.h"

#include <map>
#include <utility>

#include "base/text.h"
#include "reports/compare/comparison_row.h"
#include "reports/sharing/fractions.h"

namespace nearmetal {
namespace {

std::string plain_cell(const Maybe<Estimate>& ratio) {
  return ratio ? significant(ratio->value, 3) : "-";
}

std::string cell(const Maybe<Estimate>& ratio) {
  return ratio && ratio->interval ? estimate_text(*ratio) : plain_cell(ratio);
}

std::string cell(const Maybe<double>& value, double scale = 1) {
  return significant_or_dash(value, scale, 3);
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

std::string cost_legend(const TextTable& table, const UnitWords& words, const DeviceWords& device) {
  const bool tells_use = find_in(table.columns, "GB", &TextTable::Column::title) != nullptr;
  return std::string("each job: ") + words.rate +
         " of the slowest and of the fastest job; fairness: Jain's index; p99 step: over that of a "
         "job alone" +
         (tells_use ? std::string("; GB, W: peak memory and mean power of ") + device.name +
                          "; a job has: " + device.part + ", at most"
                    : "");
}

TextTable speed_table(const RunSet& set, const std::vector<FractionPoint>& points,
                      const UnitWords& words, bool unlike) {
  TextTable table{.columns = {{"arm"},
                              {"runs", true},
                              {std::string(words.rate) + " [95 %]", true},
                              {"x serial", true},
                              {"x time slices", true},
                              {"slowdown", true},
                              {"by neighbours", true}}};
  if (unlike) table.columns.insert(table.columns.begin() + 3, {"weighted speedup", true});
  for (const FractionPoint& point : points) {
    const RunArm* arm = arm_named(point.arm, set);
    const Metric& metric = throughput_metric(arm ? unit_of(*arm) : SampleUnit::image);
    std::vector<std::string> row = {point.arm,
                                    std::to_string(point.runs),
                                    arm ? mean_text(summary_of_arm(*arm, metric), metric) : "-",
                                    cell(point.of_serial),
                                    cell(point.of_timeslice),
                                    plain_cell(point.slowdown),
                                    plain_cell(point.interference)};
    if (unlike) row.insert(row.begin() + 3, cell(point.weighted_speedup));
    table.rows.push_back(std::move(row));
  }
  leave_out_empty_columns(table);
  return table;
}

// A row for each of an arm's jobs, in its own unit; below each reason why a job has none beside it.
TitledTable unlike_table(const std::vector<FractionPoint>& points) {
  std::vector<std::string> reasons;
  TextTable table{.columns = {{"arm"},
                              {"job", true},
                              {"work"},
                              {"speed [95 %]", true},
                              {"unit"},
                              {"alone", true},
                              {"x alone", true}}};
  for (const FractionPoint& point : points) {
    for (size_t job = 0; job < point.unlike_jobs.size(); ++job) {
      const JobPoint& job_point = point.unlike_jobs[job];
      if (!job_point.alone) add_new(reasons, job_point.alone.reason);
      table.rows.push_back({point.arm, std::to_string(job + 1), job_point.work,
                            job_point.throughput ? estimate_text(*job_point.throughput) : "-",
                            job_point.rate, significant_or_dash(job_point.alone),
                            cell(job_point.of_alone)});
    }
  }
  return {"Each of unlike jobs, and its speed alone", table, joined(reasons, "; ")};
}

TextTable cost_table(const std::vector<FractionPoint>& points, const UnitWords& words) {
  TextTable table{.columns = {{"arm"},
                              {"each job", true},
                              {"worst/best", true},
                              {"fairness", true},
                              {"p99 step", true},
                              {"GB", true},
                              {"W", true},
                              {words.per_joule, true},
                              {"a job has"}}};
  for (const FractionPoint& point : points) {
    table.rows.push_back({point.arm, cell(point.job_speeds), cell(point.worst_of_best),
                          cell(point.fairness), cell(point.p99_inflation),
                          cell(point.memory_bytes, 1e-9), cell(point.power_watts),
                          cell(point.samples_per_joule), point.given});
  }
  leave_out_empty_columns(table);
  return table;
}

// The joint work of the neighbours of one load in each arm, as the mean of its runs.
TextTable neighbours_table(const RunSet& set) {
  constexpr double Neighbour::*rates[] = {&Neighbour::runs_per_second, &Neighbour::bytes_per_second,
                                          &Neighbour::flops_per_second};
  TextTable table{.columns = {{"arm"}, {"neighbours", true}, {"load"}, {"all of them", true}}};
  for (const RunArm& arm : set.arms) {
    std::map<std::string, std::pair<Neighbour, int64_t>> loads;  // sums, and of how many
    const SomeRuns runs = complete_runs(arm);
    for (const SetRun* run : runs) {
      for (const Neighbour& one : run->run.neighbours) {
        auto& [sum, count] = loads[one.load];
        ++count;
        for (const auto rate : rates) sum.*rate += one.*rate;
      }
    }
    for (auto& [name, load] : loads) {
      auto [mean, count] = load;
      for (const auto rate : rates) mean.*rate /= static_cast<double>(runs.size());
      table.rows.push_back(
          {arm.name, std::to_string(count / std::ssize(runs)), name, rate_text(mean)});
    }
  }
  return table;
}

}  // namespace

std::string rate_text(const Neighbour& neighbour) {
  if (neighbour.flops_per_second > 0) {
    return significant(1e-12 * neighbour.flops_per_second) + " TFLOP/s";
  }
  if (neighbour.bytes_per_second > 0) {
    return significant(1e-9 * neighbour.bytes_per_second) + " GB/s";
  }
  return significant(neighbour.runs_per_second) + " runs/s";
}

std::vector<TitledTable> fraction_tables(const RunSet& set) {
  const std::vector<FractionPoint> points = fractions_of(set);
  const UnitWords& words = words_of(units_of(set));
  const bool unlike = std::ranges::any_of(
      points, [](const FractionPoint& point) { return !point.unlike_jobs.empty(); });
  const DeviceWords& device = device_words_of(set);
  std::vector<TitledTable> tables = {{std::string("Jobs that share ") + device.shared,
                                      speed_table(set, points, words, unlike),
                                      speed_legend(device) + (unlike ? unlike_legend : "")}};
  if (unlike) tables.push_back(unlike_table(points));
  const std::string use = std::string(", and use of ") + device.name;
  TextTable costs = cost_table(points, words);
  const std::string legend = cost_legend(costs, words, device);
  tables.push_back({"Each job" + use, std::move(costs), legend});
  TextTable neighbours = neighbours_table(set);
  if (!neighbours.rows.empty()) {
    tables.push_back({"What the neighbours did", std::move(neighbours)});
  }
  const RunSet best = with_best_batches(set);
  if (best.arms.empty()) return tables;
  const std::vector<FractionPoint> best_points = fractions_of(best, true);
  tables.push_back({"The best batch of each way", speed_table(best, best_points, words, false)});
  tables.push_back({"Each job of these" + use, cost_table(best_points, words)});
  return tables;
}

}  // namespace nearmetal
