#include <algorithm>
#include <sstream>

#include "reports/formats/charts/charts.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

constexpr size_t most_numbered_tasks = 24;  // of a stage

using Marks = std::vector<std::vector<TaskMark>>;  // of the first replica, by stage

bool has_marks(const Run& run) {
  return run.pipeline && std::ranges::all_of(run.ranks, [](const Rank& rank) {
           return rank.stage && !rank.stage->marks.empty();
         });
}

// The marks on one clock, from 0 on.
Marks marks_of(const Run& run) {
  Marks marks;
  for (const Rank& rank : run.ranks) {
    if (rank.stage->replica == 0) marks.push_back(rank.stage->marks);
  }
  align_clocks(marks);
  return marks;
}

std::string script_of(const std::vector<std::string>& rows, double end, bool numbered) {
  const std::string box = "':((column('end') - column('start')) / 2):(0.36) with boxxy ";
  std::string script = chart_head(height_of_rows(rows.size()) + 30) + row_axis(rows) +
                       "set xrange [0:*]\nset xtics " +
                       plain_number(tick_step(end, most_ticks(end))) +
                       "\nset xlabel 'ms'\nset grid xtics ls 1\n"
                       "set key on above right horizontal Left reverse samplen 1.5\nplot ";
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    script += "$data using (strcol('pass') eq '" + std::string(to_string(pass)) +
              "' ? (column('start') + column('end')) / 2 : NaN):'position" + box +
              fill(Kind::measured, colour(static_cast<size_t>(pass))) + " title '" +
              to_string(pass) + "'" + (pass == Pass::forward || numbered ? ", \\\n  " : "\n");
  }
  if (!numbered) return script;
  return script +
         "$data using ((column('start') + column('end')) / 2):'position':'micro_batch' with labels "
         "font ',9' notitle\n";
}

}  // namespace

Chart pipeline_chart(const ShownArms& shown) {
  Chart chart{.name = "pipeline", .title = "One step of the stages"};
  chart.table.columns = {
      {"arm"},          {"stage", true}, {"pass"}, {"micro-batch", true}, {"begin, ms", true},
      {"end, ms", true}};
  std::ostringstream csv = csv_with("position,arm,stage,pass,micro_batch,start,end");
  std::vector<std::string> rows;
  double end = 0;
  int runs = 0;
  bool numbered = true;
  for (const ShownArm& arm : shown.arms) {
    const Run* run = typical_run(*arm.arm, has_marks);
    if (run == nullptr) continue;
    const Marks stages = marks_of(*run);
    if (rows.size() + stages.size() > most_rows) break;
    ++runs;
    for (size_t stage = 0; stage < stages.size(); ++stage) {
      numbered = numbered && stages[stage].size() <= most_numbered_tasks;
      for (const TaskMark& mark : stages[stage]) {
        const double start = milliseconds * mark.begin_seconds;
        end = std::max(end, milliseconds * mark.end_seconds);
        csv << rows.size() << ',' << quoted_label(arm.label()) << ',' << stage << ','
            << to_string(mark.task.pass) << ',' << mark.task.micro_batch << ',' << start << ','
            << milliseconds * mark.end_seconds << '\n';
        chart.table.rows.push_back({arm.label(), std::to_string(stage), to_string(mark.task.pass),
                                    std::to_string(mark.task.micro_batch), significant(start, 5),
                                    significant(milliseconds * mark.end_seconds, 5)});
      }
      rows.push_back(arm.label() + ", stage " + std::to_string(stage));
    }
  }
  if (rows.empty()) return missing_chart(chart, "no complete run is a pipeline");
  chart.caption =
      "When each stage of the first replica computed each micro-batch: the last step of one run of "
      "each arm, from the marks of the devices, whose clocks are aligned by what travels between "
      "neighbours. Gaps are the bubble and transfers. Runs: n = " +
      std::to_string(runs) + ".";
  chart.csv = csv.str();
  chart.script = script_of(rows, end, numbered);
  return chart;
}

}  // namespace nearmetal
