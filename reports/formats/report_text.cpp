#include "reports/formats/report_text.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "reports/compare/comparison_row.h"
#include "reports/compare/run_set.h"
#include "reports/compare/scaling.h"
#include "reports/compare/work_text.h"
#include "reports/formats/headline.h"
#include "reports/formats/nic_text.h"
#include "reports/formats/pipeline_text.h"
#include "reports/formats/scaling_text.h"
#include "reports/sharing/arm_figures.h"
#include "reports/sharing/fractions.h"
#include "reports/text/text.h"
#include "reports/text/warning_text.h"

namespace nearmetal {
namespace {

std::string csv_text(const std::string& text) {
  const bool like_formula = !text.empty() && std::string("=+-@\t\r").find(text[0]) != text.npos;
  std::string quoted = like_formula ? "\"'" : "\"";
  for (const char c : printable(text)) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

void end_csv_line(std::ostream& out, const SetRun& run, const std::string& against) {
  for (const char* field : told_fields) out << ',' << csv_text(told_value(run, field));
  out << ',' << (run.run.world_size > 0 ? std::to_string(run.run.world_size) : "") << ','
      << csv_text(against) << ',' << to_string(run.kind) << "\r\n";
}

// The lines of an arm as a whole: of no single source and time.
void print_csv_lines(std::ostream& out, const RunArm& arm, const ScalingPoint& point) {
  const auto line = [&](const std::string& metric, double value) {
    out << csv_text("") << ',' << csv_text(arm.name) << ",,complete," << metric << ",1,"
        << exact(value);
    end_csv_line(out, arm.runs.front(), point.against);
  };
  const auto lines = [&](const std::string& metric, double value, const Maybe<Interval>& interval) {
    line(metric, value);
    if (!interval) return;
    line(metric + "_lower", interval->lower);
    line(metric + "_upper", interval->upper);
  };
  lines("speedup", point.speedup, point.speedup_interval);
  lines("efficiency", point.efficiency, point.efficiency_interval);
}

std::vector<const Metric*> shown_metrics(const RunArm& arm) {
  std::vector<const Metric*> metrics = metrics_of(std::vector{unit_of(arm)});
  const bool latency =
      std::ranges::any_of(arm.runs, [](const SetRun& run) { return tells_latency(run.run); });
  if (latency) {
    for (const Metric& metric : latency_metrics()) metrics.push_back(&metric);
  }
  if (is_imported(arm)) metrics.push_back(&bus_bandwidth_metric());
  return metrics;
}

// The runs that are not complete, for one metric; for the others what complete runs lack.
std::vector<LeftOut> left_out_of(const RunArm& arm) {
  std::vector<LeftOut> found;
  bool is_first = true;
  for (const Metric* metric : metrics_of(std::vector{unit_of(arm)})) {
    for (const LeftOut& run : left_out_of(arm, *metric)) {
      if (is_imported(arm)) continue;  // a value that its file lacks is missing from no mean
      if (is_first || !run.metric.empty()) found.push_back(run);
    }
    is_first = false;
  }
  return found;
}

// "1x1x1", or of several arms how many.
std::string arms_text(const std::vector<std::string>& arms) {
  return arms.size() == 1 ? arms.front() : counted(std::ssize(arms), "arm");
}

// Adds each reason why runs are missing from means, once.
void add_left_out(std::vector<std::string>& lines, const RunSet& set) {
  using Key = std::pair<std::string, std::string>;  // what they lack, and why
  std::map<Key, std::pair<std::vector<std::string>, std::vector<LeftOut>>> reasons;
  for (const RunArm& arm : set.arms) {
    for (const LeftOut& run : left_out_of(arm)) {
      auto& [arms, runs] = reasons[{run.metric, run.why}];
      if (arms.empty() || arms.back() != arm.name) arms.push_back(arm.name);
      runs.push_back(run);
    }
  }
  for (const auto& [key, found] : reasons) {
    for (const std::string& text : left_out_texts(found.second)) {
      lines.push_back(arms_text(found.first) + ": " + text);
    }
  }
}

std::string hosts_of(const RunSet& set, const Run& run) {
  std::set<int64_t> places;
  for (const Rank& rank : run.ranks) places.insert(std::max<int64_t>(-1, rank.environment));
  places.erase(-1);
  std::vector<std::string> hosts;
  for (const int64_t place : places) hosts.push_back(set.environments.at(place).host_name);
  std::ranges::sort(hosts);
  return joined(hosts, "+");
}

// Arms whose runs are of other machines, each of which would have a mean of its own.
void add_mixed_machines(std::vector<std::string>& lines, const RunSet& set) {
  std::map<std::string, std::vector<std::string>> arms;  // by their hosts
  for (const RunArm& arm : set.arms) {
    std::set<std::string> hosts;
    for (const SetRun& run : arm.runs) hosts.insert(hosts_of(set, run.run));
    hosts.erase("");
    if (hosts.size() > 1) {
      arms[shortened(joined({hosts.begin(), hosts.end()}))].push_back(arm.name);
    }
  }
  for (const auto& [hosts, names] : arms) {
    lines.push_back(arms_text(names) + ": runs of several machines in one mean (" + hosts +
                    "); `report NAME=FILE...` holds machines apart");
  }
}

std::vector<Tool> builds_of(const RunArm& arm) {
  std::vector<const SetRun*> runs;
  for (const SetRun& run : arm.runs) {
    if (run.run.status == Status::complete) runs.push_back(&run);
  }
  return builds_of(runs);
}

// Adds where a mean or a speedup is of several builds, so that it may tell of them, too.
void add_mixed_builds(std::vector<std::string>& lines, const RunSet& set) {
  std::map<std::string, std::vector<std::string>> arms;  // by what is said of them
  for (const RunArm& arm : set.arms) {
    const std::vector<Tool> builds = builds_of(arm);
    if (builds.size() < 2) continue;
    arms["runs of several builds of nearmetal in one mean (" + builds_text(builds) + ")"].push_back(
        arm.name);
  }
  for (const ScalingPoint& point : scaling_of(set)) {
    const auto builds = [&](const std::string& name) {
      return builds_of(*std::ranges::find(set.arms, name, &RunArm::name));
    };
    const std::vector<Tool> own = builds(point.arm), reference = builds(point.reference);
    if (std::ranges::is_permutation(own, reference)) continue;
    arms["speedup against " + point.reference + ", which ran another build of nearmetal (" +
         builds_text(own, reference) + " | " + builds_text(reference, own) + ")"]
        .push_back(point.arm);
  }
  for (const auto& [text, names] : arms) lines.push_back(arms_text(names) + ": " + text);
}

// The sources that imported results rest on.
void add_derivations(std::vector<std::string>& lines, const RunSet& set) {
  std::map<std::string, std::vector<std::string>> arms;
  for (const RunArm& arm : set.arms) {
    if (is_imported(arm)) arms[arm.runs.front().derived].push_back(arm.name);
  }
  for (const auto& [text, names] : arms) lines.push_back(arms_text(names) + ": imported, " + text);
}

struct RunOfArm {
  const RunArm* arm = nullptr;
  size_t number = 0;  // from 1
};

// "; worst: 1x1x2, run 3, rank 1 (host)", with the arm and the file where there are several.
std::string worst_text(const RunWarning& found, const RunOfArm& worst, bool names_arm) {
  const std::vector<SetRun>& runs = worst.arm->runs;
  const std::string& source = runs[worst.number - 1].source;
  const bool of_one_file = std::ranges::all_of(
      runs, [&](const SetRun& run) { return run.source == runs.front().source; });
  const std::string givers = joined(givers_of(found.warning));
  return "; worst: " + (names_arm ? worst.arm->name + ", " : "") + "run " +
         std::to_string(worst.number) + (of_one_file ? "" : " (" + source + ")") +
         (givers.empty() ? "" : ", " + givers);
}

// Adds each kind of warning once.
void add_warnings(std::vector<std::string>& lines, const RunSet& set) {
  std::vector<const SetRun*> runs;
  std::vector<RunOfArm> places;
  for (const RunArm& arm : set.arms) {
    for (size_t i = 0; i < arm.runs.size(); ++i) {
      runs.push_back(&arm.runs[i]);
      places.push_back({&arm, i + 1});
    }
  }
  for (const RunWarning& found : warnings_of(runs)) {
    std::vector<std::string> arms;
    for (size_t i = 0; i < runs.size(); ++i) {
      const bool warns = std::ranges::find(runs[i]->run.warnings, found.warning.code,
                                           &Warning::code) != runs[i]->run.warnings.end();
      const std::string& name = places[i].arm->name;
      if (warns && (arms.empty() || arms.back() != name)) arms.push_back(name);
    }
    lines.push_back(arms_text(arms) + ": " + found.warning.code + " (" +
                    extent_text(found, counted(found.runs, "run")) + "): " + found.warning.text +
                    (found.worst ? worst_text(found, places[*found.worst], arms.size() > 1) : ""));
  }
}

}  // namespace

TextTable report_table(const RunSet& set) {
  TextTable table;
  table.columns = {{"arm"},     {"metric"},       {"mean [95 %]", true},
                   {"n", true}, {"spread", true}, {"left out", true}};
  for (const RunArm& arm : set.arms) {
    for (const Metric* shown : shown_metrics(arm)) {
      const Metric& metric = *shown;
      const SideSummary side = summary_of_arm(arm, metric);
      if (side.runs == 0 && is_imported(arm)) continue;  // a published file tells few figures
      table.rows.push_back({arm.name, std::string(metric.name) + ", " + metric.unit,
                            mean_text(side, metric), std::to_string(side.runs),
                            side.spread ? significant(100 * side.spread->deviation, 2) + " %" : "-",
                            std::to_string(side.left_out)});
    }
  }
  return table;
}

std::vector<std::string> run_warnings(const RunSet& set) {
  std::vector<std::string> lines;
  for (const RunArm& arm : set.arms) {
    const std::string differences = different_work(arm);
    if (differences.empty()) continue;
    lines.push_back(arm.name + ": its runs did different work, so that their mean says nothing: " +
                    shortened(differences));
  }
  add_derivations(lines, set);
  add_mixed_machines(lines, set);
  add_mixed_builds(lines, set);
  add_left_out(lines, set);
  for (const std::string& remark : share_remarks(set)) lines.push_back(remark);
  for (const std::string& line : arm_remarks(set)) lines.push_back(line);
  add_warnings(lines, set);
  return lines;
}

void print_text(std::ostream& out, const RunSet& set) {
  print_head(out, work_lines({{"", &set}}), headlines(set));
  if (shares_a_device(set)) {
    for (const TitledTable& shown : fraction_tables(set)) print_aligned(out, shown);
  }
  for (const TitledTable& shown : tables_beside_figures(set)) print_aligned(out, shown);
  if (shows_speedup(set)) {
    print_aligned(out, scaling_table(set));
    out << '\n';
  }
  print_aligned(out, report_table(set));
  const std::vector<TitledTable> nics = nic_tables(set.environments);
  const std::vector<std::string> warnings = run_warnings(set);
  if (!nics.empty() || !warnings.empty()) out << '\n';
  for (const TitledTable& shown : nics) print_aligned(out, shown);
  for (const std::string& line : warnings) print_wrapped(out, line);
}

void print_markdown(std::ostream& out, const RunSet& set) {
  print_markdown_head(out, work_lines({{"", &set}}), headlines(set));
  if (shares_a_device(set)) {
    for (const TitledTable& shown : fraction_tables(set)) print_markdown(out, shown);
  }
  for (const TitledTable& shown : tables_beside_figures(set)) print_markdown(out, shown);
  if (shows_speedup(set)) {
    print_markdown(out, scaling_table(set));
    out << '\n';
  }
  print_markdown(out, report_table(set));
  out << '\n';
  for (const TitledTable& shown : nic_tables(set.environments)) print_markdown(out, shown);
  for (const std::string& line : run_warnings(set)) out << "- " << markdown_escaped(line) << '\n';
}

void print_github_summary(std::ostream& out, const RunSet& set) {
  constexpr size_t most_bytes = 1'000'000;  // of 1 MiB
  std::ostringstream text;
  text << "## nearmetal\n\n";
  print_markdown(text, set);
  std::string summary = text.str();
  if (summary.size() > most_bytes) {
    summary.resize(summary.rfind('\n', most_bytes) + 1);
    summary += "\nCut here: the whole is larger than a step summary may be.\n";
  }
  out << summary;
}

void print_csv(std::ostream& out, const RunSet& set) {
  out << "source,arm,started_at,status,metric,unit,value";
  for (const char* field : told_fields) out << ',' << field;
  out << ",ranks,against,kind\r\n";
  for (const RunArm& arm : set.arms) {
    for (const SetRun& run : arm.runs) {
      for (const Metric* metric : told_metrics_of(run.run)) {
        const Maybe<double> value = metric->value_of(run.run);
        out << csv_text(run.source) << ',' << csv_text(arm.name) << ',' << run.run.started_at << ','
            << to_string(run.run.status) << ',' << metric->name << ',' << metric->base_unit << ','
            << (value ? exact(*value) : "");
        end_csv_line(out, run, "");
      }
    }
  }
  for (const ScalingPoint& point : scaling_of(set)) {
    if (!point.is_reference())
      print_csv_lines(out, *std::ranges::find(set.arms, point.arm, &RunArm::name), point);
  }
}

}  // namespace nearmetal
