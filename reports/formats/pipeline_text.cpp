#include "reports/formats/pipeline_text.h"

#include <algorithm>
#include <iterator>

#include "reports/compare/comparison_row.h"
#include "reports/document/metric.h"
#include "reports/formats/grid_text.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

constexpr const char* bubble_legend =
    "The bubble is the share of the stages' time in which they compute nothing: measured; "
    "simulated "
    "by the same schedule with the mean times of these stages, without transfers and with "
    "transfers "
    "as fast as those of known values alone; and (P - 1) / (M + P - 1), of P equal stages and M "
    "micro-batches. What the measured one is above the last simulated are launches, and transfers "
    "that kernels slow down.";

const Run* first_with_stages(const RunArm& arm) {
  const auto has = [](const SetRun& run) {
    return run.run.pipeline && run.run.status == Status::complete;
  };
  const auto found = std::ranges::find_if(arm.runs, has);
  return found == arm.runs.end() ? nullptr : &found->run;
}

std::string percent_or_dash(const Maybe<double>& share) { return share ? percent(*share) : "-"; }

std::string key_value(const SetRun& run, const std::string& name, const std::string& standard) {
  const auto found = std::ranges::find(run.key, name, &KeyField::name);
  return found == run.key.end() ? standard : found->value;
}

std::string schedule_text(const SetRun& run, int64_t stages) {
  if (stages == 1) return "-";
  if (key_value(run, "micro_batches", "1") == "1") return "model parallel";
  return key_value(run, "schedule", to_string(RunConfig{}.schedule));
}

// "2 x 1": replicas, and the stages of each.
std::vector<std::string> parallelism_row(const RunArm& arm) {
  const SetRun& any = arm.runs.front();
  const Metric& metric = throughput_metric(any.run.sample);
  const SideSummary side = summary_of_arm(arm, metric);
  const Run* staged = first_with_stages(arm);
  const auto ranks = static_cast<double>(any.run.world_size);
  const int64_t stages = any.run.pipeline ? any.run.pipeline->stages : 1;
  return {arm.name,
          std::to_string(any.run.world_size / stages) + " x " + std::to_string(stages),
          key_value(any, "micro_batches", key_value(any, "accumulate", "1")),
          schedule_text(any, stages),
          mean_text(side, metric),
          side.geometric_mean ? significant(*side.geometric_mean / ranks, 5) : "-",
          staged != nullptr ? percent_or_dash(staged->pipeline->bubble.measured) : "-"};
}

TitledTable parallelism_table(const RunSet& set) {
  TitledTable titled{.title = "Replicas of the network and stages of each", .table = {}};
  const std::string rate = words_of(set.arms.front().runs.front().run.sample).rate;
  titled.table.columns = {{"arm"},         {"replicas x stages"},    {"micro-batches", true},
                          {"schedule"},    {rate + " [95 %]", true}, {rate + " a rank", true},
                          {"bubble", true}};
  for (const RunArm& arm : set.arms) {
    if (!arm.runs.empty()) titled.table.rows.push_back(parallelism_row(arm));
  }
  return titled;
}

}  // namespace

std::string pipeline_text(const RunConfig& config) {
  const std::string stages = counted(config.pipeline, "stage");
  if (config.micro_batches == 1) return "model parallel over " + stages;
  return "pipeline of " + stages + " by " + to_string(config.schedule) + ", " +
         std::to_string(config.micro_batches) + " micro-batches";
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
  std::vector<TitledTable> tables = knee_tables(set), stages;
  for (const RunArm& arm : set.arms) {
    const Run* run = first_with_stages(arm);
    if (run == nullptr) continue;
    stages.push_back(
        {.title = "Stages of " + arm.name + ", bubble " + bubble_text(run->pipeline->bubble),
         .table = stage_table(*run),
         .legend = stages.empty() ? bubble_legend : ""});
  }
  if (!stages.empty()) tables.push_back(parallelism_table(set));
  std::ranges::move(stages, std::back_inserter(tables));
  return tables;
}

}  // namespace nearmetal
