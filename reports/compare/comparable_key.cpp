#include "reports/compare/comparable_key.h"

#include <algorithm>
#include <array>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "reports/files/sha256.h"

namespace nearmetal {
namespace {

class Key {
 public:
  void add(const std::string& name, const std::string& value, Severity severity) {
    fields_.push_back({name, value, severity});
  }
  void add(const std::string& name, double value, Severity severity) {
    std::ostringstream text;
    text.precision(15);
    text << value;
    add(name, text.str(), severity);
  }
  void add(const std::string& name, bool value, Severity severity) {
    add(name, std::string(value ? "yes" : "no"), severity);
  }
  std::vector<KeyField> take() { return std::move(fields_); }

 private:
  std::vector<KeyField> fields_;
};

void add_work(Key& key, const RunConfig& config) {
  constexpr Severity work = Severity::work;
  key.add("model", config.model, work);
  key.add("device", std::string(to_string(config.device)), work);
  key.add("precision", std::string(config.precision ? to_string(*config.precision) : "-"), work);
  key.add("batch", static_cast<double>(config.batch.value_or(0)), work);
  key.add("image_size", static_cast<double>(config.image_size), work);
  key.add("classes", static_cast<double>(config.classes), work);
  key.add("forward_only", config.forward_only, work);
  key.add("input", std::string(to_string(config.input)), work);
  key.add("launch", std::string(config.launch ? to_string(*config.launch) : "-"), work);
  key.add("zero_init", config.zero_init, work);
  const LossScale scale = config.loss_scale.value_or(LossScale{});
  key.add("loss_scale.initial", scale.initial, work);
  key.add("loss_scale.dynamic", scale.dynamic, work);
  key.add("learning_rate", config.learning_rate.value_or(0), work);
  key.add("momentum", config.momentum, work);
  key.add("weight_decay", config.weight_decay, work);
}

// "1": alone on its instance; "2 2": two instances with two ranks each.
std::string ranks_per_instance(const Run& run) {
  std::map<int64_t, int64_t> ranks;
  for (const Rank& rank : run.ranks) ++ranks[rank.environment];
  std::vector<int64_t> counts;
  for (const auto& [environment, count] : ranks) counts.push_back(count);
  std::sort(counts.rbegin(), counts.rend());
  std::string text;
  for (const int64_t count : counts) text += (text.empty() ? "" : " ") + std::to_string(count);
  return text;
}

std::string share_text(const ArmShare& share) {
  std::string text = to_string(share.way);
  for (const int64_t percent : share.threads_percent) text += " " + std::to_string(percent) + "%";
  for (const int64_t gib : share.memory_gib) text += " " + std::to_string(gib) + "GiB";
  for (const std::string& profile : share.profiles) text += " " + profile;
  for (const std::string& load : share.neighbours) text += " beside " + load;
  return text;
}

std::string ranks_per_job(const Run& run) {
  std::string text;
  for (const ConcurrentJob& job : run.jobs) {
    text += (text.empty() ? "" : " ") + std::to_string(job.ranks);
  }
  return text;
}

// Distinct values of all ranks' environments, so that a mixed job is not taken for a uniform one.
template <class Text>
std::string of_each_rank(const Report& report, const Run& run, const Text& text_of) {
  std::vector<std::string> texts;
  for (const Rank& rank : run.ranks) {
    const auto environment = static_cast<size_t>(rank.environment);
    const bool known = environment < report.environments.size();
    texts.push_back(known ? text_of(report.environments[environment], rank) : "unknown");
  }
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  std::string joined;
  for (const std::string& text : texts) joined += (joined.empty() ? "" : ", ") + text;
  return joined;
}

std::string chip_of(const Environment& environment, const Rank& rank) {
  const auto gpu = static_cast<size_t>(rank.gpu.value_or(0));
  return gpu < environment.gpus.size() ? gpu_chip(environment.gpus[gpu].name) : "unknown";
}

void add_hardware(Key& key, const Report& report, const RunConfig& config, const Run& run) {
  if (run.device == Device::cuda) {
    key.add("gpu_chip", of_each_rank(report, run, chip_of), Severity::hardware);
    return;
  }
  const auto cpu = [](const Environment& environment, const Rank&) {
    return environment.cpu_model.value.value_or("unknown");
  };
  const int64_t asked = config.threads;
  const auto threads = [asked](const Environment& environment, const Rank&) {
    return std::to_string(asked > 0 ? asked : environment.usable_cpus);
  };
  key.add("cpu_model", of_each_rank(report, run, cpu), Severity::hardware);
  key.add("threads", of_each_rank(report, run, threads), Severity::hardware);
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
    if (versions != none) key.add("libraries." + name, versions, Severity::software);
  }
}

// Words that name a maker or a line of products, not a chip.
bool is_maker(const std::string& word) {
  constexpr std::array makers = {"NVIDIA", "GRID", "Tesla", "Quadro", "GeForce", "Graphics"};
  return std::find(makers.begin(), makers.end(), word) != makers.end();
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

std::vector<KeyField> comparable_key(const Report& report, const Arm& arm, const Run& run) {
  Key key;
  key.add("kind", std::string(to_string(arm.kind)), Severity::kind);
  const RunConfig& config = config_of(report, arm);
  add_work(key, config);
  key.add("update", std::string(to_string(config.update)), Severity::layout);
  // As the way they travel: one rank alone is the reference of several, whatever their type.
  if (config.gradient_type != GradientType::computed &&
      exchanges_gradients(config, run.world_size)) {
    key.add("gradient_type", std::string(to_string(config.gradient_type)), Severity::layout);
  }
  if (run.communication) key.add("communication", run.communication->library, Severity::layout);
  if (arm.share) key.add("share", share_text(*arm.share), Severity::layout);
  if (!run.jobs.empty()) key.add("ranks_per_job", ranks_per_job(run), Severity::layout);
  key.add("world_size", static_cast<double>(run.world_size), Severity::layout);
  key.add("ranks_per_instance", ranks_per_instance(run), Severity::layout);
  add_hardware(key, report, config, run);
  add_libraries(key, report, run);
  return key.take();
}

std::vector<std::string> fields_that_may_differ() {
  return {"model",
          "device",
          "precision",
          "batch",
          "image_size",
          "classes",
          "forward_only",
          "input",
          "launch",
          "zero_init",
          "loss_scale",
          "loss_scale.initial",
          "loss_scale.dynamic",
          "learning_rate",
          "momentum",
          "weight_decay",
          "update",
          "gradient_type",
          "communication",
          "share",
          "ranks_per_job",
          "world_size",
          "ranks_per_instance",
          "gpu_chip",
          "cpu_model",
          "threads",
          "libraries"};
}

std::vector<KeyDifference> key_differences(const std::vector<KeyField>& base,
                                           const std::vector<KeyField>& other) {
  const auto value_in = [](const std::vector<KeyField>& key, const std::string& name) {
    const auto found = std::find_if(key.begin(), key.end(),
                                    [&](const KeyField& field) { return field.name == name; });
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
    const bool is_new = std::none_of(
        base.begin(), base.end(), [&](const KeyField& known) { return known.name == field.name; });
    if (is_new) differences.push_back({field.name, field.severity, "none", field.value});
  }
  std::stable_sort(differences.begin(), differences.end(),
                   [](const auto& a, const auto& b) { return a.severity < b.severity; });
  return differences;
}

bool KeyDifference::is_treatment() const {
  return name == "ranks_per_instance" || name == "cpu_model";
}

bool covers(const std::string& allowed, const std::string& field) {
  return allowed == field || allowed == field.substr(0, field.find('.'));
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
