#include <algorithm>
#include <string>
#include <utility>

#include "models/errors.h"
#include "reports/compare/run_set.h"

namespace nearmetal {
namespace {

std::string derivation_of(const ImportedSource& source, const ImportedRun& imported) {
  const auto round = imported.work.find("round");
  const bool of_mlperf = source.format == ImportFormat::mlperf ||
                         (round != imported.work.end() && round->second.starts_with("MLPerf"));
  if (of_mlperf) return "derived from published logs; not verified by MLCommons";
  return "derived from published results (" + std::string(to_string(source.format)) +
         "); nothing of them was measured here";
}

std::string system_of(const ImportedRun& imported) {
  for (const char* name : {"system", "submission_platform"}) {
    const auto found = imported.facts.find(name);
    if (found != imported.facts.end()) return found->second;
  }
  return "";
}

// The result as a run, as far as the log shows it; the rest stays unknown.
Run run_of(const ImportedRun& imported) {
  const Unknown untold{"the published file does not say it"};
  Run run;
  run.started_at = imported.started_at.value_or("");
  run.device = Device::automatic;
  run.device_name = system_of(imported);
  run.world_size = imported.world_size.value_or(0);
  run.throughput = imported.throughput ? Maybe<double>(*imported.throughput) : untold;
  if (!imported.bus_bandwidth) return run;
  run.communication.emplace().library = "nccl-tests";
  run.communication->best_bus_bandwidth_bytes_per_second = *imported.bus_bandwidth;
  return run;
}

std::vector<KeyField> key_of(const ImportedRun& imported) {
  std::vector<KeyField> key = {{"kind", to_string(Kind::imported), Severity::kind}};
  for (const auto& [name, value] : imported.work) key.push_back({name, value, Severity::work});
  if (imported.world_size) {
    key.push_back({"world_size", std::to_string(*imported.world_size), Severity::layout});
  }
  return key;
}

// The file of a run of that nature; empty where there is none.
std::string source_of(const RunSet& set, bool imported) {
  for (const RunArm& arm : set.arms) {
    for (const SetRun& run : arm.runs) {
      if (is_imported(run) == imported) return run.source;
    }
  }
  return "";
}

}  // namespace

bool is_imported(const RunArm& arm) {
  return std::ranges::any_of(arm.runs, [](const SetRun& run) { return is_imported(run); });
}

void require_one_nature(const std::vector<RunSet>& sides) {
  std::string published, measured;
  for (const RunSet& side : sides) {
    if (published.empty()) published = source_of(side, true);
    if (measured.empty()) measured = source_of(side, false);
  }
  if (published.empty() || measured.empty()) return;
  throw NotComparable(published + " holds imported results, which others published, and " +
                      measured + " runs of nearmetal: they are never taken together");
}

void require_none_imported(const RunSet& set, const std::string& beginning) {
  const std::string source = source_of(set, true);
  if (source.empty()) return;
  throw NotComparable(beginning + ", and " + source +
                      " holds imported results, which others published");
}

void add_imported(RunSet& set, const Report& report, const Arm& arm, const std::string& source) {
  for (const ImportedRun& imported : arm.imported) {
    const ImportedSource& file = report.sources.at(static_cast<size_t>(imported.source));
    add_run(set, arm.name,
            {.source = source,
             .tool = report.tool,
             .kind = Kind::imported,
             .key = key_of(imported),
             .identity = file.sha256 + ":" + std::to_string(imported.line.value_or(0)) + ":" +
                         std::to_string(imported.number),
             .derived = derivation_of(file, imported),
             .run = run_of(imported)},
            {});
  }
}

}  // namespace nearmetal
