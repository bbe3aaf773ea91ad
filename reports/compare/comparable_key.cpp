#include "reports/compare/comparable_key.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <set>

#include "base/pattern.h"
#include "base/sha256.h"
#include "base/text.h"
#include "reports/document/settings.h"

namespace nearmetal {
namespace {

// The memory as it is installed, of which a kernel keeps some hundredths: whole GiB, or sixteenths
// of the largest power of two below.
Maybe<int64_t> installed_memory_gib(const Environment& environment) {
  if (!environment.memory_bytes) return environment.memory_bytes;
  constexpr uint64_t gib = uint64_t{1} << 30;
  const auto bytes = static_cast<uint64_t>(*environment.memory_bytes);
  const uint64_t unit = std::max(gib, std::bit_floor(bytes) / 16);
  return static_cast<int64_t>((bytes + unit - 1) / unit * unit / gib);
}

using Key = std::vector<KeyField>;

std::string key_text(const std::string& value) { return value; }
std::string key_text(double value) { return shortest(value, 15); }
std::string key_text(int64_t value) { return std::to_string(value); }
std::string key_text(bool value) { return value ? "yes" : "no"; }
template <Named E>
std::string key_text(E value) {
  return to_string(value);
}
template <class T>
std::string key_text(const std::optional<T>& value) {
  if constexpr (Named<T>) {
    if (!value) return "-";
  }
  return key_text(value.value_or(T{}));
}

// A setting that has parts is as many fields.
void add_setting(Key& key, const std::string& name, const std::optional<LossScale>& scale,
                 Severity severity) {
  const LossScale known = scale.value_or(LossScale{});
  key.push_back({name + ".initial", key_text(known.initial), severity});
  key.push_back({name + ".dynamic", key_text(known.dynamic), severity});
}
template <class T>
void add_setting(Key& key, const std::string& name, const T& value, Severity severity) {
  key.push_back({name, key_text(value), severity});
}

// Calls add(setting, member) for each setting that decides this, in the order of the key.
template <class Add>
void for_each_in_key(Decides decides, const Add& add) {
  using Call = std::pair<int, std::function<void()>>;
  std::vector<Call> calls;
  for_each_setting([&](const Setting& setting, auto member) {
    if (setting.decides != decides) return;
    calls.emplace_back(setting.key_place, [&add, &setting, member] { add(setting, member); });
  });
  std::ranges::stable_sort(calls, {}, &Call::first);
  for (const auto& [place, call] : calls) call();
}

// The settings of the jobs of a run: one for all of them, or one for each.
struct JobSettings {
  RunConfig config;
  bool exchanges = false;  // gradients
};
using AllSettings = std::vector<JobSettings>;

// Earlier reports, which tell of no optimizer, are of SGD.
RunConfig as_earlier_reports(RunConfig config) {
  if (config.optimizer == Optimizer::sgd) config.optimizer.reset();
  return config;
}

AllSettings settings_of(const Report& report, const Arm& arm, const Run& run) {
  const RunConfig config = as_earlier_reports(config_of(report, arm));
  if (arm.workloads.empty()) return {{config, exchanges_gradients(config, run.world_size)}};
  AllSettings all;
  for (const RunConfig& workload : arm.workloads) {
    const bool has_job = all.size() < run.jobs.size();
    const int64_t ranks = has_job ? run.jobs[all.size()].ranks : run.world_size;
    all.push_back({as_earlier_reports(workload), exchanges_gradients(workload, ranks)});
  }
  return all;
}

// "resnet50", or of jobs that differ "resnet50 + resnet18".
template <class Member>
void add_setting(Key& key, const Setting& setting, Member member, const AllSettings& jobs,
                 Severity severity) {
  std::vector<Key> of_jobs;
  for (const JobSettings& job : jobs) {
    add_setting(of_jobs.emplace_back(), setting.name, job.config.*member, severity);
  }
  for (size_t part = 0; part < of_jobs.front().size(); ++part) {
    std::vector<std::string> values;
    for (const Key& of_job : of_jobs) values.push_back(of_job[part].value);
    const bool same = std::ranges::count(values, values.front()) == std::ssize(values);
    key.push_back({of_jobs[0][part].name, same ? values.front() : joined(values, " + "), severity});
  }
}

// Sequences have no pixels and no classes.
bool has(const RunConfig& config, const std::string& setting) {
  return !config.sequence || (setting != "image_size" && setting != "classes");
}

// A setting of the work that earlier reports lack is in the key where it is not the default alone,
// so that the folders of baselines, which are named after the key, stay theirs. One of the layout
// that matters only where gradients are exchanged is there if it is not the default: one rank alone
// is the reference of several, whatever their type.
void add_settings(Key& key, Decides decides, const AllSettings& jobs) {
  const RunConfig standard;
  const bool of_work = decides == Decides::work;
  for_each_in_key(decides, [&](const Setting& setting, auto member) {
    const bool counts = std::ranges::any_of(jobs, [&](const JobSettings& job) {
      const bool differs = job.config.*member != standard.*member;
      return of_work ? has(job.config, setting.name) && (!setting.added || differs)
                     : setting.needs != Needs::exchange || (job.exchanges && differs);
    });
    const Severity severity = of_work ? Severity::work : Severity::layout;
    if (counts) add_setting(key, setting, member, jobs, severity);
  });
}

// "1": alone on its instance; "2 2": two instances with two ranks each.
std::string ranks_per_instance(const Run& run) {
  std::map<int64_t, int64_t> ranks;
  for (const Rank& rank : run.ranks) ++ranks[rank.environment];
  std::vector<int64_t> counts =
      transformed(ranks, [](const auto& of_one) { return of_one.second; });
  std::sort(counts.rbegin(), counts.rend());
  return joined(transformed(counts, [](int64_t count) { return std::to_string(count); }), " ");
}

// "rc_mlx5 sysv", where MPI carries gradients or stages' values, without the names of devices.
std::string mpi_transports(const Run& run) {
  const auto kind = run.communication ? run.communication->all_reduce : std::nullopt;
  const bool by_mpi = kind == AllReduceKind::mpi || kind == AllReduceKind::hierarchical ||
                      (run.pipeline && run.device == Device::cpu);
  std::set<std::string> names;
  for (const Rank& rank : run.ranks) {
    if (!by_mpi || !rank.mpi_transports) continue;
    for (const std::string& way : *rank.mpi_transports) names.insert(way.substr(0, way.find('/')));
  }
  return joined({names.begin(), names.end()}, " ");
}

std::string share_text(const ArmShare& share) {
  std::string text = to_string(share.mode);
  for (const int64_t percent : share.threads_percent) text += " " + std::to_string(percent) + "%";
  for (const int64_t gib : share.memory_gib) text += " " + std::to_string(gib) + "GiB";
  for (const std::string& profile : share.profiles) text += " " + profile;
  for (const std::string& load : share.neighbours) text += " beside " + load;
  return text;
}

// Distinct values of all ranks' environments, so that a mixed job is not taken for a uniform one.
template <class Text>
std::string of_each_rank(const Report& report, const Run& run, const Text& text_of) {
  std::set<std::string> texts;
  for (const Rank& rank : run.ranks) {
    const auto environment = static_cast<size_t>(rank.environment);
    const bool known = environment < report.environments.size();
    texts.insert(known ? text_of(report.environments[environment], rank) : "unknown");
  }
  return joined({texts.begin(), texts.end()});
}

std::string chip_of(const Environment& environment, const Rank& rank) {
  const auto gpu = static_cast<size_t>(rank.gpu.value_or(0));
  return gpu < environment.gpus.size() ? gpu_chip(environment.gpus[gpu].name) : "unknown";
}

// The threads of the rank's job, as it was asked for; 0: all.
int64_t threads_of(const Rank& rank, const AllSettings& jobs, const Run& run) {
  size_t job = 0;
  int64_t ranks = run.jobs.empty() ? 0 : run.jobs[0].ranks;
  while (rank.rank >= ranks && job + 1 < std::min(jobs.size(), run.jobs.size())) {
    ranks += run.jobs[++job].ranks;
  }
  return jobs[job].config.threads;
}

void add_hardware(Key& key, const Report& report, const AllSettings& jobs, const Run& run) {
  const auto add = [&](const char* name, bool may_be_unknown, const auto& text_of) {
    key.push_back({name, of_each_rank(report, run, text_of), Severity::hardware, may_be_unknown});
  };
  if (run.device == Device::cuda) return add("gpu_chip", false, chip_of);
  add("cpu_model", false, [](const Environment& environment, const Rank&) {
    return environment.cpu_model.value.value_or("unknown");
  });
  add("threads", false, [&](const Environment& environment, const Rank& rank) {
    const int64_t asked = threads_of(rank, jobs, run);
    return std::to_string(asked > 0 ? asked : usable_threads(environment));
  });
  add("cpu_id", true, [](const Environment& environment, const Rank&) {
    return cpu_id_of(environment).value.value_or("");
  });
  add("logical_cpus", true, [](const Environment& environment, const Rank&) {
    return std::to_string(environment.logical_cpus);
  });
  add("memory", true, [](const Environment& environment, const Rank&) {
    const Maybe<int64_t> gib = installed_memory_gib(environment);
    return gib ? std::to_string(*gib) + " GiB" : "";
  });
}

void add_libraries(Key& key, const Report& report, const Run& run) {
  std::set<std::string> names;
  for (const Environment& environment : report.environments) {
    for (const auto& [name, version] : environment.libraries) names.insert(name);
  }
  names.erase("cuda_driver_api");  // of the driver, which may differ
  const std::string none = "none";
  for (const std::string& name : names) {
    const auto version = [&](const Environment& environment, const Rank&) {
      const auto found = environment.libraries.find(name);
      return found == environment.libraries.end() ? none : found->second;
    };
    const std::string versions = of_each_rank(report, run, version);
    // None: the library is of another run of the report.
    if (versions != none) key.push_back({"libraries." + name, versions, Severity::software});
  }
}

// Words that name a maker or a line of products, not a chip.
constexpr std::array makers = {"NVIDIA", "GRID", "Tesla", "Quadro", "GeForce", "Graphics"};

// Words from which on a name tells form factor, memory or profile.
bool is_variant(const std::string& word) {
  static const Pattern variant(
      "[0-9]+GB|PCIe|PCIE|SXM[0-9]*|NVL[0-9]*|HBM[0-9a-z]*|MIG|"
      "Laptop|[0-9]+[cg]\\.[0-9]*[cg]?\\.?[0-9]*gb.*");
  return variant.matches(word);
}

}  // namespace

std::string value_in(const std::vector<KeyField>& key, const std::string& name,
                     const std::string& missing) {
  const KeyField* field = find_in(key, name, &KeyField::name);
  return field == nullptr ? missing : field->value;
}

std::string gpu_chip(const std::string& product) {
  std::string chip;
  for (const std::string& word : words_in(product)) {
    if (chip.empty() && std::ranges::count(makers, word) > 0) continue;
    if (!chip.empty() && is_variant(word)) break;
    const size_t dash = word.find('-');  // A100-SXM4-80GB, A100-40C
    chip += (chip.empty() ? "" : " ") + word.substr(0, dash);
    if (dash != word.npos) break;
  }
  return chip.empty() ? product : chip;
}

Key comparable_key(const Report& report, const Arm& arm, const Run& run) {
  Key key;
  key.push_back({"kind", std::string(to_string(arm.kind)), Severity::kind});
  const AllSettings jobs = settings_of(report, arm, run);
  add_settings(key, Decides::work, jobs);
  add_settings(key, Decides::layout, jobs);
  if (run.communication)
    key.push_back({"communication", run.communication->library, Severity::layout});
  const std::string ways = mpi_transports(run);
  if (!ways.empty()) key.push_back({"mpi_transports", ways, Severity::layout});
  if (arm.share) key.push_back({"share", share_text(*arm.share), Severity::layout});
  const auto ranks = [](const ConcurrentJob& job) { return key_text(job.ranks); };
  const std::string ranks_per_job = joined(transformed(run.jobs, ranks), " ");
  if (!run.jobs.empty()) key.push_back({"ranks_per_job", ranks_per_job, Severity::layout});
  key.push_back({"world_size", key_text(run.world_size), Severity::layout});
  key.push_back({"ranks_per_instance", ranks_per_instance(run), Severity::layout});
  add_hardware(key, report, jobs, run);
  add_libraries(key, report, run);
  return key;
}

std::vector<std::string> fields_that_may_differ() {
  std::vector<std::string> names = {"kind"};
  for (const Decides decides : {Decides::work, Decides::layout}) {
    for_each_in_key(decides, [&](const Setting& setting, auto member) {
      names.emplace_back(setting.name);
      Key parts;
      add_setting(parts, setting.name, RunConfig{}.*member, Severity::work);
      for (const KeyField& part : parts) {
        if (part.name != setting.name) names.push_back(part.name);
      }
    });
  }
  for (const char* found : {"communication", "mpi_transports", "share", "ranks_per_job",
                            "world_size", "ranks_per_instance", "gpu_chip", "cpu_model", "threads",
                            "cpu_id", "logical_cpus", "memory", "libraries"}) {
    names.emplace_back(found);
  }
  names.insert(names.end(), imported_work.begin(), imported_work.end());
  return names;
}

std::vector<KeyDifference> key_differences(const std::vector<KeyField>& base,
                                           const std::vector<KeyField>& other) {
  std::vector<KeyDifference> differences;
  for (const KeyField& field : base) {
    const std::string value = value_in(other, field.name, "none");
    const bool unknown = field.value.empty() || value.empty() || value == "none";
    if (value != field.value && !(field.may_be_unknown && unknown)) {
      differences.push_back({field.name, field.severity, field.value, value});
    }
  }
  for (const KeyField& field : other) {
    if (field.may_be_unknown || find_in(base, field.name, &KeyField::name) != nullptr) continue;
    differences.push_back({field.name, field.severity, "none", field.value});
  }
  std::ranges::stable_sort(differences, {}, &KeyDifference::severity);
  return differences;
}

bool KeyDifference::can_be_allowed() const {
  if (severity != Severity::kind) return true;
  const auto ran = [](const std::string& kind) {
    return kind == to_string(Kind::measured) || kind == to_string(Kind::emulated);
  };
  return ran(base) && ran(other);
}

bool KeyDifference::is_treatment(ComparisonForm form) const {
  if (form == ComparisonForm::sets || form == ComparisonForm::reference) return false;
  constexpr std::array of_machines = {"cpu_model", "cpu_id", "logical_cpus", "memory"};
  return name == "ranks_per_instance" ||
         (form == ComparisonForm::vm && std::ranges::find(of_machines, name) != of_machines.end());
}

bool covers(const std::string& allowed, const std::string& field) {
  return allowed == field || allowed == field.substr(0, field.find('.'));
}

bool follows_batch(const std::string& field) {
  return field == "learning_rate" || covers("loss_scale", field);
}

void allow(std::vector<KeyDifference>& differences, ComparisonForm form,
           const std::vector<std::string>& allow_differ) {
  const auto named = [&](const std::string& field) {
    return std::ranges::any_of(allow_differ,
                               [&](const std::string& allowed) { return covers(allowed, field); });
  };
  // The samples of an update.
  const bool other_batch = std::ranges::any_of(differences, [&](const KeyDifference& difference) {
    return (difference.name == "batch" || difference.name == "accumulate") &&
           named(difference.name);
  });
  for (KeyDifference& difference : differences) {
    const bool covered = named(difference.name) || (other_batch && follows_batch(difference.name));
    difference.allowed = difference.can_be_allowed() && (difference.is_treatment(form) || covered);
  }
}

std::string context_sha256(const std::vector<KeyField>& key) {
  std::string text;
  for (const KeyField& field : key) {
    if (field.severity == Severity::layout || field.may_be_unknown) continue;
    text += field.name + '\0' + field.value + '\0';
  }
  return sha256(text);
}

}  // namespace nearmetal
