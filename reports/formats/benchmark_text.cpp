#include "reports/formats/benchmark_text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <map>
#include <set>

#include "base/text.h"
#include "reports/compare/comparison_row.h"
#include "reports/compare/scaling.h"
#include "reports/compare/work_text.h"
#include "reports/document/metric.h"
#include "reports/formats/headline.h"
#include "reports/formats/run_tables.h"
#include "reports/json/json_writer.h"

namespace nearmetal {
namespace {

bool has_figures(const SetRun& run) {
  return run.run.status == Status::complete && run.run.window && run.run.throughput;
}

// One word; a '-' would begin the number of processors.
std::string go_name(const std::string& text) {
  std::string name;
  for (const char c : text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                       std::string("_.:,+*|()#").find(c) != std::string::npos;
    std::array<char, 4> escaped{};
    std::snprintf(escaped.data(), escaped.size(), "%%%02X", static_cast<unsigned char>(c));
    name += plain ? std::string(1, c) : escaped.data();
  }
  return name;
}

// Names that printable() makes the same stay apart, as two samples of the same labels are refused.
std::string label_value(const std::string& text) {
  const std::string line = replaced(text, "\n", "");
  const std::string name = printable(line) == line ? text : go_name(text);
  const std::string escaped = replaced(replaced(name, "\\", "\\\\"), "\"", "\\\"");
  return "\"" + printable(replaced(escaped, "\n", "\\n")) + "\"";
}

using Samples = std::vector<std::pair<std::string, double>>;  // values by labels

void print_family(std::ostream& out, const std::string& name, const char* help,
                  const Samples& samples) {
  if (samples.empty()) return;
  out << "# HELP nearmetal_" << name << ' ' << help << "\n# TYPE nearmetal_" << name << " gauge\n";
  for (const auto& [labels, value] : samples) {
    out << "nearmetal_" << name << '{' << labels << "} " << exact(value) << '\n';
  }
}

// A figure of Prometheus, and the bounds of its 95 % interval where it has some.
struct Gauge {
  std::string name;
  const char* help;
  const char* help_of_bounds = "Bounds of its 95 % interval.";
  Samples samples{};
  Samples bounds{};

  void add(const std::string& labels, const Estimate& figure) {
    const auto& [value, interval] = figure;
    samples.push_back({labels, value});
    if (!interval) return;
    bounds.push_back({labels + ",bound=\"lower\"", interval->lower});
    bounds.push_back({labels + ",bound=\"upper\"", interval->upper});
  }
  void print(std::ostream& out) const {
    print_family(out, name, help, samples);
    print_family(out, name + "_interval", help_of_bounds, bounds);
  }
};

// The arm, and what its runs did: an arm of another report may have the same name.
std::string labels_of(const RunArm& arm) {
  std::string labels = "arm=" + label_value(arm.name);
  if (arm.runs.empty()) return labels;
  for (const char* field : work_fields) {
    labels += std::string(",") + field + "=" + label_value(work_value(arm.runs.front(), field));
  }
  return labels;
}

void print_scaling(std::ostream& out, const RunSet& set) {
  Gauge speedup{"speedup", "Throughput against that of one rank of another arm."};
  Gauge efficiency{"efficiency", "Speedup / ranks."};
  for (const ScalingPoint& point : scaling_of(set)) {
    if (point.is_reference()) continue;
    const std::string label =
        labels_of(*arm_named(point.arm, set)) + ",against=" + label_value(point.against);
    speedup.add(label, point.speedup);
    efficiency.add(label, point.efficiency);
  }
  speedup.print(out);
  efficiency.print(out);
}

template <class Runs>
std::string latest_start(const Runs& runs) {
  std::string latest;
  for (const SetRun& run : runs) latest = std::max(latest, run.run.started_at);
  return latest;
}

// The seconds of a time as reports hold it: YYYY-MM-DDThh:mm:ssZ.
double unix_seconds(const std::string& time) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0;
  std::sscanf(time.c_str(), "%d-%d-%dT%d:%d:%dZ", &year, &month, &day, &hour, &minute, &second);
  const std::chrono::sys_days days = std::chrono::year(year) /
                                     std::chrono::month(static_cast<unsigned>(month)) /
                                     std::chrono::day(static_cast<unsigned>(day));
  return static_cast<double>(days.time_since_epoch().count()) * 86400 + hour * 3600 + minute * 60 +
         second;
}

using json::Json;
using json::lines_of;

std::string attribute(const char* name, const std::string& value) {
  return std::string(" ") + name + "=\"" + html_escaped(value) + "\"";
}

// A test case of JUnit; it passed where no element tells what became of it.
struct Case {
  std::string arm;
  std::string name;
  double seconds = 0;
  std::vector<std::pair<const char*, Maybe<double>>> figures{};
  const char* element = nullptr;
  std::string why{};
};

void print_case(std::ostream& out, const Case& test) {
  out << "  <testcase" << attribute("classname", "nearmetal." + test.arm)
      << attribute("name", test.name) << attribute("time", fixed(test.seconds, 3)) << ">\n";
  if (test.element) {
    // Ant's schema has no type of what is skipped, and asks for one of the others.
    const bool typed = std::string_view(test.element) != "skipped";
    out << "    <" << test.element << (typed ? attribute("type", test.element) : "")
        << attribute("message", test.why) << "/>\n";
  }
  out << "  </testcase>\n";
}

Case case_of(const RunArm& arm, const SetRun& run) {
  Case test{.arm = arm.name,
            .name = run.source + " " + run.run.started_at,
            .seconds = run.run.window ? run.run.window->seconds : 0,
            .why = run.run.failure.value_or("no reason given")};
  for (const Metric* metric : shown_metrics({&run})) {
    test.figures.emplace_back(metric->name, metric->value_of(run.run));
  }
  if (run.run.status == Status::failed) test.element = "error";
  if (run.run.status == Status::partial) test.element = "skipped";
  return test;
}

// By RowAnswer.
constexpr std::array<const char*, 4> elements = {nullptr, "skipped", "error", "failure"};

Case case_of(const ComparisonRow& row, RowAnswer answer, const CompareOptions& options) {
  const auto [lower, upper] = bounds_of(row.difference_interval);
  return {.arm = title_of(row),
          .name = row.metric,
          .figures = {{"base", row.base_side.geometric_mean},
                      {"new", row.new_side.geometric_mean},
                      {"difference", row.difference},
                      {"difference_lower", lower},
                      {"difference_upper", upper},
                      {"p_regression", row.p_regression}},
          .element = elements.at(static_cast<size_t>(answer)),
          .why = sentence_of(row, options) + (row.difference ? ", " + row.reason : "")};
}

// A suite of `set`; below its cases are what was measured, and the answers. It is as both
// junit-10.xsd of Jenkins' xunit plugin and JUnit.xsd of Ant's reports
// (github.com/windyroad/JUnit-Schema) ask for.
void print_suite(std::ostream& out, const char* name, const std::vector<Case>& cases,
                 const RunSet& set, std::vector<std::string> lines) {
  double seconds = 0;
  for (const Case& test : cases) seconds += test.seconds;
  out << "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite" << attribute("name", name)
      << attribute("tests", std::to_string(cases.size()));
  // Both must be there, the time without its zone: where there is no run, the schema's name for
  // what is not known, and the first of all times.
  const std::string start = latest_start(all_runs(set));
  const std::string host = set.environments.empty() ? "" : set.environments[0].host_name;
  for (const auto& kind :
       {std::pair("failure", "failures"), {"error", "errors"}, {"skipped", "skipped"}}) {
    const auto count = std::ranges::count_if(cases, [&](const Case& test) {
      return test.element && std::string_view(test.element) == kind.first;
    });
    out << attribute(kind.second, std::to_string(count));
  }
  out << attribute("time", fixed(seconds, 3))
      << attribute("timestamp", start.empty() ? "1970-01-01T00:00:00" : start.substr(0, 19))
      << attribute("hostname", host.empty() ? "localhost" : host) << ">\n";
  // Both schemas want properties at the suite alone: the name of each begins with its case.
  out << "  <properties>\n";
  for (const Case& test : cases) {
    for (const auto& [figure, value] : test.figures) {
      if (!value) continue;
      out << "    <property" << attribute("name", test.arm + " / " + test.name + " / " + figure)
          << attribute("value", exact(*value)) << "/>\n";
    }
  }
  out << "  </properties>\n";
  for (const Case& test : cases) print_case(out, test);
  for (std::string& line : lines) line = html_escaped(line);
  out << "  <system-out>" << joined(lines, "\n")
      << "</system-out>\n  <system-err/>\n</testsuite>\n";
}

// The settings of the work, by name, as a reader of Go's benchmark format holds them: each is that
// of all results below it, until it has another value or its name alone ends it.
using Configuration = std::map<std::string, std::string>;

void print_changes(std::ostream& out, const SetRun& run, Configuration& configuration) {
  Configuration former;
  former.swap(configuration);
  for (const KeyField& field : run.key) {
    if (field.severity != Severity::work && field.severity != Severity::kind) continue;
    const std::string& value = configuration[field.name] = printable(field.value);
    const auto held = former.extract(field.name);
    if (held.empty() || held.mapped() != value) out << field.name << ": " << value << '\n';
  }
  for (const auto& [name, value] : former) out << name << ":\n";
}

std::string csv_text(const std::string& text) {
  const bool like_formula = !text.empty() && std::string("=+-@\t\r").find(text[0]) != text.npos;
  return csv_cell((like_formula ? "'" : "") + text);
}

void end_csv_line(std::ostream& out, const SetRun& run, const std::string& against) {
  for (const char* field : work_fields) out << ',' << csv_text(work_value(run, field));
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
  const auto lines = [&](const std::string& metric, const Estimate& figure) {
    const auto& [value, interval] = figure;
    line(metric, value);
    if (!interval) return;
    line(metric + "_lower", interval->lower);
    line(metric + "_upper", interval->upper);
  };
  lines("speedup", point.speedup);
  lines("efficiency", point.efficiency);
}

}  // namespace

void print_go_benchmark(std::ostream& out, const RunSet& set) {
  constexpr double nanoseconds = 1e9;
  out << "pkg: nearmetal\n";
  Configuration configuration;
  std::set<std::string> units;
  for (const RunArm& arm : set.arms) {
    for (const SetRun& run : arm.runs) {
      if (!has_figures(run)) continue;
      const std::string unit = words_of(run.run.sample).rate;
      if (units.insert(unit).second) out << "Unit " << unit << " better=higher\n";
      print_changes(out, run, configuration);
      out << "BenchmarkTrain/arm=" << go_name(arm.name) << ' ' << run.run.window->steps << ' '
          << exact(nanoseconds * mean_step_seconds(*run.run.window)) << " ns/op "
          << exact(*run.run.throughput) << ' ' << unit << '\n';
    }
  }
}

void print_prometheus(std::ostream& out, const RunSet& set) {
  const SomeRuns all = transformed(all_runs(set), [](const SetRun& run) { return &run; });
  for (const Metric* metric : shown_metrics(all)) {
    Gauge mean{metric->name, "Geometric mean over complete runs.",
               "Bounds of the 95 % interval of that mean."};
    for (const RunArm& arm : set.arms) {
      const SideSummary side = summary_of_arm(arm, *metric);
      if (side.geometric_mean) mean.add(labels_of(arm), side.mean());
    }
    mean.print(out);
  }
  print_scaling(out, set);
  Gauge runs{"runs", "Runs that were read."};
  Gauge ranks{"ranks", "Ranks of a run."};
  Gauge times{"last_run_timestamp_seconds", "Start of the latest run."};
  Gauge infos{"arm_info", "Workload of the runs of an arm."};
  for (const RunArm& arm : set.arms) {
    if (arm.runs.empty()) continue;
    const SetRun& first = arm.runs.front();
    const auto complete = static_cast<double>(std::ranges::count_if(arm.runs, has_figures));
    const std::string labels = labels_of(arm);
    runs.add(labels + ",complete=\"yes\"", {complete});
    runs.add(labels + ",complete=\"no\"", {static_cast<double>(arm.runs.size()) - complete});
    ranks.add(labels, {static_cast<double>(first.run.world_size)});
    times.add(labels, {unix_seconds(latest_start(arm.runs))});
    std::string info = labels;
    for (const char* field : {"kind", "world_size"}) {
      info += std::string(",") + field + "=" + label_value(work_value(first, field));
    }
    infos.add(info, {1});
  }
  for (const Gauge* gauge : {&runs, &ranks, &times, &infos}) gauge->print(out);
}

std::string google_benchmark_json(const RunSet& set) {
  constexpr double milliseconds = 1e3;
  Json benchmarks = Json::array();
  for (size_t family = 0; family < set.arms.size(); ++family) {
    const RunArm& arm = set.arms[family];
    const SomeRuns runs = runs_where(arm, has_figures);
    for (size_t repetition = 0; repetition < runs.size(); ++repetition) {
      const Run& run = runs[repetition]->run;
      const double step = milliseconds * mean_step_seconds(*run.window);
      benchmarks.push_back({{"name", "train/" + arm.name},
                            {"family_index", family},
                            {"per_family_instance_index", 0},
                            {"run_name", "train/" + arm.name},
                            {"run_type", "iteration"},
                            {"repetitions", runs.size()},
                            {"repetition_index", repetition},
                            {"threads", 1},
                            {"iterations", run.window->steps},
                            {"real_time", step},
                            {"cpu_time", step},
                            {"time_unit", "ms"},
                            {"items_per_second", *run.throughput}});
    }
  }
  Json context = {{"date", latest_start(all_runs(set))}, {"executable", "nearmetal"}};
  if (!set.environments.empty()) {
    context["host_name"] = set.environments[0].host_name;
    context["num_cpus"] = set.environments[0].logical_cpus;
  }
  return lines_of({{"context", context}, {"benchmarks", benchmarks}});
}

std::string github_action_benchmark_json(const RunSet& set) {
  Json entries = Json::array();
  for (const RunArm& arm : set.arms) {
    const Metric& metric = throughput_metric(unit_of(arm));
    const SideSummary side = summary_of_arm(arm, metric);
    if (!side.geometric_mean) continue;
    const SetRun& run = arm.runs.front();
    Json entry = {{"name", arm.name + " (" + work_of(run) + ")"},
                  {"unit", metric.unit},
                  {"value", *side.geometric_mean}};
    if (side.interval) {
      entry["range"] = "± " + significant((side.interval->upper - side.interval->lower) / 2);
    }
    entry["extra"] = "n = " + std::to_string(side.runs) + ", 95 % interval; device " +
                     key_value(run, "device") + ": " + run.run.device_name;
    entries.push_back(entry);
  }
  return lines_of(entries);
}

void print_junit(std::ostream& out, const RunSet& set) {
  std::vector<Case> cases;
  for (const RunArm& arm : set.arms) {
    for (const SetRun& run : arm.runs) cases.push_back(case_of(arm, run));
  }
  for (const UnsupportedArm& arm : set.unsupported) {
    cases.push_back({arm.name, "unsupported", 0, {}, "skipped", arm.reason});
  }
  std::vector<std::string> lines = work_lines({{"", &set}});
  append(lines, headlines(set));
  print_suite(out, "nearmetal", cases, set, lines);
}

void print_junit(std::ostream& out, const Comparison& comparison, const GateResult& gate,
                 const RunSet& next) {
  std::vector<Case> cases;
  for (size_t i = 0; i < comparison.rows.size(); ++i) {
    cases.push_back(case_of(comparison.rows[i], gate.answers[i], comparison.options));
  }
  std::vector<std::string> lines = comparison.work;
  append(lines, headlines(comparison));
  lines.push_back(gate.verdict);
  print_suite(out, "nearmetal gate", cases, next, lines);
}

void print_csv(std::ostream& out, const RunSet& set) {
  out << "source,arm,started_at,status,metric,unit,value";
  for (const char* field : work_fields) out << ',' << field;
  out << ",ranks,against,kind\r\n";
  for (const RunArm& arm : set.arms) {
    for (const SetRun& run : arm.runs) {
      std::vector<const Metric*> metrics = shown_metrics({&run});
      append(metrics, cost_metrics(arm));
      for (const Metric* metric : metrics) {
        const Maybe<double> value = metric->value_of(run.run);
        out << csv_text(run.source) << ',' << csv_text(arm.name) << ',' << run.run.started_at << ','
            << to_string(run.run.status) << ',' << metric->name << ',' << metric->base_unit << ','
            << (value ? exact(*value) : "");
        end_csv_line(out, run, "");
      }
    }
  }
  for (const ScalingPoint& point : scaling_of(set)) {
    if (!point.is_reference()) print_csv_lines(out, *arm_named(point.arm, set), point);
  }
}

}  // namespace nearmetal
