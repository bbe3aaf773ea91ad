// MLPerf Training: lines ":::MLLOG {json}" (github.com/mlcommons/logging).
#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <optional>
#include <utility>

#include "models/errors.h"
#include "reports/imports/log_lines.h"
#include "reports/json/json.h"
#include "reports/json/json_reader.h"
#include "reports/statistics/statistics.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

using json::Document;

constexpr const char* marker = ":::MLLOG ";
constexpr double milliseconds_per_second = 1e3;

struct Event {
  int64_t line = 0;
  std::string key;
  double milliseconds = 0;  // since 1970
  Document value;
  Document metadata;
};

struct Fact {
  std::string text;
  int64_t line = 0;
};

// The facts by which a run is known, and those that are reported beside.
constexpr std::array facts_told = {"submission_benchmark",
                                   "submission_org",
                                   "submission_division",
                                   "submission_status",
                                   "submission_platform",
                                   "global_batch_size",
                                   "train_samples",
                                   "opt_name",
                                   "seed",
                                   "number_of_nodes",
                                   "accelerators_per_node",
                                   "gradient_accumulation_steps"};

struct MlperfRun {
  std::map<std::string, Fact> facts;
  std::optional<Event> start;        // run_start
  std::optional<Event> epoch_start;  // of the epoch that is not over
  std::vector<double> epoch_seconds;
};

std::string text_of(const Document& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

Event event_of(const PublishedLog& log, const LogLine& line, size_t begin) {
  Document document;
  try {
    const std::string text = line.text.substr(begin);
    json::Document parsed = Document::parse(text);
    require_within_limits(text);
    document = std::move(parsed);
  } catch (const std::exception&) {
    stop_at(log, line.number, ":::MLLOG is followed by no whole JSON object");
  }
  if (!document.is_object()) stop_at(log, line.number, ":::MLLOG is followed by no JSON object");
  const auto number_in = [&](const char* name) {
    const Document& found = document.value(name, Document());
    if (!found.is_number()) stop_at(log, line.number, std::string(name) + " must be a number");
    return found.get<double>();
  };
  const Document key = document.value("key", Document());
  if (!key.is_string()) stop_at(log, line.number, "key must be a text");
  Event event{line.number, key.get<std::string>(), number_in("time_ms"),
              document.value("value", Document()), document.value("metadata", Document())};
  constexpr double latest = 253402300799e3;  // the year 9999
  if (event.milliseconds >= 0 && event.milliseconds <= latest) return event;
  stop_at(log, line.number, "time_ms must be milliseconds since 1970");
}

std::string time_stamp_of(const Event& event) {
  const auto seconds = static_cast<time_t>(event.milliseconds / milliseconds_per_second);
  tm utc{};
  gmtime_r(&seconds, &utc);
  std::array<char, sizeof("2026-01-31T12:00:00Z")> text{};
  strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

void take_fact(const PublishedLog& log, const Event& event, MlperfRun& run) {
  const std::string text = text_of(event.value);
  const auto [known, is_new] = run.facts.emplace(event.key, Fact{text, event.line});
  if (is_new || known->second.text == text) return;
  stop_at(log, event.line,
          event.key + " is " + shortened(text) + ", and was " + shortened(known->second.text) +
              " on line " + std::to_string(known->second.line));
}

// Since another event; time must pass.
double seconds_from(const PublishedLog& log, const Event& from, const Event& to) {
  if (to.milliseconds > from.milliseconds) {
    return (to.milliseconds - from.milliseconds) / milliseconds_per_second;
  }
  stop_at(log, to.line,
          to.key + " is not later than " + from.key + " on line " + std::to_string(from.line));
}

void start_epoch(const PublishedLog& log, const Event& event, MlperfRun& run) {
  if (!run.start) stop_at(log, event.line, "an epoch starts, and there is no run_start");
  if (run.epoch_start) {
    stop_at(log, event.line,
            "an epoch starts, and that of line " + std::to_string(run.epoch_start->line) +
                " has no epoch_stop");
  }
  run.epoch_start = event;
}

void stop_epoch(const PublishedLog& log, const Event& event, MlperfRun& run) {
  if (!run.epoch_start) stop_at(log, event.line, "an epoch stops that did not start");
  const auto number_of = [](const Event& of) {
    return of.metadata.is_object() ? of.metadata.value("epoch_num", Document()) : Document();
  };
  if (number_of(*run.epoch_start) != number_of(event)) {
    stop_at(log, event.line,
            "another epoch stops than the one that started on line " +
                std::to_string(run.epoch_start->line));
  }
  run.epoch_seconds.push_back(seconds_from(log, *run.epoch_start, event));
  run.epoch_start.reset();
}

const Fact& needed_fact(const PublishedLog& log, const MlperfRun& run, const Event& stop,
                        const std::string& name) {
  const auto found = run.facts.find(name);
  if (found != run.facts.end()) return found->second;
  stop_at(log, stop.line,
          "the run that began on line " + std::to_string(run.start->line) + " lacks " + name);
}

// Median over the epochs but the first, which warms up, of samples per second of each.
double throughput_of(const PublishedLog& log, const MlperfRun& run, const Event& stop) {
  const Fact& samples = needed_fact(log, run, stop, "train_samples");
  const double count = positive_number(log, samples.line, samples.text, "train_samples");
  if (run.epoch_seconds.size() < 2) {
    stop_at(log, stop.line,
            "the run that began on line " + std::to_string(run.start->line) + " has " +
                counted(std::ssize(run.epoch_seconds), "epoch") +
                " (epoch_start, epoch_stop): a throughput needs 2, as the first warms up");
  }
  std::vector<double> rates;
  for (size_t i = 1; i < run.epoch_seconds.size(); ++i)
    rates.push_back(count / run.epoch_seconds[i]);
  return median(rates);
}

// Nodes times accelerators of each, where both are told, as they are since round 4.
std::optional<int64_t> gpus_of(const PublishedLog& log, const MlperfRun& run) {
  double product = 1;
  for (const char* name : {"number_of_nodes", "accelerators_per_node"}) {
    const auto found = run.facts.find(name);
    if (found == run.facts.end()) return std::nullopt;
    const double count = positive_number(log, found->second.line, found->second.text, name);
    product *= count;
    if (count == std::floor(count) && product < 1e9) continue;
    stop_at(log, found->second.line, std::string(name) + " must be a number of machines");
  }
  return static_cast<int64_t>(product);
}

NamedResult result_of(const PublishedLog& log, const MlperfRun& run, const Event& stop) {
  if (run.epoch_start) {
    stop_at(log, stop.line,
            "the run stops, and the epoch of line " + std::to_string(run.epoch_start->line) +
                " has no epoch_stop");
  }
  const Fact& benchmark = needed_fact(log, run, stop, "submission_benchmark");
  if (benchmark.text != "resnet") {
    stop_at(log, benchmark.line,
            "submission_benchmark is " + shortened(benchmark.text) + ": import reads resnet");
  }
  ImportedRun result;
  result.line = run.start->line;
  result.started_at = time_stamp_of(*run.start);
  result.world_size = gpus_of(log, run);
  result.throughput = throughput_of(log, run, stop);
  for (const auto& [name, fact] : run.facts) result.facts[name] = fact.text;
  result.work["benchmark"] = benchmark.text;
  for (const auto& [name, field] :
       {std::pair("global_batch_size", "global_batch_size"), std::pair("opt_name", "optimizer")}) {
    const auto found = run.facts.find(name);
    if (found != run.facts.end()) result.work[field] = found->second.text;
  }
  result.facts["epochs"] = std::to_string(run.epoch_seconds.size());
  result.facts["seconds_to_train"] = shortest(seconds_from(log, *run.start, stop), 9);
  if (stop.metadata.is_object() && stop.metadata.contains("status")) {
    result.facts["status"] = text_of(stop.metadata.at("status"));
  }
  return {arm_of(benchmark.text, result), result};
}

void take_event(const PublishedLog& log, const Event& event, MlperfRun& run,
                std::vector<NamedResult>& results) {
  if (event.key == "run_start") {
    if (run.start) {
      stop_at(
          log, event.line,
          "a run starts, and that of line " + std::to_string(run.start->line) + " has no run_stop");
    }
    run.start = event;
  } else if (event.key == "epoch_start") {
    start_epoch(log, event, run);
  } else if (event.key == "epoch_stop") {
    stop_epoch(log, event, run);
  } else if (event.key == "run_stop") {
    if (!run.start) stop_at(log, event.line, "a run stops that did not start");
    results.push_back(result_of(log, run, event));
    results.back().run.number = std::ssize(results) - 1;
    run = {};
  } else if (std::ranges::find(facts_told, event.key) != facts_told.end()) {
    take_fact(log, event, run);
  }
}

}  // namespace

std::vector<NamedResult> results_of_mlperf(const PublishedLog& log) {
  std::vector<NamedResult> results;
  MlperfRun run;
  bool any = false;
  for (const LogLine& line : lines_of(log)) {
    const size_t place = line.text.find(marker);
    if (place == line.text.npos) continue;
    any = true;
    take_event(log, event_of(log, line, place + std::string(marker).size()), run, results);
  }
  if (run.start) {
    stop_at_end(
        log, "the run that began on line " + std::to_string(run.start->line) + " has no run_stop");
  }
  if (results.empty()) {
    stop_at_end(log, any ? "there is no run_start" : "there is no line with :::MLLOG {...}");
  }
  return results;
}

}  // namespace nearmetal
