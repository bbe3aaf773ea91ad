// A table of published runs of bare metal and of VMs, as a JSON file by hand: for results whose
// logs are too many to ship, or that were published as numbers alone.
#include <optional>
#include <vector>

#include "models/errors.h"
#include "reports/imports/log_lines.h"
#include "reports/json/json.h"
#include "reports/json/json_reader.h"

namespace nearmetal {
namespace {

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
    const json::Document document = json::Document::parse(log.text);
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

}  // namespace

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

}  // namespace nearmetal
