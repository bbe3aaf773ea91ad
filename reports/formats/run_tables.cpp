#include "reports/formats/run_tables.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "base/text.h"
#include "reports/compare/comparison_row.h"
#include "reports/compare/scaling.h"
#include "reports/compare/work_text.h"
#include "reports/document/warning.h"
#include "reports/formats/page.h"

namespace nearmetal {
namespace {

std::string batch_text(const GridCurve& curve, const CurvePoint& point) {
  return curve.setting + " " + point.value;
}

constexpr const char* bubble_legend =
    "The bubble is the share of the stages' time in which they compute nothing: measured; "
    "simulated by the same schedule with the mean times of these stages, without transfers and "
    "with transfers as fast as those of known values alone; and (P - 1) / (M + P - 1), of P equal "
    "stages and M micro-batches. What the measured one is above the last simulated are launches, "
    "and transfers that kernels slow down.";

std::string schedule_text(const SetRun& run, int64_t stages) {
  if (stages == 1) return "-";
  if (value_in(run.key, "micro_batches", "1") == "1") return "model parallel";
  return value_in(run.key, "schedule", to_string(RunConfig{}.schedule));
}

// The mean of all complete runs, with its interval.
std::string bubble_cell(const RunArm& arm) {
  Sessions runs;
  for (const SetRun* run : complete_runs(arm)) {
    const auto& pipeline = run->run.pipeline;
    if (!pipeline || pipeline->bubble.measured.value.value_or(0) <= 0) continue;
    runs[run->session].push_back(std::log(100 * *pipeline->bubble.measured));
  }
  return runs.empty() ? "-" : estimate_text(mean_estimate(runs)) + " %";
}

TitledTable parallelism_table(const RunSet& set) {
  TitledTable titled{.title = "Replicas of the network and stages of each", .table = {}};
  const std::string rate = words_of(set.arms.front().runs.front().run.sample).rate;
  titled.table.columns = {{"arm"},         {"replicas x stages"},    {"micro-batches", true},
                          {"schedule"},    {rate + " [95 %]", true}, {rate + " a rank", true},
                          {"bubble", true}};
  for (const RunArm& arm : set.arms) {
    if (arm.runs.empty()) continue;
    const SetRun& any = arm.runs.front();
    const Metric& metric = throughput_metric(any.run.sample);
    const SideSummary side = summary_of_arm(arm, metric);
    const auto ranks = static_cast<double>(any.run.world_size);
    const int64_t stages = any.run.pipeline ? any.run.pipeline->stages : 1;
    titled.table.rows.push_back(
        {arm.name, std::to_string(any.run.world_size / stages) + " x " + std::to_string(stages),
         value_in(any.key, "micro_batches", value_in(any.key, "accumulate", "1")),
         schedule_text(any, stages), mean_text(side, metric),
         side.geometric_mean ? significant(*side.geometric_mean / ranks, 5) : "-",
         bubble_cell(arm)});
  }
  return titled;
}

// That of the network of all complete runs, as it was claimed and found.
std::optional<int64_t> link_rate_of(const RunArm& arm) {
  std::set<std::optional<int64_t>> rates;
  for (const SetRun* run : complete_runs(arm)) rates.insert(run->run.link_bits_per_second);
  return rates.size() == 1 ? *rates.begin() : std::nullopt;
}

// Of arms that are compared with the same one and differ in the rate of their network.
TitledTable link_table(const RunSet& set) {
  std::map<std::string, std::map<int64_t, ScalingPoint>> curves;  // by rate
  for (const ScalingPoint& point : scaling_of(set)) {
    const std::optional<int64_t> rate = link_rate_of(*arm_named(point.arm, set));
    if (point.is_reference() || !rate) continue;
    curves[counted(point.ranks, "rank") + " against " + point.against].emplace(*rate, point);
  }
  TitledTable titled{.title = "Efficiency over the rate of the network", .table = {}};
  titled.table.columns = {{"layout"}, {"network", true}, {"efficiency", true}};
  const std::string enough = plain_percent(least_share_at_knee);
  for (const auto& [common, curve] : curves) {
    if (curve.size() < 2) continue;
    std::string from;  // there and at all higher rates that ran it is high enough
    for (const auto& [rate, point] : curve) {
      const std::string text = shortest(1e-9 * static_cast<double>(rate), 6) + " Gbit/s";
      titled.table.rows.push_back({point.arm, text, estimate_text(100 * point.efficiency) + " %"});
      const bool is_enough = point.efficiency.value >= least_share_at_knee;
      from = !is_enough ? "" : from.empty() ? " is reached from " + text + " on" : from;
    }
    titled.remarks.push_back(common + ": " + enough +
                             (from.empty() ? " is not reached at the highest rate" : from));
  }
  return titled;
}

std::string name_of(const RunArm& arm) {
  const Kind kind = arm.runs.front().kind;
  return arm.name + (kind == Kind::measured ? "" : std::string(" (") + to_string(kind) + ")");
}

// The ranks of the first complete run, as one that ended without a report shows no jobs.
std::string ranks_text(const RunArm& arm) {
  const Run& run = complete_runs(arm).front()->run;
  return std::to_string(run.world_size) +
         (run.jobs.empty() ? "" : " in " + std::to_string(run.jobs.size()) + " jobs");
}

// By more than the spread of the runs explains, where there are enough to tell.
bool is_beyond_linear(const ScalingPoint& point) {
  const Maybe<Interval>& interval = point.efficiency.interval;
  return (interval ? interval->lower : point.efficiency.value) > 1;
}

std::vector<std::string> row_of(const RunSet& set, const RunArm& arm, const ScalingPoint* point) {
  const Metric& metric = throughput_metric(unit_of(arm));
  const SideSummary side = summary_of_arm(arm, metric);
  const std::string all = counted_files(std::to_string(arm.runs.size()), arm);
  const auto latency = [&](const Metric& quantile) {
    return significant_or_dash(summary_of_arm(arm, quantile).geometric_mean,
                               quantile.shown_per_unit);
  };
  const bool any = side.runs > 0, compared = point != nullptr && !point->is_reference();
  return {name_of(arm),
          any ? ranks_text(arm) : "-",
          side.left_out == 0 ? all : std::to_string(side.runs) + " of " + all,
          mean_text(side, metric),
          latency(latency_metrics().front()),
          latency(latency_metrics().back()),
          compared ? estimate_text(point->speedup) : "-",
          compared ? estimate_text(100 * point->efficiency) + " %" +
                         (is_beyond_linear(*point) ? " (check the reference)" : "")
                   : "-",
          point != nullptr ? scaling_text(*point) : "-",
          point != nullptr ? point->against
          : any            ? without_reference_text(set, arm)
                           : "-"};
}

// Whether the CPUs of the run's hosts are fewer than the threads that its ranks would take alone.
bool divides_cpus(const RunSet& set, const SetRun& run) {
  if (run.run.device != Device::cpu) return false;
  std::set<int64_t> instances;
  for (const Rank& rank : run.run.ranks) instances.insert(rank.environment);
  int64_t cpus = 0;
  for (const int64_t i : instances) cpus += set.environments.at(i).usable_cpus;
  const int64_t threads = std::strtoll(key_value(run, "threads").c_str(), nullptr, 10);
  return run.run.world_size * threads > cpus;
}

}  // namespace

TitledTable knee_table(const RunSet& set) {
  const std::string rate = std::string(words_of(units_of(set)).rate) + " [95 %]";
  TextTable table;
  table.columns = {{"settings"}, {"knee"}, {rate, true}, {"% of the best [95 %]", true}, {"best"}};
  for (const GridCurve& curve : grid_curves(set)) {
    const std::optional<Knee> knee = knee_of(curve);
    if (!knee) continue;
    const RunArm& arm = *knee->point->arm;
    const Metric& metric = throughput_metric(unit_of(arm));
    table.rows.push_back(
        {curve.others.empty() ? "all" : curve.others, batch_text(curve, *knee->point),
         mean_text(summary_of_arm(arm, metric), metric), estimate_text(100 * knee->share),
         batch_text(curve, *knee->best) + (knee->best_is_largest ? ", the largest that ran" : "")});
  }
  return {"The smallest batch within " + plain_percent(1 - least_share_at_knee) + " of the best",
          std::move(table)};
}

std::string bubble_text(const PipelineBubble& bubble) {
  const auto text = [](const Maybe<double>& share) {
    return share ? percent(*share) : "unknown (" + share.reason + ")";
  };
  return text(bubble.measured) + " measured; " + text(bubble.simulated) +
         " simulated with the stages' times, " + text(bubble.simulated_with_transfers) +
         " with transfers; " + percent(bubble.ideal) + " of equal stages";
}

TextTable stage_table(const Run& run) {
  TextTable table;
  table.columns = {{"stage", true},       {"layers"},           {"forward ms", true},
                   {"backward ms", true}, {"waiting ms", true}, {"sending ms", true},
                   {"rest ms", true},     {"busy", true},       {"1f1b GB", true},
                   {"gpipe GB", true}};
  const auto gigabytes = [](const Maybe<int64_t>& bytes) {
    return bytes ? significant(1e-9 * static_cast<double>(*bytes), 3) : std::string("-");
  };
  for (const Rank& rank : run.ranks) {
    if (!rank.stage || rank.stage->replica > 0) continue;
    const RankStage& stage = *rank.stage;
    const auto time = [&](double seconds) {
      return stage.seconds ? significant(1e3 * seconds) : std::string("-");
    };
    const PipelineSeconds seconds = stage.seconds ? *stage.seconds : PipelineSeconds{};
    table.rows.push_back({std::to_string(stage.stage), stage.first_node + " to " + stage.last_node,
                          time(seconds.forward), time(seconds.backward), time(seconds.waiting),
                          time(seconds.sending), time(seconds.rest()),
                          seconds.span > 0 ? percent(seconds.busy() / seconds.span) : "-",
                          gigabytes(stage.one_forward_one_backward_bytes),
                          gigabytes(stage.gpipe_bytes)});
  }
  return table;
}

std::vector<TitledTable> tables_beside_figures(const RunSet& set) {
  std::vector<TitledTable> tables, stages;
  add_table(tables, knee_table(set));
  add_table(tables, link_table(set));
  for (const RunArm& arm : set.arms) {
    const SomeRuns runs = runs_where(arm, [](const SetRun& run) {
      return run.run.status == Status::complete && run.run.pipeline;
    });
    if (runs.empty()) continue;
    const Run& first = runs.front()->run;
    stages.push_back({.title = "Stages of " + arm.name + " in its first run, bubble " +
                               bubble_text(first.pipeline->bubble),
                      .table = stage_table(first),
                      .legend = stages.empty() ? bubble_legend : ""});
  }
  if (!stages.empty()) tables.push_back(parallelism_table(set));
  append(tables, std::move(stages));
  return tables;
}

TextTable scaling_table(const RunSet& set) {
  const std::vector<ScalingPoint> points = scaling_of(set);
  const std::string rate = std::string(words_of(units_of(set)).rate) + " [95 %]";
  TextTable table;
  table.columns = {{"layout"},
                   {"ranks"},
                   {"runs", true},
                   {rate, true},
                   {"latency p50, ms", true},
                   {"p99, ms", true},
                   {"speedup", true},
                   {"efficiency", true},
                   {"scaling, batch", false, true},
                   {"against", false, true}};
  for (const RunArm& arm : set.arms) {
    if (arm.runs.empty() || arm.share || !key_value(arm.runs.front(), "share").empty()) continue;
    table.rows.push_back(row_of(set, arm, find_in(points, arm.name, &ScalingPoint::arm)));
    // Said of each, it says nothing.
    std::string& against = table.rows.back().back();
    if (points.empty() && against == none_has_fewer_ranks) against = "-";
  }
  leave_out_empty_columns(table);
  return table;
}

std::vector<std::string> arm_remarks(const RunSet& set) {
  std::vector<std::string> texts;
  const auto divides = [&](const RunArm& arm) {
    return !arm.runs.empty() && divides_cpus(set, arm.runs.front());
  };
  if (shows_speedup(set) && std::ranges::any_of(set.arms, divides)) {
    texts.emplace_back(
        "the ranks of a host divide its CPUs, so that more ranks are not more hardware; with "
        "--threads 1 each rank has one");
  }
  for (const UnsupportedArm& arm : set.unsupported) texts.push_back(unsupported_text(arm));
  std::vector<std::string> arms;
  for (const RunArm& arm : set.arms) {
    if (arm.runs.empty()) arms.push_back(arm.name);
  }
  if (arms.empty()) return texts;
  texts.push_back((arms.size() == 1 ? arms.front() : counted(std::ssize(arms), "arm")) +
                  ": no run yet");
  return texts;
}

std::vector<const Metric*> shown_metrics(const SomeRuns& runs) {
  std::vector<SampleUnit> units =
      transformed(runs, [](const SetRun* run) { return run->run.sample; });
  if (units.empty()) units = {SampleUnit::image};
  std::vector<const Metric*> metrics = metrics_of(units);
  if (std::ranges::any_of(runs, [](const SetRun* run) { return has_latency(run->run); })) {
    for (const Metric& metric : latency_metrics()) metrics.push_back(&metric);
  }
  return metrics;
}

bool shows_speedup(const RunSet& set) {
  return std::ranges::any_of(scaling_of(set),
                             [](const ScalingPoint& point) { return !point.is_reference(); });
}

}  // namespace nearmetal
