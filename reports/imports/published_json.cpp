#include "reports/imports/published_json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "base/errors.h"
#include "base/sha256.h"
#include "base/text.h"
#include "reports/imports/log_lines.h"
#include "reports/json/json.h"
#include "reports/json/json_reader.h"
#include "reports/json/report_files.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

// MLPerf Training: lines ":::MLLOG {json}" (github.com/mlcommons/logging).

using json::Document;

constexpr const char* marker = ":::MLLOG ";
constexpr double milliseconds_per_second = 1e3;

struct Event : LogPlace {
  std::string key;
  double milliseconds = 0;  // since 1970
  Document value;
  Document metadata;
};

struct Fact : LogPlace {
  std::string text;
};

// The facts by which a run is known, and those that are reported beside.
constexpr std::array recorded_facts = {"submission_benchmark",
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

Event event_of(const LogLine& line, size_t begin) {
  Document document;
  try {
    const std::string text = line.text.substr(begin);
    json::Document parsed = json::document_of(text);
    require_within_limits(text);
    document = std::move(parsed);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception&) {
    line.refuse(":::MLLOG is followed by no whole JSON object");
  }
  if (!document.is_object()) line.refuse(":::MLLOG is followed by no JSON object");
  const auto number_in = [&](const char* name) {
    const Document& found = document.value(name, Document());
    if (!found.is_number()) line.refuse(std::string(name) + " must be a number");
    return found.get<double>();
  };
  const Document key = document.value("key", Document());
  if (!key.is_string()) line.refuse("key must be a text");
  Event event{line, key.get<std::string>(), number_in("time_ms"),
              document.value("value", Document()), document.value("metadata", Document())};
  constexpr double latest = 253402300799e3;  // the year 9999
  if (event.milliseconds >= 0 && event.milliseconds <= latest) return event;
  line.refuse("time_ms must be milliseconds since 1970");
}

std::string time_stamp_of(const Event& event) {
  const auto seconds = static_cast<time_t>(event.milliseconds / milliseconds_per_second);
  tm utc{};
  gmtime_r(&seconds, &utc);
  std::array<char, sizeof("2026-01-31T12:00:00Z")> text{};
  strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

void take_fact(const Event& event, MlperfRun& run) {
  const std::string text = text_of(event.value);
  const auto [known, is_new] = run.facts.emplace(event.key, Fact{event, text});
  if (is_new || known->second.text == text) return;
  event.refuse(event.key + " is " + shortened(text) + ", and was " + shortened(known->second.text) +
               " on line " + std::to_string(known->second.number));
}

// Since another event; time must pass.
double seconds_from(const Event& from, const Event& to) {
  if (to.milliseconds > from.milliseconds) {
    return (to.milliseconds - from.milliseconds) / milliseconds_per_second;
  }
  to.refuse(to.key + " is not later than " + from.key + " on line " + std::to_string(from.number));
}

void start_epoch(const Event& event, MlperfRun& run) {
  if (!run.start) event.refuse("an epoch starts, and there is no run_start");
  if (run.epoch_start) {
    event.refuse("an epoch starts, and that of line " + std::to_string(run.epoch_start->number) +
                 " has no epoch_stop");
  }
  run.epoch_start = event;
}

void stop_epoch(const Event& event, MlperfRun& run) {
  if (!run.epoch_start) event.refuse("an epoch stops that did not start");
  const auto number_of = [](const Event& of) {
    return of.metadata.is_object() ? of.metadata.value("epoch_num", Document()) : Document();
  };
  if (number_of(*run.epoch_start) != number_of(event)) {
    event.refuse("another epoch stops than the one that started on line " +
                 std::to_string(run.epoch_start->number));
  }
  run.epoch_seconds.push_back(seconds_from(*run.epoch_start, event));
  run.epoch_start.reset();
}

const Fact& needed_fact(const MlperfRun& run, const Event& stop, const std::string& name) {
  const auto found = run.facts.find(name);
  if (found != run.facts.end()) return found->second;
  stop.refuse("the run that began on line " + std::to_string(run.start->number) + " lacks " + name);
}

// Median over the epochs but the first, which warms up, of samples per second of each.
double throughput_of(const MlperfRun& run, const Event& stop) {
  const Fact& samples = needed_fact(run, stop, "train_samples");
  const double count = samples.positive_number(samples.text, "train_samples");
  if (run.epoch_seconds.size() < 2) {
    stop.refuse("the run that began on line " + std::to_string(run.start->number) + " has " +
                counted(std::ssize(run.epoch_seconds), "epoch") +
                " (epoch_start, epoch_stop): a throughput needs 2, as the first warms up");
  }
  return median(transformed(std::span(run.epoch_seconds).subspan(1),
                            [&](double seconds) { return count / seconds; }));
}

// Nodes times accelerators of each, where both are told, as they are since round 4.
std::optional<int64_t> gpus_of(const MlperfRun& run) {
  double product = 1;
  for (const char* name : {"number_of_nodes", "accelerators_per_node"}) {
    const auto found = run.facts.find(name);
    if (found == run.facts.end()) return std::nullopt;
    const double count = found->second.positive_number(found->second.text, name);
    product *= count;
    if (count == std::floor(count) && product < 1e9) continue;
    found->second.refuse(std::string(name) + " must be a number of machines");
  }
  return static_cast<int64_t>(product);
}

NamedResult result_of(const MlperfRun& run, const Event& stop) {
  if (run.epoch_start) {
    stop.refuse("the run stops, and the epoch of line " + std::to_string(run.epoch_start->number) +
                " has no epoch_stop");
  }
  const Fact& benchmark = needed_fact(run, stop, "submission_benchmark");
  if (benchmark.text != "resnet") {
    benchmark.refuse("submission_benchmark is " + shortened(benchmark.text) +
                     ": import reads resnet");
  }
  ImportedRun result;
  result.line = run.start->number;
  result.started_at = time_stamp_of(*run.start);
  result.world_size = gpus_of(run);
  result.throughput = throughput_of(run, stop);
  for (const auto& [name, fact] : run.facts) result.facts[name] = fact.text;
  result.work["benchmark"] = benchmark.text;
  for (const auto& [name, field] :
       {std::pair("global_batch_size", "global_batch_size"), std::pair("opt_name", "optimizer")}) {
    if (run.facts.contains(name)) result.work[field] = run.facts.at(name).text;
  }
  result.facts["epochs"] = std::to_string(run.epoch_seconds.size());
  result.facts["seconds_to_train"] = shortest(seconds_from(*run.start, stop), 9);
  if (stop.metadata.is_object() && stop.metadata.contains("status")) {
    result.facts["status"] = text_of(stop.metadata.at("status"));
  }
  return {arm_of(benchmark.text, result), result};
}

void take_event(const Event& event, MlperfRun& run, std::vector<NamedResult>& results) {
  if (event.key == "run_start") {
    if (run.start) {
      event.refuse("a run starts, and that of line " + std::to_string(run.start->number) +
                   " has no run_stop");
    }
    run.start = event;
  } else if (event.key == "epoch_start") {
    start_epoch(event, run);
  } else if (event.key == "epoch_stop") {
    stop_epoch(event, run);
  } else if (event.key == "run_stop") {
    if (!run.start) event.refuse("a run stops that did not start");
    results.push_back(result_of(run, event));
    results.back().run.number = std::ssize(results) - 1;
    run = {};
  } else if (std::ranges::find(recorded_facts, event.key) != recorded_facts.end()) {
    take_fact(event, run);
  }
}

std::vector<NamedResult> results_of_mlperf(const PublishedLog& log) {
  std::vector<NamedResult> results;
  MlperfRun run;
  bool any = false;
  for (const LogLine& line : lines_of(log)) {
    const size_t place = line.text.find(marker);
    if (place == line.text.npos) continue;
    any = true;
    take_event(event_of(line, place + std::string(marker).size()), run, results);
  }
  if (run.start) {
    stop_at_end(log, "the run that began on line " + std::to_string(run.start->number) +
                         " has no run_stop");
  }
  if (results.empty()) {
    stop_at_end(log, any ? "there is no run_start" : "there is no line with :::MLLOG {...}");
  }
  return results;
}

// A table of published runs of bare metal and of VMs, as a JSON file by hand: for results whose
// logs are too many to ship, or that were published as numbers alone.

struct PairSide {
  std::optional<std::string> system;
  std::optional<std::string> path;  // of its logs in the repository
  std::vector<double> images_per_second;
};

struct PublishedPair {
  std::string name;
  std::optional<std::string> round;
  std::optional<std::string> repository;
  std::optional<std::string> model;
  std::optional<int64_t> gpus;
  std::optional<int64_t> batch;  // of each GPU
  std::optional<PairSide> bare_metal;
  std::optional<PairSide> vm;
};

struct PairsFile {
  std::optional<std::string> description;
  std::optional<std::string> source;
  std::vector<PublishedPair> pairs;
};

void fields(json::Archive& field, PairSide& side) {
  field.optional("system", side.system);
  field.optional("path", side.path);
  field("images_per_second", side.images_per_second, above(0));
}

void fields(json::Archive& field, PublishedPair& pair) {
  field("name", pair.name);
  field.optional("round", pair.round);
  field.optional("repository", pair.repository);
  field.optional("model", pair.model);
  field.optional("gpus", pair.gpus, at_least(1));
  field.optional("batch", pair.batch, at_least(1));
  field.optional("bare_metal", pair.bare_metal);
  field.optional("vm", pair.vm);
}

void fields(json::Archive& field, PairsFile& file) {
  field.optional("description", file.description);
  field.optional("source", file.source);
  field("pairs", file.pairs);
}

PairsFile pairs_in(const PublishedLog& log) {
  try {
    require_within_limits(log.text);
    const json::Document document = json::document_of(log.text);
    json::Reader reader(document, json::Place{}, json::Tolerance::strict);
    PairsFile file;
    fields(reader, file);
    reader.require_all_known();
    return file;
  } catch (const json::Document::exception& error) {
    throw InvalidReport(log.file + ": not JSON: " + parser_reason(error.what()));
  } catch (const InvalidReport& error) {
    throw InvalidReport(log.file + ": " + error.what());
  }
}

ImportedRun run_of(const PairsFile& file, const PublishedPair& pair, const PairSide& side) {
  ImportedRun run;
  run.world_size = pair.gpus;
  if (pair.round) run.work["round"] = *pair.round;
  if (pair.model) run.work["model"] = *pair.model;
  if (pair.batch) run.work["batch"] = std::to_string(*pair.batch);
  if (side.system) run.facts["system"] = *side.system;
  if (side.path) run.facts["path"] = *side.path;
  if (pair.repository) run.facts["repository"] = *pair.repository;
  if (file.source) run.facts["source"] = *file.source;
  return run;
}

std::vector<NamedResult> results_of_pairs(const PublishedLog& log, PublishedSide side) {
  const PairsFile file = pairs_in(log);
  std::vector<NamedResult> results;
  int64_t number = 0;  // of both sides, so that no result of one is taken for one of the other
  for (const PublishedPair& pair : file.pairs) {
    for (const PublishedSide of : {PublishedSide::bare_metal, PublishedSide::vm}) {
      const auto& found = of == PublishedSide::vm ? pair.vm : pair.bare_metal;
      if (!found) continue;
      for (const double throughput : found->images_per_second) {
        NamedResult result{pair.name, run_of(file, pair, *found)};
        result.run.number = number++;
        result.run.throughput = throughput;
        if (of == side) results.push_back(std::move(result));
      }
    }
  }
  if (results.empty()) {
    throw InvalidReport(log.file + ": no pair has runs of side " + to_string(side));
  }
  return results;
}

std::vector<NamedResult> results_of(const PublishedLog& log, const ImportOptions& options) {
  switch (options.format) {
    case ImportFormat::mlperf:
      return results_of_mlperf(log);
    case ImportFormat::tf_cnn_benchmarks:
      return results_of_tf_cnn_benchmarks(log);
    case ImportFormat::nccl_tests:
      return results_of_nccl_tests(log);
    case ImportFormat::pairs:
      return results_of_pairs(log, options.side.value());
  }
  throw std::logic_error("unnamed ImportFormat");
}

Arm& arm_in(Report& report, const std::string& name) {
  const auto found = std::ranges::find(report.arms, name, &Arm::name);
  if (found != report.arms.end()) return *found;
  Arm& arm = report.arms.emplace_back();
  arm.name = name;
  arm.kind = Kind::imported;
  return arm;
}

void add_file(Report& report, const std::string& file, const ImportOptions& options) {
  const PublishedLog log{file, input_text(file)};
  const std::string hash = sha256(log.text);
  if (std::ranges::find(report.sources, hash, &ImportedSource::sha256) != report.sources.end()) {
    throw std::invalid_argument(file + " is given twice, under this or another name: its results " +
                                "would count twice");
  }
  const int64_t source = std::ssize(report.sources);
  report.sources.push_back({.file = std::filesystem::path(file).filename().string(),
                            .sha256 = hash,
                            .format = options.format,
                            .origin = options.origin});
  for (NamedResult& result : results_of(log, options)) {
    result.run.source = source;
    arm_in(report, options.arm.value_or(result.arm)).imported.push_back(std::move(result.run));
  }
}

}  // namespace

Report published_report(const ImportOptions& options) {
  Report report;
  report.kind = Kind::imported;
  for (const std::string& file : options.files) add_file(report, file, options);
  return report;
}

}  // namespace nearmetal
