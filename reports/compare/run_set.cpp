#include "reports/compare/run_set.h"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "base/sha256.h"
#include "base/text.h"
#include "reports/document/metric.h"

namespace nearmetal {

NM_DEFINE_SPECIAL_MEMBERS(RunSet);
namespace {

constexpr int64_t unknown_environment = -1;

// Index of an equal environment, looked for among the latest: thousands of runs, as of a batch
// system, may have one each. Two machines of one run are two, even if nothing tells them apart.
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
  if (!with_steps) copy.digests = {};
  for (Rank& rank : copy.ranks) {
    if (with_steps) continue;
    rank.step_seconds = rank.loss = {};
    rank.step_seconds_bins = rank.loss_bins = {};
  }
  return copy;
}

std::string session_of(const Run& run, const std::vector<Environment>& environments) {
  constexpr size_t day_digits = 10;  // of 2026-01-31T...
  std::set<std::string> machines;
  for (const Rank& rank : run.ranks) {
    if (rank.environment < 0 || rank.environment >= std::ssize(environments)) continue;
    machines.insert(operating_system_of(environments[rank.environment]));
  }
  return joined({machines.begin(), machines.end()}) + " " + run.started_at.substr(0, day_digits);
}

std::string machine_of(const Run& run, const std::vector<Environment>& environments) {
  constexpr size_t digits = 12;
  std::set<std::string> parts;
  for (const Rank& rank : run.ranks) {
    if (rank.environment < 0 || rank.environment >= std::ssize(environments)) continue;
    const Environment& host = environments[rank.environment];
    const bool has_gpu = rank.gpu && *rank.gpu < std::ssize(host.gpus);
    const Maybe<std::string> uuid = has_gpu ? host.gpus[*rank.gpu].uuid : Maybe<std::string>();
    parts.insert(uuid.value.value_or(host.machine_id.value.value_or(host.host_name)));
  }
  return sha256(joined({parts.begin(), parts.end()})).substr(0, digits);
}

RunArm& arm_in(std::vector<RunArm>& arms, const std::string& name) {
  RunArm* known = find_in(arms, name, &RunArm::name);
  return known != nullptr ? *known : arms.emplace_back(RunArm{name, {}});
}

// The arm of that name, with what another report or set tells of it.
template <class Facts>
RunArm& arm_in(std::vector<RunArm>& arms, const std::string& name, const Facts& facts) {
  RunArm& arm = arm_in(arms, name);
  if (facts.share) arm.share = facts.share;
  if (facts.grid) arm.grid = facts.grid;
  return arm;
}

// With the key of the run before it, where that is the same.
void add_to(RunArm& arm, SetRun run) {
  if (!arm.runs.empty() && run.key == arm.runs.back().key) run.key = arm.runs.back().key;
  arm.runs.push_back(std::move(run));
}

// The run with the environments of its ranks in the set.
SetRun placed(RunSet& set, SetRun run, const std::vector<Environment>& environments) {
  run.session = session_of(run.run, environments);
  if (run.machine.empty()) run.machine = machine_of(run.run, environments);
  std::map<int64_t, int64_t> places;
  for (Rank& rank : run.run.ranks) {
    const auto [place, is_new] = places.emplace(rank.environment, unknown_environment);
    const bool there = rank.environment >= 0 && rank.environment < std::ssize(environments);
    if (is_new && there) place->second = place_of(set, environments[rank.environment], places);
    rank.environment = place->second;
  }
  return run;
}

void add_arms(RunSet& set, std::vector<RunArm> RunSet::*arms, RunSet& other) {
  for (RunArm& arm : other.*arms) {
    RunArm& known = arm_in(set.*arms, arm.name, arm);
    known.group = arm.group;
    known.whole = arm.whole;
    for (SetRun& run : arm.runs) {
      add_to(known, placed(set, std::move(run), other.environments));
    }
  }
}

// Each of its jobs by itself, and the whole, of which the share is.
void add_unlike_jobs(RunSet& set, const Report& report, const Arm& arm, const SetRun& run) {
  RunArm& whole = arm_in(set.wholes, arm.name, arm);
  whole.runs.push_back(placed(set, run, report.environments));
  Arm alone = arm;
  alone.workloads.clear();
  for (size_t job = 0; job < arm.workloads.size(); ++job) {
    const std::string number = std::to_string(job + 1);
    SetRun of_job = run;
    std::vector<KeyField> key = run.key;
    key.push_back({"job", number, Severity::layout});
    of_job.key = std::move(key);
    alone.config = arm.workloads[job];
    of_job.own_key = comparable_key(report, alone, run.run);
    of_job.run = run_of_job(run.run, job);
    RunArm& known = arm_in(set.arms, arm.name + ", job " + number);
    known.whole = arm.name;
    if (arm.grid) known.grid = arm.grid;
    known.runs.push_back(placed(set, std::move(of_job), report.environments));
  }
}

std::string derivation_of(const ImportedSource& source, const ImportedRun& imported) {
  const auto round = imported.work.find("round");
  const bool of_mlperf = source.format == ImportFormat::mlperf ||
                         (round != imported.work.end() && round->second.starts_with("MLPerf"));
  if (of_mlperf) {
    const auto from = imported.facts.find("throughput_from");
    const bool usual = from == imported.facts.end() || from->second == "epochs";
    return "derived from published logs" + (usual ? "" : " (" + from->second + ")") +
           "; not verified by MLCommons";
  }
  return "derived from published results (" + std::string(to_string(source.format)) +
         "); nothing of them was measured here";
}

std::string system_of(const ImportedRun& imported) {
  for (const char* name : {"system", "submission_platform"}) {
    if (imported.facts.contains(name)) return imported.facts.at(name);
  }
  return "";
}

// The result as a run, as far as the log shows it; the rest stays unknown.
Run run_of(const ImportedRun& imported) {
  const Unknown not_published{"the published file does not say it"};
  Run run;
  run.started_at = imported.started_at.value_or("");
  run.device = Device::automatic;
  run.device_name = system_of(imported);
  run.world_size = imported.world_size.value_or(0);
  run.sample = imported.sample;
  run.throughput = imported.throughput ? Maybe<double>(*imported.throughput) : not_published;
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

// Adds the results of an arm that others published.
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

// The file of a run of that nature; empty where there is none.
std::string source_of(const RunSet& set, bool imported) {
  for (const SetRun& run : all_runs(set)) {
    if (is_imported(run) == imported) return run.source;
  }
  return "";
}

// With what tells it from others of that name.
std::string machine_name_of(const Environment& machine) {
  constexpr size_t digits = 8;
  const Maybe<std::string>& id = machine.machine_id;
  return machine.host_name + (id ? " (" + id->substr(0, digits) + ")" : "");
}

template <class NameOf>
std::string joined_names(const RunSet& set, const Run& run, const NameOf& name_of) {
  std::set<int64_t> places;
  for (const Rank& rank : run.ranks) {
    if (rank.environment >= 0) places.insert(rank.environment);
  }
  std::vector<std::string> names;
  for (const int64_t place : places)
    names.push_back(std::invoke(name_of, set.environments.at(place)));
  std::ranges::sort(names);
  return joined(names, "+");
}

// By the source of its runs, the machines of a report: "node0+node1".
std::map<std::string, std::string> machines_of_reports(const RunSet& set) {
  std::map<std::string, std::set<std::string>> names;
  for (const SetRun& run : all_runs(set)) {
    for (const Rank& rank : run.run.ranks) {
      if (rank.environment < 0) continue;
      const auto is_own = [&](const Environment& other) {
        return are_one_machine(other, set.environments.at(rank.environment));
      };
      const Environment& first = *std::ranges::find_if(set.environments, is_own);
      const bool has_namesake = std::ranges::any_of(set.environments, [&](const auto& other) {
        return other.host_name == first.host_name && !is_own(other);
      });
      names[run.source].insert(has_namesake ? machine_name_of(first) : first.host_name);
    }
  }
  std::map<std::string, std::string> machines;
  for (const auto& [source, all] : names) machines[source] = joined({all.begin(), all.end()}, "+");
  return machines;
}

}  // namespace

void keep_only_arm(Report& report, const std::string& arm, const std::string& source) {
  std::vector<std::string> others;
  std::erase_if(report.arms, [&](const Arm& other) {
    if (other.name != arm) others.push_back(other.name);
    return other.name != arm;
  });
  if (!report.arms.empty()) return;
  throw std::invalid_argument(source + " has no arm '" + arm + "'; it has: " + joined(others));
}

std::string hosts_of(const RunSet& set, const Run& run) {
  return joined_names(set, run, &Environment::host_name);
}

bool are_one_machine(const Environment& a, const Environment& b) {
  const auto same = [](const Maybe<std::string>& id, const Maybe<std::string>& other) {
    return id && other && *id == *other;
  };
  const bool has_ids = a.machine_id && b.machine_id;
  return same(a.boot_id, b.boot_id) || same(a.machine_id, b.machine_id) ||
         (!has_ids && a.host_name == b.host_name);
}

std::vector<std::pair<std::string, RunSet>> by_machines_of_reports(const RunSet& set) {
  const std::map<std::string, std::string> machines = machines_of_reports(set);
  if (machines.empty()) return {};
  const auto of_run = [&](const SetRun& run) {
    const auto found = machines.find(run.source);
    return (found != machines.end() ? found : machines.begin())->second;
  };
  std::vector<std::pair<std::string, RunSet>> parts;
  bool mixed = false;
  for (std::vector<RunArm> RunSet::*arms : {&RunSet::arms, &RunSet::wholes}) {
    for (const RunArm& arm : set.*arms) {
      for (const SetRun& run : arm.runs) {
        RunSet& part = value_beside(of_run(run), parts);
        RunArm& own = arm_in(part.*arms, arm.name, arm);
        own.whole = arm.whole;
        add_to(own, placed(part, run, set.environments));
        mixed = mixed || of_run(run) != of_run(arm.runs.front());
      }
    }
  }
  return mixed ? std::move(parts) : decltype(parts){};
}

std::map<std::string, RunSet> by_machine(const RunSet& set) {
  std::map<std::string, RunSet> parts;
  for (const RunArm& arm : set.arms) {
    for (const SetRun& run : arm.runs) {
      const std::string machines = joined_names(set, run.run, machine_name_of);
      RunSet& part = parts[machines];
      const std::string name = arm.name + " on " + machines;
      arm_in(part.arms, name, arm).group = arm.group;
      add_run(part, name, run, set.environments);
    }
  }
  return parts;
}

const RunArm* arm_named(const std::string& name, const RunSet& set) {
  return find_in(set.arms, name, &RunArm::name);
}

std::vector<std::reference_wrapper<const SetRun>> all_runs(const RunSet& set) {
  std::vector<std::reference_wrapper<const SetRun>> runs;
  for (const RunArm& arm : set.arms) runs.insert(runs.end(), arm.runs.begin(), arm.runs.end());
  return runs;
}

SomeRuns runs_of(const RunArm& arm) {
  return transformed(arm.runs, [](const SetRun& run) { return &run; });
}

SomeRuns complete_runs(const RunArm& arm) {
  return runs_where(arm, [](const SetRun& run) { return run.run.status == Status::complete; });
}

std::string counted_files(const std::string& runs, const RunArm& arm) {
  std::set<std::string> files;
  for (const SetRun& run : arm.runs) files.insert(run.source);
  return runs + (files.size() > 1 ? " in " + std::to_string(files.size()) + " files" : "");
}

SomeRuns in_order(SomeRuns runs) {
  std::ranges::stable_sort(runs, {}, [](const SetRun* run) { return run->run.started_at; });
  return runs;
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

void add_run(RunSet& set, const std::string& arm, SetRun run,
             const std::vector<Environment>& environments) {
  run = placed(set, std::move(run), environments);
  add_to(arm_in(set.arms, arm), std::move(run));
}

void add_set(RunSet& set, RunSet other) {
  add_arms(set, &RunSet::arms, other);
  add_arms(set, &RunSet::wholes, other);
  for (const UnsupportedArm& arm : other.unsupported) add_new(set.unsupported, arm);
  set.foreign.insert(set.foreign.end(), other.foreign.begin(), other.foreign.end());
}

void add_runs(RunSet& set, const Report& report, const std::string& source, bool with_steps) {
  if (report.kind == Kind::predicted) {
    throw HoldsForecasts(source +
                         " holds forecasts, which are no runs: compare takes it as BASE, "
                         "and what was measured later as NEW");
  }
  for (const Arm& arm : report.arms) {
    if (arm.unsupported) {
      add_new(set.unsupported, {arm.name, *arm.unsupported});
      continue;
    }
    const bool unlike = does_unlike_work(arm.workloads);
    if (!unlike) arm_in(set.arms, arm.name, arm);
    add_imported(set, report, arm, source);
    for (const Run& run : arm.runs) {
      SetRun added{.source = source,
                   .tool = run.tool.value_or(report.tool),
                   .kind = arm.kind,
                   .key = comparable_key(report, arm, run),
                   .argv = report.invocation.argv,
                   .asked_steps = config_of(report, arm).steps,
                   .seed = config_of(report, arm).seed,
                   .run = kept_of(run, with_steps)};
      if (unlike) {
        add_unlike_jobs(set, report, arm, added);
      } else {
        add_run(set, arm.name, std::move(added), report.environments);
      }
    }
  }
}

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

std::vector<Tool> builds_of(const SomeRuns& runs) {
  std::vector<Tool> builds;
  for (const SetRun* run : runs) add_new(builds, run->tool);
  return builds;
}

std::string builds_text(const std::vector<Tool>& builds, const std::vector<Tool>& others) {
  constexpr size_t shown_digits = 12;
  std::set<std::string> texts;
  for (const Tool& build : builds) {
    std::string text = build_text(build);
    const auto reads_the_same = [&](const Tool& other) {
      return other != build && build_text(other) == text;
    };
    if (std::ranges::any_of(builds, reads_the_same) ||
        std::ranges::any_of(others, reads_the_same)) {
      text += " by " + build.compiler + ", build ID " +
              build.build_id.value_or("not known").substr(0, shown_digits);
    }
    texts.insert(text);
  }
  return joined({texts.begin(), texts.end()}, " and ");
}

}  // namespace nearmetal
