#include "reports/imports/published_json.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "base/errors.h"
#include "base/file_kind.h"
#include "base/sha256.h"
#include "base/text.h"
#include "reports/imports/mlperf_json.h"
#include "reports/imports/nccl_tests_log.h"
#include "reports/json/json.h"
#include "reports/json/json_reader.h"
#include "reports/json/report_files.h"

namespace nearmetal {
namespace {

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

}  // namespace nearmetal
