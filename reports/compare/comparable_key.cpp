#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <utility>

#include "reports/compare/run_set.h"
#include "reports/document/settings.h"
#include "reports/files/sha256.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

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

// A setting that earlier reports lack is in the key where it is not the default alone, so that the
// folders of baselines, which are named after the key, stay theirs.
void add_work(Key& key, const RunConfig& config) {
  const RunConfig standard;
  for_each_in_key(Decides::work, [&](const Setting& setting, auto member) {
    if (setting.added && config.*member == standard.*member) return;
    add_setting(key, setting.name, config.*member, Severity::work);
  });
}

// Of what only matters where gradients are exchanged, the key has what is not the default there:
// one rank alone is the reference of several, whatever their type.
void add_exchange(Key& key, const RunConfig& config, bool exchanges) {
  const RunConfig standard;
  for_each_in_key(Decides::layout, [&](const Setting& setting, auto member) {
    const bool counts =
        setting.needs != Needs::exchange || (exchanges && config.*member != standard.*member);
    if (counts) add_setting(key, setting.name, config.*member, Severity::layout);
  });
}

// "1": alone on its instance; "2 2": two instances with two ranks each.
std::string ranks_per_instance(const Run& run) {
  std::map<int64_t, int64_t> ranks;
  for (const Rank& rank : run.ranks) ++ranks[rank.environment];
  std::vector<int64_t> counts;
  for (const auto& [environment, count] : ranks) counts.push_back(count);
  std::sort(counts.rbegin(), counts.rend());
  std::vector<std::string> texts;
  for (const int64_t count : counts) texts.push_back(std::to_string(count));
  return joined(texts, " ");
}

std::string share_text(const ArmShare& share) {
  std::string text = to_string(share.mode);
  for (const int64_t percent : share.threads_percent) text += " " + std::to_string(percent) + "%";
  for (const int64_t gib : share.memory_gib) text += " " + std::to_string(gib) + "GiB";
  for (const std::string& profile : share.profiles) text += " " + profile;
  for (const std::string& load : share.neighbours) text += " beside " + load;
  return text;
}

std::string ranks_per_job(const Run& run) {
  std::vector<std::string> texts;
  for (const ConcurrentJob& job : run.jobs) texts.push_back(std::to_string(job.ranks));
  return joined(texts, " ");
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

void add_hardware(Key& key, const Report& report, const RunConfig& config, const Run& run) {
  if (run.device == Device::cuda) {
    key.push_back({"gpu_chip", of_each_rank(report, run, chip_of), Severity::hardware});
    return;
  }
  const auto cpu = [](const Environment& environment, const Rank&) {
    return environment.cpu_model.value.value_or("unknown");
  };
  const int64_t asked = config.threads;
  const auto threads = [asked](const Environment& environment, const Rank&) {
    return std::to_string(asked > 0 ? asked : environment.usable_cpus);
  };
  key.push_back({"cpu_model", of_each_rank(report, run, cpu), Severity::hardware});
  key.push_back({"threads", of_each_rank(report, run, threads), Severity::hardware});
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
    // Of another run of the report.
    if (versions != none) key.push_back({"libraries." + name, versions, Severity::software});
  }
}

// Words that name a maker or a line of products, not a chip.
bool is_maker(const std::string& word) {
  constexpr std::array makers = {"NVIDIA", "GRID", "Tesla", "Quadro", "GeForce", "Graphics"};
  return std::ranges::find(makers, word) != makers.end();
}

// Words from which on a name tells form factor, memory or profile.
bool is_variant(const std::string& word) {
  static const std::regex variant(
      "[0-9]+GB|PCIe|PCIE|SXM[0-9]*|NVL[0-9]*|HBM[0-9a-z]*|MIG|"
      "Laptop|[0-9]+[cg]\\.[0-9]*[cg]?\\.?[0-9]*gb.*");
  return std::regex_match(word, variant);
}

}  // namespace

std::string gpu_chip(const std::string& product) {
  std::istringstream words(product);
  std::string chip;
  for (std::string word; words >> word;) {
    if (chip.empty() && is_maker(word)) continue;
    if (!chip.empty() && is_variant(word)) break;
    const size_t dash = word.find('-');  // A100-SXM4-80GB, A100-40C
    chip += (chip.empty() ? "" : " ") + word.substr(0, dash);
    if (dash != word.npos) break;
  }
  return chip.empty() ? product : chip;
}

std::string gpu_board(const std::string& product) {
  return product.substr(0, product.find(" MIG "));
}

Key comparable_key(const Report& report, const Arm& arm, const Run& run) {
  Key key;
  key.push_back({"kind", std::string(to_string(arm.kind)), Severity::kind});
  const RunConfig& config = config_of(report, arm);
  add_work(key, config);
  add_exchange(key, config, exchanges_gradients(config, run.world_size));
  if (run.communication)
    key.push_back({"communication", run.communication->library, Severity::layout});
  if (arm.share) key.push_back({"share", share_text(*arm.share), Severity::layout});
  if (!run.jobs.empty()) key.push_back({"ranks_per_job", ranks_per_job(run), Severity::layout});
  key.push_back({"world_size", key_text(run.world_size), Severity::layout});
  key.push_back({"ranks_per_instance", ranks_per_instance(run), Severity::layout});
  add_hardware(key, report, config, run);
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
  for (const char* found :
       {"communication", "share", "ranks_per_job", "world_size", "ranks_per_instance", "gpu_chip",
        "cpu_model", "threads", "libraries"}) {
    names.emplace_back(found);
  }
  names.insert(names.end(), imported_work.begin(), imported_work.end());
  return names;
}

std::vector<KeyDifference> key_differences(const std::vector<KeyField>& base,
                                           const std::vector<KeyField>& other) {
  const auto value_in = [](const std::vector<KeyField>& key, const std::string& name) {
    const auto found = std::ranges::find(key, name, &KeyField::name);
    return found == key.end() ? std::string("none") : found->value;
  };
  std::vector<KeyDifference> differences;
  for (const KeyField& field : base) {
    const std::string value = value_in(other, field.name);
    if (value != field.value) {
      differences.push_back({field.name, field.severity, field.value, value});
    }
  }
  for (const KeyField& field : other) {
    const bool is_new =
        std::ranges::none_of(base, [&](const KeyField& known) { return known.name == field.name; });
    if (is_new) differences.push_back({field.name, field.severity, "none", field.value});
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
  if (form == ComparisonForm::sets) return false;
  return name == "ranks_per_instance" || (form == ComparisonForm::vm && name == "cpu_model");
}

bool covers(const std::string& allowed, const std::string& field) {
  return allowed == field || allowed == field.substr(0, field.find('.'));
}

bool follows_batch(const KeyField& field) {
  return field.name == "learning_rate" || covers("loss_scale", field.name);
}

std::string context_sha256(const std::vector<KeyField>& key) {
  std::string text;
  for (const KeyField& field : key) {
    if (field.severity == Severity::layout) continue;
    text += field.name + '\0' + field.value + '\0';
  }
  return sha256(text);
}

}  // namespace nearmetal
