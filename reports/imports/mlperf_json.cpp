#include "reports/imports/mlperf_json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <optional>
#include <utility>

#include "base/text.h"
#include "reports/json/json.h"
#include "reports/json/json_reader.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

using json::Document;

constexpr double milliseconds_per_second = 1e3;

struct Event : LogPlace {
  std::string key;
  double milliseconds = 0;  // since 1970
  Document value;
  Document metadata;
  double trained = 0;  // milliseconds without the evaluations before it
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
                                       "gradient_accumulation_steps"};
// Those that a line of :::SYSJSON tells since round 4.
constexpr std::array system_facts = {"system_name", "number_of_nodes", "accelerators_per_node",
                                     "accelerator_model_name"};

// An epoch or a block of some, in milliseconds without evaluations.
struct Stretch {
  double count = 1;  // of epochs, or of steps
  double length = 0;
  double end = 0;
};

struct Series {
  const char* name = "";
  std::optional<Event> start{};  // of the one that is not over
  std::vector<Stretch> done{};
  std::optional<Fact> flaw{};  // why it is of no use
};

struct MlperfRun {
  std::map<std::string, Fact> facts;
  std::optional<Event> start;  // run_start
  std::optional<Event> stop;   // run_stop
  Series epochs{"epoch"}, blocks{"block"};
  std::optional<Event> evaluation;  // that is not over
  double evaluated = 0;             // milliseconds
  std::vector<double> tracked;      // samples per second, by tracked_stats
};

std::string text_of(const Document& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// The object behind a marker.
Document object_in(const LogLine& line, const std::string& marker) {
  const std::string text = line.text.substr(line.text.find(marker) + marker.size());
  try {
    require_within_limits(text);
    Document parsed = json::document_of(text);
    if (parsed.is_object()) return parsed;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception&) {  // the same refusal
  }
  line.refuse(marker + "is followed by no whole JSON object");
}

Event event_of(const LogLine& line) {
  const Document document = object_in(line, ":::MLLOG ");
  const Document key = document.value("key", Document());
  if (!key.is_string()) line.refuse("key must be a text");
  const Document time = document.value("time_ms", Document());
  constexpr double latest = 253402300799e3;  // the year 9999
  const double milliseconds = time.is_number() ? time.get<double>() : -1;
  const bool is_time = milliseconds >= 0 && milliseconds <= latest;
  if (!is_time) line.refuse("time_ms must be milliseconds since 1970");
  Event event{line, key.get<std::string>(), milliseconds, document.value("value", Document()),
              document.value("metadata", Document())};
  if (!event.metadata.is_object()) event.metadata = Document::object();
  return event;
}

void take_fact(const Event& event, MlperfRun& run) {
  const std::string text = text_of(event.value);
  if (event.key == "submission_benchmark" && text != "resnet" && text != "bert") {
    event.refuse("submission_benchmark is " + shortened(text) + ": import reads resnet and bert");
  }
  const auto [known, is_new] = run.facts.emplace(event.key, Fact{event, text});
  if (is_new || known->second.text == text) return;
  event.refuse(event.key + " is " + shortened(text) + ", and was " + shortened(known->second.text) +
               " on line " + std::to_string(known->second.number));
}

// A series that is flawed may be of another benchmark, or another may do.
void spoil(Series& series, const Event& event, const std::string& why) {
  if (!series.flaw) series.flaw = {event, std::string("another ") + series.name + " " + why};
}

void start_stretch(const Event& event, Series& series) {
  if (series.start) {
    spoil(series, event,
          "starts than that of line " + std::to_string(series.start->number) +
              ", which did not stop");
  }
  series.start = event;
}

void stop_stretch(const Event& event, Series& series) {
  if (!series.start) return spoil(series, event, "stops than one that started");
  const Event start = *std::exchange(series.start, std::nullopt);
  const auto number_of = [](const Event& of) { return of.metadata.value("epoch_num", Document()); };
  const Document count = start.metadata.value("epoch_count", Document(1));
  const double length = event.trained - start.trained;
  const bool is_whole = length > 0 && count.is_number() && count.get<double>() > 0;
  if (is_whole) series.done.push_back({count.get<double>(), length, event.trained});
  if (is_whole && number_of(start) == number_of(event)) return;
  spoil(series, event,
        "stops than the one that started on line " + std::to_string(start.number) +
            ", or it took no time");
}

std::string begun(const MlperfRun& run) {
  return "the run that began on line " + std::to_string(run.start->number);
}

const Fact& needed_fact(const MlperfRun& run, const std::string& name) {
  const auto found = run.facts.find(name);
  if (found != run.facts.end()) return found->second;
  run.stop->refuse(begun(run) + " lacks " + name);
}

double number_in(const MlperfRun& run, const std::string& name) {
  const Fact& fact = needed_fact(run, name);
  return fact.positive_number(fact.text, name);
}

// Median of all but the first, which warms up; of one alone itself.
double usual_of(const std::vector<double>& rates) {
  return median(std::span(rates).subspan(rates.size() > 1 ? 1 : 0));
}

struct Candidate {
  std::string from;
  double rate = 0;   // samples per second
  double whole = 0;  // the same by the length of the run without what warms up and what evaluates
};

// The throughput by intervals but the first, each of which counts these samples.
std::optional<Candidate> candidate_of(const Series& series, const MlperfRun& run, double samples) {
  if (series.flaw || series.start || series.done.size() < 2) return std::nullopt;
  double count = 0;
  std::vector<double> rates;
  for (const Stretch& stretch : series.done) {
    rates.push_back(samples * stretch.count / stretch.length * milliseconds_per_second);
    if (&stretch != &series.done.front()) count += stretch.count;
  }
  const double length = run.stop->trained - series.done.front().end;
  return Candidate{series.name + std::string("s"), usual_of(rates),
                   samples * count / length * milliseconds_per_second};
}

// In the order in which they are trusted.
std::vector<Candidate> candidates_of_resnet(const MlperfRun& run) {
  const double samples = number_in(run, "train_samples");
  std::vector<Candidate> candidates;
  for (const Series* series : {&run.epochs, &run.blocks}) {
    if (auto found = candidate_of(*series, run, samples)) candidates.push_back(*found);
  }
  if (!run.tracked.empty()) {
    const double rate = usual_of(run.tracked);
    candidates.push_back(
        {"tracked_stats", rate, candidates.empty() ? rate : candidates.front().whole});
  }
  return candidates;
}

// Its train_samples are those that were trained where they are told at the end, and else those that
// were planned; its blocks count steps, or what does not add up to them.
std::vector<Candidate> candidates_of_bert(const MlperfRun& run) {
  const double samples = number_in(run, "train_samples");
  const bool trained = needed_fact(run, "train_samples").number > run.start->number;
  const double length = run.stop->trained - run.start->trained;
  const double whole = samples / length * milliseconds_per_second;
  std::vector<Candidate> candidates;
  if (!run.tracked.empty()) {
    const double rate = usual_of(run.tracked);
    candidates.push_back({"tracked_stats", rate, trained ? whole : rate});
  }
  const double batch = number_in(run, "global_batch_size");
  double steps = 0;
  for (const Stretch& block : run.blocks.done) steps += block.count;
  if (steps * batch > samples / 2 && steps * batch < 1.05 * samples) {
    if (auto found = candidate_of(run.blocks, run, batch)) candidates.push_back(*found);
  }
  if (trained && !run.blocks.done.empty()) candidates.push_back({"blocks", whole, whole});
  return candidates;
}

Candidate throughput_of(const MlperfRun& run, const Fact& benchmark) {
  const bool is_bert = benchmark.text == "bert";
  const auto candidates = is_bert ? candidates_of_bert(run) : candidates_of_resnet(run);
  // Epochs that were queued and not awaited are over too early.
  const auto found = std::ranges::find_if(
      candidates, [](const Candidate& one) { return agree(one.rate, one.whole); });
  if (found != candidates.end()) return *found;
  if (!candidates.empty()) {
    run.stop->refuse("by its " + candidates[0].from + " " + begun(run) + " did " +
                     significant(candidates[0].rate) + " samples/s, by its length " +
                     significant(candidates[0].whole));
  }
  if (is_bert) {
    benchmark.refuse(
        "submission_benchmark is bert: import reads resnet, and of bert logs with the "
        "throughput in tracked_stats or with blocks");
  }
  for (const Series* series : {&run.epochs, &run.blocks}) {
    if (series->flaw) series->flaw->refuse(series->flaw->text);
  }
  run.stop->refuse(begun(run) + " has " + counted(std::ssize(run.epochs.done), "epoch") +
                   " (epoch_start, epoch_stop): a throughput needs 2, as the first warms up");
}

// Nodes times accelerators of each, where both are told.
std::optional<int64_t> gpus_of(const MlperfRun& run) {
  double product = 1;
  for (const char* name : {"number_of_nodes", "accelerators_per_node"}) {
    const auto found = run.facts.find(name);
    if (found == run.facts.end()) return std::nullopt;
    product *= std::strtod(found->second.text.c_str(), nullptr);
  }
  const bool is_count = product >= 1 && product < 1e9 && product == std::floor(product);
  return is_count ? std::optional(static_cast<int64_t>(product)) : std::nullopt;
}

NamedResult result_of(const MlperfRun& run) {
  const Fact& benchmark = needed_fact(run, "submission_benchmark");
  const Candidate figure = throughput_of(run, benchmark);
  ImportedRun result;
  result.line = run.start->number;
  result.started_at = utc_text(
      "%Y-%m-%dT%H:%M:%SZ", static_cast<time_t>(run.start->milliseconds / milliseconds_per_second));
  result.world_size = gpus_of(run);
  if (benchmark.text == "bert") result.sample = SampleUnit::sequence;
  result.throughput = figure.rate;
  for (const auto& [name, fact] : run.facts) result.facts[name] = fact.text;
  for (const auto& [name, field] :
       {std::pair("submission_benchmark", "benchmark"), std::pair("system_name", "system"),
        std::pair("submission_platform", "system"), std::pair("opt_name", "optimizer"),
        std::pair("global_batch_size", "global_batch_size")}) {
    if (run.facts.contains(name)) result.work[field] = run.facts.at(name).text;
  }
  result.facts["throughput_from"] = figure.from;
  result.facts["epochs"] = std::to_string(run.epochs.done.size());
  const double took = run.stop->milliseconds - run.start->milliseconds;
  result.facts["seconds_to_train"] = shortest(took / milliseconds_per_second, 9);
  if (run.stop->metadata.contains("status")) {
    result.facts["status"] = text_of(run.stop->metadata.at("status"));
  }
  return {arm_of(benchmark.text, result), result};
}

// Facts after run_stop are those of that run, until the next one begins.
void end_run(MlperfRun& run, std::vector<NamedResult>& results) {
  if (!run.stop) return;
  results.push_back(result_of(run));
  results.back().run.number = std::ssize(results) - 1;
  run = {};
}

void take_event(Event event, MlperfRun& run, std::vector<NamedResult>& results) {
  const std::string& key = event.key;
  event.trained = event.milliseconds - run.evaluated;
  if (key == "run_start") {
    if (run.start && !run.stop) {
      event.refuse("a run starts, and that of line " + std::to_string(run.start->number) +
                   " has no run_stop");
    }
    end_run(run, results);
    run.evaluated = 0;
    event.trained = event.milliseconds;
    run.start = event;
  } else if (key == "run_stop") {
    if (!run.start) event.refuse("a run stops that did not start");
    if (event.milliseconds <= run.start->milliseconds) {
      event.refuse("run_stop is not later than run_start on line " +
                   std::to_string(run.start->number));
    }
    run.stop = event;
  } else if (std::ranges::find(recorded_facts, key) != recorded_facts.end()) {
    if (run.stop && run.facts.contains(key)) end_run(run, results);
    take_fact(event, run);
  } else if (key == "tracked_stats" && event.value.is_object()) {
    const Document rate = event.value.value("throughput", Document());
    if (rate.is_number() && rate.get<double>() > 0) run.tracked.push_back(rate.get<double>());
  } else if (key == "eval_start") {
    run.evaluation = event;
  } else if (key == "eval_stop" && run.evaluation) {
    run.evaluated += event.milliseconds - std::exchange(run.evaluation, {})->milliseconds;
  }
  for (Series* series : {&run.epochs, &run.blocks}) {
    if (key == std::string(series->name) + "_start") start_stretch(event, *series);
    if (key == std::string(series->name) + "_stop") stop_stretch(event, *series);
  }
}

}  // namespace

std::vector<NamedResult> results_of_mlperf(const PublishedLog& log) {
  std::vector<NamedResult> results;
  MlperfRun run;
  bool any = false;
  for (const LogLine& line : lines_of(log, {":::MLLOG ", ":::SYSJSON "})) {
    if (line.text.starts_with(":::SYSJSON ")) {
      const Document system = object_in(line, ":::SYSJSON ");
      for (const char* name : system_facts) {
        if (system.contains(name)) run.facts.emplace(name, Fact{line, text_of(system.at(name))});
      }
    }
    if (line.text.find(":::MLLOG ") == std::string::npos) continue;
    any = true;
    take_event(event_of(line), run, results);
  }
  end_run(run, results);
  if (run.start) stop_at_end(log, begun(run) + " has no run_stop");
  if (results.empty()) {
    stop_at_end(log, any ? "there is no run_start" : "there is no line with :::MLLOG {...}");
  }
  return results;
}

}  // namespace nearmetal
