#include "reports/compare/run_set.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>

#include "models/errors.h"
#include "reports/json/json.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

constexpr int64_t unknown_environment = -1;

// Index of an equal environment, looked for among the latest: that of each of thousands of runs may
// be another, as of jobs of a batch system. Two machines of one run are two, even where nothing
// tells them apart.
int64_t place_of(RunSet& set, const Environment& environment,
                 const std::map<int64_t, int64_t>& taken) {
  constexpr std::ptrdiff_t looked_at = 16;
  std::vector<Environment>& known = set.environments;
  const auto first = known.end() - std::min<std::ptrdiff_t>(looked_at, std::ssize(known));
  for (auto found = first; found != known.end(); ++found) {
    const int64_t place = found - known.begin();
    const bool is_taken =
        std::ranges::any_of(taken, [&](const auto& of_run) { return of_run.second == place; });
    if (!is_taken && *found == environment) return place;
  }
  known.push_back(environment);
  return std::ssize(known) - 1;
}

Run kept_of(const Run& run, bool with_steps) {
  Run copy = run;
  copy.kernel_choices = {};
  if (!with_steps) copy.profile.reset();
  for (Rank& rank : copy.ranks) {
    if (!with_steps) rank.step_seconds = rank.loss = {};
  }
  return copy;
}

std::string session_of(const Run& run, const std::vector<Environment>& environments) {
  constexpr size_t day_digits = 10;  // of 2026-01-31T...
  std::set<std::string> machines;
  for (const Rank& rank : run.ranks) {
    if (rank.environment < 0 || rank.environment >= std::ssize(environments)) continue;
    const Environment& machine = environments[rank.environment];
    machines.insert(machine.host_name + " " + machine.boot_id.value.value_or(""));
  }
  return joined({machines.begin(), machines.end()}) + " " + run.started_at.substr(0, day_digits);
}

double window_seconds(const Run& run) { return run.window ? run.window->seconds : 0; }

// A run given twice would count as two that agree to the last digit.
void require_distinct(const RunArm& arm) {
  std::vector<const SetRun*> runs;
  for (const SetRun& run : arm.runs) runs.push_back(&run);
  const auto order = [](const SetRun* run) {
    const std::string& begun = is_imported(*run) ? run->identity : run->run.started_at;
    return std::pair(std::string_view(begun), window_seconds(run->run));
  };
  std::ranges::sort(runs, [&](const SetRun* a, const SetRun* b) { return order(a) < order(b); });
  const auto twin = std::ranges::adjacent_find(runs, [&](const SetRun* a, const SetRun* b) {
    return order(a) == order(b) && a->run.ranks == b->run.ranks;
  });
  if (twin == runs.end()) return;
  throw std::invalid_argument("the same run is in " + (*twin)->source + " and in " +
                              (*std::next(twin))->source + ": it would count twice");
}

struct Source {
  size_t side = 0;
  std::string file;
  std::string arm{};       // empty: all
  bool in_folder = false;  // and not named itself
  RunSet runs{};
  std::exception_ptr error{};
};

void add_sources(std::vector<Source>& sources, size_t side, const std::string& place) {
  std::error_code ignored;
  if (fs::is_directory(place, ignored)) {
    for (const fs::path& file : reports_below(place)) {
      sources.push_back({.side = side, .file = file.string(), .in_folder = true});
    }
  } else {
    const auto [file, arm] = report_place(place);
    sources.push_back({.side = side, .file = file, .arm = arm});
  }
}

bool has_arm(const Report& report, const std::string& wanted) {
  return std::ranges::find(report.arms, wanted, &Arm::name) != report.arms.end();
}

void require_arm(const Report& report, const std::string& wanted, const std::string& source) {
  if (has_arm(report, wanted)) return;
  std::vector<std::string> names;
  for (const Arm& arm : report.arms) names.push_back(arm.name);
  throw std::invalid_argument(source + " has no arm '" + wanted + "'; it has: " + joined(names));
}

// Of several reports in a file one may have the arm that is asked for.
void read_some(Source& source, std::vector<ReportText> texts, bool with_steps) {
  bool found = false;
  for (ReportText& text : texts) {
    const std::string place = text.source;
    const Report report = read_report(std::move(text));
    if (!source.arm.empty() && !has_arm(report, source.arm)) continue;
    add_runs(source.runs, report, place, source.arm, with_steps);
    found = true;
  }
  if (found) return;
  throw std::invalid_argument("of the reports in " + source.file + " none has an arm '" +
                              source.arm + "'");
}

void read(Source& source, bool with_steps) {
  std::vector<ReportText> texts = report_texts(source.file);
  if (texts.size() > 1) return read_some(source, std::move(texts), with_steps);
  const bool foreign = source.in_folder && !claims_to_be_report(texts.front().text);
  try {
    const Report report = read_report(std::move(texts.front()));
    add_runs(source.runs, report, source.file, source.arm, with_steps);
  } catch (const InvalidReport&) {
    if (!foreign) throw;
    source.runs.foreign.push_back(source.file);
  }
}

// Each thread takes the next file until there are none; what is thrown waits in its source.
void read_in_parallel(std::vector<Source>& sources, bool with_steps) {
  constexpr size_t most_threads = 4;  // each holds a file's document at a time
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < sources.size(); i = next++) {
      Source& source = sources[i];
      try {
        read(source, with_steps);
      } catch (...) {
        source.error = std::current_exception();
      }
    }
  };
  const size_t processors = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::jthread> threads;
  for (size_t i = 1; i < std::min({processors, most_threads, sources.size()}); ++i) {
    threads.emplace_back(work);
  }
  work();
}

void add_unsupported(RunSet& set, const UnsupportedArm& arm) {
  std::vector<UnsupportedArm>& known = set.unsupported;
  if (std::ranges::find(known, arm) == known.end()) known.push_back(arm);
}

void merge(RunSet& set, RunSet&& other) {
  for (RunArm& arm : other.arms) {
    RunArm& known = arm_named(set, arm.name);
    if (arm.share) known.share = arm.share;
    for (SetRun& run : arm.runs) add_run(set, arm.name, std::move(run), other.environments);
  }
  for (const UnsupportedArm& arm : other.unsupported) add_unsupported(set, arm);
  for (const std::string& file : other.foreign) set.foreign.push_back(file);
}

// What one report could not have, and another has: by MIG the arm names the profile, too.
void leave_out_what_is_there(RunSet& set) {
  std::erase_if(set.unsupported, [&](const UnsupportedArm& missing) {
    return std::ranges::any_of(set.arms, [&](const RunArm& arm) {
      const bool there = arm.name == missing.name || (missing.name.ends_with(", MIG") &&
                                                      arm.name.starts_with(missing.name + " "));
      return there && !arm.runs.empty();
    });
  });
}

}  // namespace

std::pair<std::string, std::string> report_place(const std::string& place) {
  std::error_code ignored;
  const size_t hash = place.rfind('#');
  if (hash == place.npos || fs::exists(place, ignored)) return {place, ""};
  return {place.substr(0, hash), place.substr(hash + 1)};
}

std::vector<fs::path> reports_below(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() && entry.path().extension() == ".json") {
      files.push_back(entry.path());
    }
  }
  if (files.empty()) throw InvalidReport(folder.string() + " holds no report (*.json)");
  std::ranges::sort(files);
  return files;
}

std::vector<std::string> files_of(const std::vector<std::string>& places) {
  std::vector<Source> sources;
  for (const std::string& place : places) add_sources(sources, 0, place);
  std::vector<std::string> files;
  for (const Source& source : sources) files.push_back(source.file);
  return files;
}

void keep_only_arm(Report& report, const std::string& arm, const std::string& source) {
  require_arm(report, arm, source);
  std::erase_if(report.arms, [&](const Arm& other) { return other.name != arm; });
}

SampleUnit unit_of(const RunArm& arm) {
  return arm.runs.empty() ? SampleUnit::image : arm.runs.front().run.sample;
}

std::vector<SampleUnit> units_of(const RunSet& set) {
  std::vector<SampleUnit> units;
  for (const RunArm& arm : set.arms) {
    if (!arm.runs.empty()) units.push_back(unit_of(arm));
  }
  return units;
}

RunArm& arm_named(RunSet& set, const std::string& name) {
  for (RunArm& arm : set.arms) {
    if (arm.name == name) return arm;
  }
  return set.arms.emplace_back(RunArm{name, {}});
}

void add_run(RunSet& set, const std::string& arm, SetRun run,
             const std::vector<Environment>& environments) {
  run.session = session_of(run.run, environments);
  std::map<int64_t, int64_t> places;
  for (Rank& rank : run.run.ranks) {
    const auto [place, is_new] = places.emplace(rank.environment, unknown_environment);
    const bool there = rank.environment >= 0 && rank.environment < std::ssize(environments);
    if (is_new && there) place->second = place_of(set, environments[rank.environment], places);
    rank.environment = place->second;
  }
  arm_named(set, arm).runs.push_back(std::move(run));
}

void add_runs(RunSet& set, const Report& report, const std::string& source,
              const std::string& only_arm, bool with_steps) {
  if (!only_arm.empty()) require_arm(report, only_arm, source);
  for (const Arm& arm : report.arms) {
    if (!only_arm.empty() && arm.name != only_arm) continue;
    if (arm.unsupported) {
      add_unsupported(set, {arm.name, *arm.unsupported});
      continue;
    }
    RunArm& known = arm_named(set, arm.name);
    if (arm.share) known.share = arm.share;
    add_imported(set, report, arm, source);
    for (const Run& run : arm.runs) {
      add_run(set, arm.name,
              {.source = source,
               .tool = run.tool.value_or(report.tool),
               .kind = arm.kind,
               .key = comparable_key(report, arm, run),
               .argv = report.invocation.argv,
               .run = kept_of(run, with_steps)},
              report.environments);
    }
  }
}

std::vector<RunSet> read_sides(const std::vector<Places>& sides, bool with_steps) {
  std::vector<Source> sources;
  for (size_t side = 0; side < sides.size(); ++side) {
    for (const std::string& place : sides[side]) add_sources(sources, side, place);
  }
  read_in_parallel(sources, with_steps);
  std::vector<RunSet> sets(sides.size());
  for (Source& source : sources) {
    if (source.error) std::rethrow_exception(source.error);
    merge(sets[source.side], std::move(source.runs));
  }
  require_one_nature(sets);
  for (RunSet& set : sets) {
    for (const RunArm& arm : set.arms) require_distinct(arm);
    leave_out_what_is_there(set);
    if (set.arms.empty() && set.unsupported.empty() && !set.foreign.empty()) {
      throw InvalidReport(set.foreign.front() +
                          " is no report of nearmetal, and there is no other");
    }
  }
  return sets;
}

RunSet read_runs(const Places& places, bool with_steps) {
  return std::move(read_sides({places}, with_steps).front());
}

}  // namespace nearmetal
