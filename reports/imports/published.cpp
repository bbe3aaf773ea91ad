#include "reports/imports/published.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "base/errors.h"
#include "base/file_kind.h"
#include "base/pattern.h"
#include "base/sha256.h"
#include "base/text.h"
#include "base/text_table.h"
#include "reports/imports/mlperf_json.h"
#include "reports/imports/nccl_tests_log.h"
#include "reports/json/json.h"
#include "reports/json/json_reader.h"
#include "reports/json/report_files.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

// tf_cnn_benchmarks (github.com/tensorflow/benchmarks): a header of "Name:  value" lines, then
// steps and "total images/sec: N".

constexpr const char* total_words = "total images/sec:";

struct LoggedNumber {
  LogLine line;
  double value = 0;
};

struct Header {
  int64_t line = 0;  // of its first; 0: none is open
  std::map<std::string, std::string> values;
  std::optional<double> global_batch;
  std::optional<double> batch;        // of each device
  std::vector<LogLine> models;        // of each rank that says which it trains
  std::optional<LogLine> again;       // where a name comes again
  std::optional<LoggedNumber> speed;  // the last of the steps
  std::vector<LoggedNumber> totals;
};

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Names of the header that say what was computed, as the comparable key calls them.
constexpr std::array work_names = {std::pair("Model", "model"), std::pair("Dataset", "dataset"),
                                   std::pair("Optimizer", "optimizer"),
                                   std::pair("Variables", "variable_update")};
constexpr std::array fact_names = {"TensorFlow", "Mode",        "Num batches", "Num epochs",
                                   "Devices",    "Data format", "NUMA bind",   "AllReduce"};

bool is_of_header(const std::string& name) {
  const auto is_it = [&](const auto& known) { return name == known.first; };
  return std::ranges::any_of(work_names, is_it) || std::ranges::count(fact_names, name) > 0;
}

[[noreturn]] void refuse_another(const LogLine& line, const Header& header) {
  line.refuse("'" + line.text.substr(0, line.text.find(':')) +
              ":' comes again, and the run of line " + std::to_string(header.line) + " has no '" +
              total_words + "' yet: keep the output of one rank");
}

// Each rank under Horovod prints the same header. What others print may get into a line.
void take_value(const LogLine& line, const std::string& name, const std::string& value,
                Header& header) {
  const auto [known, is_new] = header.values.emplace(name, value);
  const bool is_fact = std::ranges::count(fact_names, name) > 0;
  if (!is_new && !is_fact && known->second != value) refuse_another(line, header);
  if (!is_new && !header.again) header.again = line;
  if (header.line == 0) header.line = line.number;
  if (name == "Model") header.models.push_back(line);
}

// "128 global", or on the next line "64.0 per device".
void take_batch(const LogLine& line, const std::string& text, Header& header) {
  const size_t end = text.find(' ');
  const std::string of = end == text.npos ? "" : text.substr(end + 1);
  std::optional<double>& batch = of == "global" ? header.global_batch : header.batch;
  if (of != "global" && of != "per device") {
    line.refuse("'Batch size:' must be followed by 'N global' and 'N per device'");
  }
  const double size = line.positive_number(text.substr(0, end), "the batch size");
  if (batch && *batch != size) refuse_another(line, header);
  batch = size;
}

// Each device computes a batch of its own.
int64_t devices_of(const LogLine& line, const Header& header) {
  const double devices = *header.global_batch / *header.batch;
  if (devices >= 1 && devices < 1e6 && devices == std::floor(devices)) {
    return static_cast<int64_t>(devices);
  }
  line.refuse("the global batch size of the run that began on line " + std::to_string(header.line) +
              " is no multiple of that of each device");
}

void require_whole(const LogLine& line, const Header& header) {
  if (header.line == 0) {
    line.refuse(std::string("'") + total_words + "' without a header before it ('Model:')");
  }
  const char* const lacking = !header.values.contains("Model") ? "Model:"
                              : !header.global_batch           ? "Batch size: N global"
                              : !header.batch                  ? "N per device"
                                                               : nullptr;
  if (lacking == nullptr) return;
  line.refuse("the run that began on line " + std::to_string(header.line) + " lacks '" + lacking +
              "'");
}

bool is_of_horovod(const Header& header) {
  const auto variables = header.values.find("Variables");
  return variables != header.values.end() && variables->second == "horovod";
}

// Its ranks print the images/s of all.
void take_total(const LogLine& line, Header& header) {
  require_whole(line, header);
  if (!header.totals.empty() && !is_of_horovod(header)) require_whole(line, Header{});
  if (header.again && !is_of_horovod(header)) refuse_another(*header.again, header);
  const std::string text = trimmed(line.text.substr(std::string(total_words).size()));
  header.totals.push_back({line, line.positive_number(text, total_words)});
}

// One figure, which each rank computes by its own clock.
double total_of(const Header& header, ImportedRun& result) {
  constexpr double largest_spread = 0.005;
  const auto [least, most] = std::ranges::minmax_element(header.totals, {}, &LoggedNumber::value);
  const double total = median(transformed(header.totals, &LoggedNumber::value));
  if (most->value - least->value > largest_spread * total) {
    most->line.refuse(std::string(total_words) + " " + shortest(most->value, 9) + ", but on line " +
                      std::to_string(least->line.number) + " " + shortest(least->value, 9) +
                      ": ranks of one run print one total");
  }
  if (header.totals.size() > 1) {
    result.facts["totals"] = counted(std::ssize(header.totals), "rank") + ", " +
                             shortest(least->value, 9) + " to " + shortest(most->value, 9);
  }
  return total;
}

// Steps count the images of one process, which has as many devices as it lists, but under Horovod
// one.
void require_agreement(const Header& header, double total, int64_t devices) {
  if (!header.speed) return;
  const auto listed = header.values.find("Devices");
  const int64_t own = is_of_horovod(header) || listed == header.values.end()
                          ? 1
                          : std::ranges::count(listed->second, '\'') / 2;
  for (const int64_t processes : {int64_t{1}, devices / std::max<int64_t>(own, 1)}) {
    if (agree(total, header.speed->value * static_cast<double>(processes))) return;
  }
  header.totals.front().line.refuse(std::string(total_words) + " " + shortest(total, 9) +
                                    ", but the steps to line " +
                                    std::to_string(header.speed->line.number) + " have a mean of " +
                                    shortest(header.speed->value, 9));
}

// The original's words for a mode: BenchmarkMode in its constants.py.
void take_mode(const PublishedLog& log, const Header& header, ImportedRun& result) {
  if (!result.facts.contains("Mode")) return;
  const std::string& mode = result.facts.at("Mode");
  // With a hyphen it is of earlier versions of this program.
  const bool forward = mode == "forward only" || mode == "forward-only";
  if (mode != "training" && !forward) {
    LogPlace{&log, header.line}.refuse("Mode is " + mode +
                                       ": import reads training and forward only");
  }
  result.work["forward_only"] = "no";  // the forward pass of training, which it does not have
  if (forward) result.work["inference"] = "yes";
}

NamedResult result_of(const PublishedLog& log, const Header& header) {
  const LogLine& line = header.totals.front().line;
  ImportedRun result;
  result.line = header.line;
  result.world_size = devices_of(line, header);
  if (std::ssize(header.models) > *result.world_size) {
    refuse_another(header.models.at(static_cast<size_t>(*result.world_size)), header);
  }
  result.throughput = total_of(header, result);
  require_agreement(header, *result.throughput, *result.world_size);
  result.work["batch"] = shortest(*header.batch, 9);
  for (const auto& [name, field] : work_names) {
    if (header.values.contains(name)) result.work[field] = header.values.at(name);
  }
  for (const char* name : fact_names) {
    if (header.values.contains(name)) result.facts[name] = header.values.at(name);
  }
  take_mode(log, header, result);
  const bool infers = result.work.contains("inference");
  return {arm_of(result.work["model"] + (infers ? " inference" : ""), result), result};
}

void end_run(const PublishedLog& log, Header& header, std::vector<NamedResult>& results) {
  if (header.totals.empty()) return;
  results.push_back(result_of(log, header));
  results.back().run.number = std::ssize(results) - 1;
  header = {};
}

std::vector<NamedResult> results_of_tf_cnn_benchmarks(const PublishedLog& log) {
  static const Pattern value("^([A-Z][A-Za-z ]{1,20}): +(.*)$");
  static const Pattern per_device("^ *([0-9.]+ per device)$");
  static const Pattern step("^[0-9]+\\s+images/sec: ([0-9.]+)(?: .*|\t.*)?$");
  constexpr size_t longest = 500;  // of lines in a header
  std::vector<NamedResult> results;
  Header header;
  std::optional<LogLine> hidden;  // a total that does not begin its line
  for (const LogLine& line : lines_of(log, {"TensorFlow: ", "Model: ", total_words})) {
    if (line.text.starts_with(total_words)) {
      take_total(line, header);
      continue;
    }
    if (!hidden && line.text.find(total_words) != std::string::npos) hidden = line;
    if (line.text.size() > longest) continue;
    if (const auto found = step.groups_of(line.text); !found.empty()) {
      header.speed = {line, line.positive_number(found[1], "images/sec")};
      continue;
    }
    if (const auto batch = per_device.groups_of(line.text); !batch.empty()) {
      take_batch(line, batch[1], header);
    }
    const std::vector<std::string> found = value.groups_of(line.text);
    if (found.empty() || (found[1] != "Batch size" && !is_of_header(found[1]))) continue;
    end_run(log, header, results);
    if (found[1] == "Batch size") {
      take_batch(line, trimmed(found[2]), header);
    } else {
      take_value(line, found[1], trimmed(found[2]), header);
    }
  }
  end_run(log, header, results);
  const bool lacks = header.line != 0 || results.empty();
  if (lacks && hidden) hidden->refuse(std::string("'") + total_words + "' must begin the line");
  if (header.line != 0) {
    stop_at_end(log, "the run that began on line " + std::to_string(header.line) + " has no '" +
                         total_words + "'");
  }
  if (results.empty()) stop_at_end(log, std::string("there is no '") + total_words + "'");
  return results;
}

// A table of published runs of bare metal and of VMs, as a JSON file by hand: for results whose
// logs are too many to ship, or that were published as numbers alone.

struct PairSide {
  std::map<std::string, std::string> facts;
  std::vector<double> images_per_second;
};

struct PublishedPair {
  std::string name;
  ImportedRun run;  // what all results of it have in common
  std::optional<PairSide> bare_metal;
  std::optional<PairSide> vm;
};

struct PairsFile {
  std::map<std::string, std::string> facts;
  std::vector<PublishedPair> pairs;
};

// A text that the file may leave out.
void take(json::Archive& field, const char* key, std::map<std::string, std::string>& texts) {
  std::optional<std::string> text;
  field.optional(key, text);
  if (text) texts[key] = *text;
}

void fields(json::Archive& field, PairSide& side) {
  take(field, "system", side.facts);
  take(field, "path", side.facts);  // of its logs in the repository
  field("images_per_second", side.images_per_second, above(0));
}

void fields(json::Archive& field, PublishedPair& pair) {
  std::optional<int64_t> batch;  // of each GPU
  field("name", pair.name);
  take(field, "round", pair.run.work);
  take(field, "repository", pair.run.facts);
  take(field, "model", pair.run.work);
  field.optional("gpus", pair.run.world_size, at_least(1));
  field.optional("batch", batch, at_least(1));
  if (batch) pair.run.work["batch"] = std::to_string(*batch);
  std::optional<int64_t> accumulate;  // micro-batches of a step
  field.optional("accumulate", accumulate, at_least(1));
  if (accumulate) pair.run.work["accumulate"] = std::to_string(*accumulate);
  field.optional("bare_metal", pair.bare_metal);
  field.optional("vm", pair.vm);
}

void fields(json::Archive& field, PairsFile& file) {
  std::map<std::string, std::string> for_readers;
  take(field, "description", for_readers);
  take(field, "source", file.facts);
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

std::vector<NamedResult> results_of_pairs(const PublishedLog& log, PublishedSide side) {
  const PairsFile file = pairs_in(log);
  std::vector<NamedResult> results;
  int64_t number = 0;  // of both sides, so that no result of one is taken for one of the other
  for (const PublishedPair& pair : file.pairs) {
    for (const PublishedSide of : {PublishedSide::bare_metal, PublishedSide::vm}) {
      const auto& found = of == PublishedSide::vm ? pair.vm : pair.bare_metal;
      if (!found) continue;
      for (const double throughput : found->images_per_second) {
        NamedResult result{pair.name, pair.run};
        for (const auto* facts : {&found->facts, &file.facts}) {
          result.run.facts.insert(facts->begin(), facts->end());
        }
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
  if (Arm* known = find_in(report.arms, name, &Arm::name)) return *known;
  Arm& arm = report.arms.emplace_back();
  arm.name = name;
  arm.kind = Kind::imported;
  return arm;
}

// What each file of a format has, in the order of ImportFormat.
constexpr std::array words_of_formats = {":::MLLOG", "images/sec", "busbw", "\"pairs\""};

// The results of a file, as those of the source of that number.
std::vector<NamedResult> results_of_file(Report& report, const std::string& file,
                                         const ImportOptions& options) {
  const PublishedLog log{file, input_text(file)};
  const std::string hash = sha256(log.text);
  if (find_in(report.sources, hash, &ImportedSource::sha256) != nullptr) {
    throw std::invalid_argument(file + " is given twice, under this or another name: its results " +
                                "would count twice");
  }
  const std::string other =
      other_kind(words_of_formats.at(static_cast<size_t>(options.format)), log.text);
  if (!other.empty()) throw InvalidReport(file + ": " + other);
  const int64_t source = std::ssize(report.sources);
  report.sources.push_back({.file = std::filesystem::path(file).filename().string(),
                            .sha256 = hash,
                            .format = options.format,
                            .origin = options.origin});
  std::vector<NamedResult> results = results_of(log, options);
  for (NamedResult& result : results) result.run.source = source;
  return results;
}

// In what the work of a result differs from that of others of its name: ", batch 128".
std::string difference(const ImportedRun& run, const std::vector<const ImportedRun*>& namesakes) {
  std::string text;
  for (const auto& field : run.work) {
    const auto has_it = [&](const ImportedRun* other) {
      const auto found = other->work.find(field.first);
      return found != other->work.end() && *found == field;
    };
    if (!std::ranges::all_of(namesakes, has_it)) text += ", " + field.first + " " + field.second;
  }
  const auto of_its_file = [&](const ImportedRun* other) { return other->source == run.source; };
  const bool apart = run.work.contains("table");  // a table of one file is of no other
  if (apart && !std::ranges::all_of(namesakes, of_its_file)) {
    text += ", file " + std::to_string(run.source + 1);
  }
  return text;
}

}  // namespace

Report published_report(const ImportOptions& options) {
  Report report;
  report.kind = Kind::imported;
  std::vector<NamedResult> results;
  for (const std::string& file : options.files) {
    append(results, results_of_file(report, file, options));
  }
  std::map<std::string, std::vector<const ImportedRun*>> namesakes;
  for (const NamedResult& result : results) namesakes[result.arm].push_back(&result.run);
  for (const NamedResult& result : results) {
    const std::string name =
        options.arm.value_or(result.arm + difference(result.run, namesakes[result.arm]));
    arm_in(report, name).imported.push_back(result.run);
  }
  return report;
}

std::vector<LogLine> lines_of(const PublishedLog& log, const std::vector<std::string>& beginnings) {
  std::vector<LogLine> lines;
  for (std::string& text : split(without_prefixes(log.text, beginnings), "\n")) {
    lines.push_back({{&log, std::ssize(lines) + 1}, std::move(text)});
    if (lines.back().text.find('\0') != std::string::npos)
      lines.back().refuse("it holds a NUL byte, and is no text");
  }
  return lines;
}

void LogPlace::refuse(const std::string& why) const {
  throw InvalidReport(log->file + ":" + std::to_string(number) + ": " + printable(why));
}

void stop_at_end(const PublishedLog& log, const std::string& why) {
  const auto ends = std::ranges::count(log.text, '\n');
  const bool whole = log.text.empty() || log.text.ends_with('\n');
  LogPlace{&log, std::max<int64_t>(1, ends + (whole ? 0 : 1))}.refuse("it ends here: " + why);
}

double LogPlace::positive_number(const std::string& text, const std::string& name) const {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool decimal = text.find_first_not_of("0123456789.eE+-") == text.npos;
  if (decimal && !text.empty() && *end == '\0' && std::isfinite(value) && value > 0) return value;
  refuse(name + " must be a number above 0, not '" + text.substr(0, 40) + "'");
}

bool agree(double figure, double other) {
  constexpr double largest = 1.25;
  return figure / other < largest && figure / other > 1 / largest;
}

std::string arm_of(const std::string& work, const ImportedRun& run) {
  const auto system = run.work.find("system");
  return work + (run.world_size ? ", " + counted(*run.world_size, "GPU") : "") +
         (system == run.work.end() ? "" : ", " + system->second);
}

}  // namespace nearmetal
