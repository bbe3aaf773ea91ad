#include "reports/compare/read_runs.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <filesystem>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "base/errors.h"
#include "base/text.h"
#include "reports/compare/work_text.h"
#include "reports/json/report_files.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

// A run given twice would count as two that agree to the last digit.
void require_distinct(const RunArm& arm) {
  SomeRuns runs = runs_of(arm);
  const auto order = [](const SetRun* run) {
    const auto& window = run->run.window;
    return std::pair(std::string_view(beginning_of(*run)), window ? window->seconds : 0);
  };
  std::ranges::sort(runs, {}, order);
  const auto twin = std::ranges::adjacent_find(runs, [&](const SetRun* a, const SetRun* b) {
    return order(a) == order(b) && a->run.ranks == b->run.ranks;
  });
  if (twin == runs.end()) return;
  throw std::invalid_argument("the same run is in " + (*twin)->source + " and in " +
                              (*std::next(twin))->source + ": it would count twice");
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

// One of several reports in a file may have the arm that is asked for.
void read(Source& source, bool with_steps) {
  std::vector<ReportText> texts = report_texts(source.file);
  const bool several = texts.size() > 1;
  const bool foreign = !several && source.in_folder && !claims_to_be_report(texts.front().text);
  bool found = false;
  for (ReportText& text : texts) {
    try {
      const std::string place = text.source;
      Report report = read_report(std::move(text));
      const bool there = std::ranges::count(report.arms, source.arm, &Arm::name) > 0;
      if (several && !source.arm.empty() && !there) continue;
      if (!source.arm.empty()) keep_only_arm(report, source.arm, place);
      add_runs(source.runs, report, place, with_steps);
      found = true;
    } catch (const InvalidReport&) {
      if (!foreign) throw;
      source.runs.foreign.push_back(source.file);
      found = true;
    }
  }
  if (found) return;
  throw std::invalid_argument("no report in " + source.file + " has an arm '" + source.arm + "'");
}

// Each thread takes the next file until there are none; what is thrown waits in its source.
void read_in_parallel(std::span<Source> sources, bool with_steps) {
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

// Leaves out arms that one report could not have, and another has: by MIG with its profile.
void leave_out_what_is_there(RunSet& set) {
  std::erase_if(set.unsupported, [&](const UnsupportedArm& missing) {
    return std::ranges::any_of(set.arms, [&](const RunArm& arm) {
      const bool there = arm.name == missing.name || (missing.name.ends_with(", MIG") &&
                                                      arm.name.starts_with(missing.name + " "));
      return there && !arm.runs.empty();
    });
  });
}

// Name and place; without a name the place alone.
std::pair<std::string, std::string> named_place(const std::string& place) {
  std::error_code ignored;
  const size_t sign = place.find('=');
  const bool names = sign != place.npos && sign > 0 && place.find('/') > sign;
  if (!names || std::filesystem::exists(report_place(place).first, ignored)) return {"", place};
  return {place.substr(0, sign), place.substr(sign + 1)};
}

RunSet with_group(const std::string& group, RunSet set) {
  for (std::vector<RunArm>* arms : {&set.arms, &set.wholes}) {
    for (RunArm& arm : *arms) {
      arm.name += ", " + group;
      if (!arm.whole.empty()) arm.whole += ", " + group;
      arm.group = group;
    }
  }
  for (UnsupportedArm& arm : set.unsupported) arm.name += ", " + group;
  return set;
}

// The first difference between complete runs that both tell of.
std::optional<KeyDifference> work_difference(const RunArm& arm) {
  const SomeRuns runs = complete_runs(arm);
  for (const SetRun* run : runs) {
    for (const KeyDifference& found : key_differences(runs.front()->key, run->key)) {
      if (!found.base.empty() && !found.other.empty()) return found;
    }
  }
  return std::nullopt;
}

// Runs that did different work become arms of their own, "run, batch 4". One that failed early, and
// does not tell of its work, stays with the first.
void add_by_work(std::vector<RunArm>& arms, RunArm arm) {
  const auto found = arm.whole.empty() ? work_difference(arm) : std::nullopt;
  if (!found) return arms.push_back(std::move(arm));
  std::vector<std::pair<std::string, RunArm>> parts;
  for (SetRun& run : std::exchange(arm.runs, {})) {
    const bool tells = run.run.status == Status::complete;
    std::string value = value_in(run.key, found->name, tells ? "none" : "");
    if (value.empty()) value = found->base;
    RunArm& part = value_beside(value, parts);
    if (part.runs.empty()) part = arm;
    part.name = arm.name + ", " + found->name + " " + value;
    part.runs.push_back(std::move(run));
  }
  for (auto& [value, part] : parts) add_by_work(arms, std::move(part));
}

}  // namespace

std::pair<std::string, std::string> report_place(const std::string& place) {
  std::error_code ignored;
  const size_t hash = place.rfind('#');
  if (hash == place.npos || fs::exists(place, ignored)) return {place, ""};
  return {place.substr(0, hash), place.substr(hash + 1)};
}

std::vector<std::string> files_of(const std::vector<std::string>& places) {
  std::vector<Source> sources;
  for (const std::string& place : places) add_sources(sources, 0, place);
  return transformed(sources, &Source::file);
}

std::vector<RunSet> read_sides(const std::vector<Places>& sides, bool with_steps) {
  std::vector<Source> sources;
  for (size_t side = 0; side < sides.size(); ++side) {
    for (const std::string& place : sides[side]) add_sources(sources, side, place);
  }
  constexpr size_t at_once = 256;  // in memory, each with its environment
  std::vector<RunSet> sets(sides.size());
  for (size_t begin = 0; begin < sources.size(); begin += at_once) {
    const std::span<Source> part =
        std::span(sources).subspan(begin, std::min(at_once, sources.size() - begin));
    read_in_parallel(part, with_steps);
    for (Source& source : part) {
      if (source.error) std::rethrow_exception(source.error);
      add_set(sets[source.side], std::exchange(source.runs, {}));
    }
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

GroupedPlaces grouped_places(const Places& places) {
  GroupedPlaces groups;
  std::string group;  // the group of places without a name
  for (const std::string& given : places) {
    const auto [name, place] = named_place(given);
    if (place.empty()) throw std::invalid_argument("'" + given + "' names a group without a file");
    if (!name.empty()) group = name;
    value_beside(group, groups).push_back(place);
  }
  const auto* unnamed = find_in(groups, "", &GroupedPlaces::value_type::first);
  if (groups.size() > 1 && unnamed != nullptr) {
    throw std::invalid_argument("'" + unnamed->second.front() +
                                "' comes before the first group: NAME=" + unnamed->second.front());
  }
  return groups;
}

GroupedRuns read_groups(const GroupedPlaces& places, bool with_steps, bool same_work) {
  std::vector<RunSet> sets =
      read_sides(transformed(places, &GroupedPlaces::value_type::second), with_steps);
  GroupedRuns runs;
  for (size_t i = 0; i < sets.size(); ++i) {
    if (same_work) require_same_work(sets[i]);
    for (RunArm& arm : std::exchange(sets[i].arms, {})) add_by_work(sets[i].arms, std::move(arm));
    runs.groups.emplace_back(places[i].first, std::move(sets[i]));
  }
  if (places.size() == 1 && places.front().first.empty()) {
    runs.all = std::move(runs.groups.front().second);
    runs.groups = by_machines_of_reports(runs.all);
    if (runs.groups.empty()) return runs;
    for (std::vector<RunArm>* arms : {&runs.all.arms, &runs.all.wholes}) arms->clear();
    runs.all.environments.clear();
  }
  for (const auto& [name, set] : runs.groups) add_set(runs.all, with_group(name, set));
  return runs;
}

}  // namespace nearmetal
