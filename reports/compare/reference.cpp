#include "reports/compare/reference.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "base/sha256.h"
#include "base/text.h"
#include "reports/compare/baseline.h"
#include "reports/compare/comparison_row.h"
#include "reports/compare/environment_differences.h"
#include "reports/compare/read_runs.h"
#include "reports/compare/work_text.h"
#include "reports/json/archive.h"
#include "reports/json/report_fields.h"
#include "reports/json/report_files.h"

namespace nearmetal {

// A file of a reference. It has no more of a run than comparing takes, so that hundreds of runs are
// a small file; a report has a hundred times as much.

namespace {

namespace fs = std::filesystem;

struct SeenMean {
  std::string series;
  double mean = 0;
};

struct StoredRun {
  std::string started_at, machine, session;
  double throughput = 0;  // samples/s
  std::string version;    // of nearmetal
  std::optional<std::string> git_commit, driver, hypervisor;
  std::vector<SeenMean> seen;  // by the monitor, over the ranks
};

struct StoredWork {
  Kind kind = Kind::measured;
  Device device = Device::cuda;
  std::string device_name;
  int64_t ranks = 1;
  SampleUnit sample = SampleUnit::image;
  std::vector<KeyField> key;
  std::vector<StoredRun> runs;
};

struct StoredReference {
  std::string schema = "nearmetal/reference";
  std::string schema_version = "1.0";
  std::vector<StoredWork> works;
};

void fields(json::Archive& field, SeenMean& seen) {
  field("series", seen.series);
  field("mean", seen.mean);
}

void fields(json::Archive& field, StoredRun& run) {
  field("started_at", run.started_at, json::time_stamp);
  field("machine", run.machine);
  field("session", run.session);
  field("samples_per_second", run.throughput, above(0));
  field("version", run.version);
  field.optional("git_commit", run.git_commit);
  field.optional("driver", run.driver);
  field.optional("hypervisor", run.hypervisor);
  field("seen", run.seen);
}

}  // namespace

// Found where the type is.
static void fields(json::Archive& field, KeyField& of_key) {
  field("name", of_key.name);
  field("value", of_key.value);
  field("severity", of_key.severity);
  field.optional("may_be_unknown", of_key.may_be_unknown);
}

namespace {

void fields(json::Archive& field, StoredWork& work) {
  field("kind", work.kind);
  field("device", work.device);
  field("device_name", work.device_name);
  field("ranks", work.ranks, at_least(1));
  field("sample", work.sample);
  field("key", work.key);
  field("runs", work.runs);
}

void fields(json::Archive& field, StoredReference& file) {
  field("schema", file.schema, json::one_of("nearmetal/reference"));
  field("schema_version", file.schema_version, json::readable_version);
  field("works", file.works);
}

constexpr size_t machine_digits = 12;
constexpr size_t day_digits = 10;  // of 2026-01-31T...

std::string hash_of(const std::string& text) { return sha256(text).substr(0, machine_digits); }

fs::path file_of(const fs::path& folder, const std::string& name) {
  return folder / (name + ".json");
}

// What is kept of an environment.
Environment environment_of(const StoredRun& run) {
  Environment kept;
  kept.host_name = left_out_name;
  kept.boot_id = run.session;
  if (run.hypervisor) kept.virtualisation.hypervisor = *run.hypervisor;
  Gpu& gpu = kept.gpus.emplace_back();
  if (run.driver) gpu.driver_version = *run.driver;
  return kept;
}

// An arm has the runs of one comparable key.
void add_stored(RunSet& set, const std::string& arm, const StoredWork& work,
                const StoredRun& stored, const std::string& source) {
  SetRun added;
  added.source = source;
  added.kind = work.kind;
  added.key = work.key;
  added.tool.version = stored.version;
  if (stored.git_commit) added.tool.git_commit = *stored.git_commit;
  added.machine = stored.machine;
  Run& run = added.run;
  run.started_at = stored.started_at;
  run.status = Status::complete;
  run.device = work.device;
  run.device_name = work.device_name;
  run.world_size = work.ranks;
  run.sample = work.sample;
  run.throughput = stored.throughput;
  Monitoring& monitoring = run.ranks.emplace_back().monitoring.emplace();
  for (const SeenMean& seen : stored.seen) {
    monitoring.series.push_back({seen.series, seen.mean, seen.mean, seen.mean, {}});
  }
  add_run(set, arm, std::move(added), {environment_of(stored)});
}

StoredReference read_stored(const fs::path& file) try {
  return json::parsed<StoredReference>(file_text(file));
} catch (const InvalidReport& error) {
  throw InvalidReport(file.string() + " is not a reference: " + error.what());
}

Reference read_reference(const fs::path& file) {
  Reference reference{file.stem().string(), {}};
  for (const StoredWork& work : read_stored(file).works) {
    const std::string arm = "work " + std::to_string(reference.runs.arms.size() + 1);
    for (const StoredRun& run : work.runs) {
      add_stored(reference.runs, arm, work, run, file.string());
    }
  }
  return reference;
}

// Of its first rank; one that knows nothing where that is not told.
Environment host_of(const SetRun& run, const std::vector<Environment>& environments) {
  const int64_t place = run.run.ranks.empty() ? -1 : run.run.ranks.front().environment;
  return place >= 0 && place < std::ssize(environments) ? environments[place] : Environment{};
}

StoredRun stored_of(const SetRun& run, const std::vector<Environment>& environments) {
  StoredRun stored;
  stored.started_at = run.run.started_at;
  stored.machine = run.machine;
  stored.session = hash_of(run.session);
  stored.throughput = *run.run.throughput;
  stored.version = run.tool.version;
  stored.git_commit = run.tool.git_commit.value;
  for (const auto& [series, mean] : monitored_means(run.run)) stored.seen.push_back({series, mean});
  const Environment host = host_of(run, environments);
  stored.hypervisor = host.virtualisation.hypervisor.value;
  if (!host.gpus.empty()) stored.driver = host.gpus.front().driver_version.value;
  return stored;
}

// Of the same comparable key.
StoredWork& work_in(StoredReference& stored, const SetRun& run) {
  const std::vector<KeyField>& key = run.key;
  StoredWork* const known = find_in(stored.works, key, &StoredWork::key);
  if (known != nullptr) return *known;
  return stored.works.emplace_back(StoredWork{.kind = run.kind,
                                              .device = run.run.device,
                                              .device_name = run.run.device_name,
                                              .ranks = run.run.world_size,
                                              .sample = run.run.sample,
                                              .key = key,
                                              .runs = {}});
}

// Fields that differ and that nothing allows.
int64_t differences_of(const SetRun& run, const SetRun& next,
                       const std::vector<std::string>& allow_differ) {
  std::vector<KeyDifference> found = key_differences(run.key, next.key);
  allow(found, ComparisonForm::reference, allow_differ);
  return std::ranges::count(found, false, &KeyDifference::allowed);
}

// Of a reference, what is nearest to the work of each arm, without these machines themselves; and
// the fields that differ.
std::pair<RunSet, int64_t> match_of(const Reference& reference, const RunSet& next,
                                    const std::vector<std::string>& allow_differ) {
  RunSet match;
  int64_t differences = 0;
  for (const RunArm& arm : next.arms) {
    if (arm.runs.empty()) continue;
    std::map<int64_t, const RunArm*> works;  // the first of equals
    for (const RunArm& work : reference.runs.arms) {
      works.emplace(differences_of(work.runs.front(), arm.runs.front(), allow_differ), &work);
    }
    if (works.empty()) continue;
    differences += works.begin()->first;
    for (const SetRun& run : works.begin()->second->runs) {
      if (find_in(arm.runs, run.machine, &SetRun::machine) != nullptr) continue;
      add_run(match, arm.name, run, reference.runs.environments);
    }
  }
  return {std::move(match), differences};
}

std::string works_of(const std::vector<Reference>& references) {
  if (references.empty()) return "there is none (`nearmetal reference add` makes one)";
  std::vector<std::string> works;
  for (const auto& reference : references) {
    works.push_back(reference.name + " (" + reference_works(reference) + ")");
  }
  return "there are " + joined(works, "; ");
}

std::chrono::sys_days day_of(const std::string& time_stamp) {
  const auto number = [&](size_t begin, size_t digits) {
    return std::atoi(time_stamp.substr(begin, digits).c_str());
  };
  return std::chrono::year(number(0, 4)) / number(5, 2) / number(8, 2);
}

const SetRun& latest_run(const RunSet& set) {
  const auto runs = all_runs(set);
  return *std::ranges::max_element(
      runs, {}, [](const SetRun& run) -> const std::string& { return run.run.started_at; });
}

std::string hypervisor_of(const RunSet& set, const SetRun& run) {
  const Environment host = host_of(run, set.environments);
  return host.virtualisation.hypervisor.value.value_or("an unknown hypervisor");
}

}  // namespace

std::vector<Reference> read_references(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return transformed(files, read_reference);
}

ReferenceAddition add_to_reference(const fs::path& folder, const std::string& name,
                                   const std::vector<std::string>& reports) {
  require_name(name, "a reference");
  const RunSet set = read_runs(reports);
  require_none_imported(set, "a reference has runs of nearmetal alone");
  const fs::path file = file_of(folder, name);
  std::error_code ignored;  // writing says what is wrong
  StoredReference stored;
  if (fs::exists(file, ignored)) stored = read_stored(file);
  ReferenceAddition done;
  for (const RunArm& arm : set.arms) {
    for (const SetRun& run : arm.runs) {
      if (!has_throughput(run) || !arm.whole.empty()) {
        ++done.left_out;
        continue;
      }
      StoredWork& work = work_in(stored, run);
      const StoredRun added = stored_of(run, set.environments);
      const bool there = std::ranges::any_of(work.runs, [&](const StoredRun& other) {
        return other.machine == added.machine && other.started_at == added.started_at;
      });
      if (!there) work.runs.push_back(added);
      ++(there ? done.there : done.added);
    }
  }
  if (done.added + done.there == 0) {
    throw InvalidReport("no run to add to " + name + ": none of these reports has a complete run " +
                        "whose jobs do the same work");
  }
  if (done.added == 0) return done;
  for (StoredWork& work : stored.works) {
    std::ranges::sort(work.runs, {},
                      [](const StoredRun& run) { return std::pair(run.machine, run.started_at); });
  }
  fs::create_directories(folder, ignored);
  // A run a line, as such a file is kept in git; no text in it has these marks unescaped.
  std::string text = json::line_of(stored);
  for (const char* mark : {R"({"started_at":)", R"({"kind":)"}) {
    text = replaced(std::move(text), mark, std::string("\n") + mark);
  }
  write_file_atomically(file, text + "\n", true);
  return done;
}

std::string reference_works(const Reference& reference) {
  std::vector<std::string> works;
  for (const RunArm& arm : reference.runs.arms) {
    std::set<std::string> machines, days;
    for (const SetRun& run : arm.runs) {
      machines.insert(run.machine);
      days.insert(run.run.started_at.substr(0, day_digits));
    }
    const SetRun& first = arm.runs.front();
    works.push_back(first.run.device_name + ", " + work_of(first) + ", " +
                    counted(std::ssize(machines), "machine") + ", " + *days.begin() + " to " +
                    *days.rbegin());
  }
  return joined(works, "; ");
}

const Reference& reference_named(const std::vector<Reference>& references,
                                 const std::string& name) {
  const Reference* named = find_in(references, name, &Reference::name);
  if (named != nullptr) return *named;
  throw InvalidReport("there is no reference " + name + "; " + works_of(references));
}

RunSet by_card(const RunSet& next) {
  constexpr size_t shown_digits = 8;
  RunSet split;
  for (const RunArm& arm : next.arms) {
    const auto of_first = [&](const SetRun& run) {
      return run.machine == arm.runs.front().machine;
    };
    const bool several = !std::ranges::all_of(arm.runs, of_first);
    for (const SetRun& run : arm.runs) {
      const std::string machine =
          " on " + hosts_of(next, run.run) + " (" + run.machine.substr(0, shown_digits) + ")";
      add_run(split, arm.name + (several ? machine : ""), run, next.environments);
    }
  }
  return split;
}

Reference matching_reference(const std::vector<Reference>& references,
                             const std::optional<std::string>& name, const RunSet& next,
                             const std::vector<std::string>& allow_differ) {
  const Reference* chosen = name ? &reference_named(references, *name) : nullptr;
  std::pair<RunSet, int64_t> best;
  if (chosen != nullptr) best = match_of(*chosen, next, allow_differ);
  for (const Reference& reference : references) {
    if (name) break;
    auto match = match_of(reference, next, allow_differ);
    if (chosen != nullptr && match.second >= best.second) continue;
    chosen = &reference;
    best = std::move(match);
  }
  if (!name && (chosen == nullptr || best.second > 0)) {
    throw NotComparable(
        "no reference has this work (" + work_line(next) + "); " + works_of(references) +
        (chosen != nullptr ? "; --reference " + chosen->name + " says what differs" : ""));
  }
  if (!best.first.arms.empty()) return {chosen->name, std::move(best.first)};
  throw NotComparable("the reference " + chosen->name + " has no other machine than this one");
}

std::vector<Warning> doubts_of_reference(const RunSet& reference, const RunSet& next) {
  std::vector<Warning> doubts;
  if (all_runs(reference).empty() || all_runs(next).empty()) return doubts;
  const SetRun& there = latest_run(reference);
  const SetRun& here = latest_run(next);
  const int64_t days = (day_of(here.run.started_at) - day_of(there.run.started_at)).count();
  if (days > oldest_reference_days) {
    doubts.push_back({"reference_old", "the reference is " + std::to_string(days) + " days old"});
  }
  if (there.tool.version != here.tool.version) {
    doubts.push_back({"reference_version", "the latest run of the reference is of nearmetal " +
                                               there.tool.version + ", not " + here.tool.version});
  }
  const std::string then = hypervisor_of(reference, there), now = hypervisor_of(next, here);
  if (then != now) {
    doubts.push_back({"reference_hypervisor",
                      "the reference is of machines with " + then + ", this one has " + now});
  }
  return doubts;
}

}  // namespace nearmetal
