#include "comm/layout/mig_config.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "base/file_kind.h"
#include "base/pattern.h"
#include "base/text.h"
#include "base/text_table.h"
#include "comm/layout/gpu_profiles.h"
#include "comm/layout/layout_json.h"
#include "comm/layout/shell_text.h"

namespace nearmetal {
namespace {

// A text, a list, or an object with texts as keys, each once.
struct YamlValue {
  enum class Kind { nothing, text, list, object };

  Kind kind = Kind::nothing;
  int64_t line = 1;
  bool quoted = false;  // a text in quotes is a text alone; others may mean a number or truth value
  std::string text{};
  std::string key{};               // of a member of an object
  std::vector<YamlValue> items{};  // or members

  // Null where there is none.
  const YamlValue* member(const char* name) const {
    const auto found = std::ranges::find(items, name, &YamlValue::key);
    return found == items.end() ? nullptr : &*found;
  }
  bool has(const char* name) const { return member(name) != nullptr; }
};

constexpr size_t largest_yaml_bytes = size_t{1} << 20;
constexpr size_t deepest_yaml = 32;         // as objects of Kubernetes beside a ConfigMap may be
constexpr const char* tag_of_plain = "?";   // the parser's, of texts without quotes
constexpr const char* tag_of_quoted = "!";  // and with

[[noreturn]] void refuse_at(int64_t line, const std::string& why) {
  throw std::invalid_argument("line " + std::to_string(line) + ": " + why);
}

int64_t line_of(const YAML::Mark& mark) { return std::max(0, mark.line) + 1; }

// Builds the values while the parser goes through the text, so that what is refused ends it there.
class Builder : public YAML::EventHandler {
 public:
  std::vector<YamlValue> take() { return std::move(documents_); }

  // The parser may find documents without end where it cannot read on.
  void OnDocumentStart(const YAML::Mark& mark) override {
    if (mark.pos <= last_start_) refuse_at(line_of(mark), "no YAML");
    last_start_ = mark.pos;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(value_at(mark, "", anchor, YamlValue::Kind::nothing));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse_at(line_of(mark), "aliases are not taken");
  }
  void OnAnchor(const YAML::Mark& mark, const std::string&) override {
    refuse_at(line_of(mark), "anchors are not taken");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    YamlValue text = value_at(mark, tag, anchor, YamlValue::Kind::text);
    if (wants_key()) return enter_member(text.line, value);
    text.quoted = tag == tag_of_quoted;
    text.text = value;
    add(std::move(text));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    enter(value_at(mark, tag, anchor, YamlValue::Kind::list));
  }
  void OnSequenceEnd() override { leave(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    enter(value_at(mark, tag, anchor, YamlValue::Kind::object));
  }
  void OnMapEnd() override { leave(); }

 private:
  struct Level {
    YamlValue value;
    std::optional<std::string> key{};  // of the member that comes
    std::set<std::string> keys{};
  };

  static YamlValue value_at(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                            YamlValue::Kind kind) {
    if (anchor != 0) refuse_at(line_of(mark), "anchors are not taken");
    if (!tag.empty() && tag != tag_of_plain && tag != tag_of_quoted) {
      refuse_at(line_of(mark), "tags are not taken");
    }
    return {.kind = kind, .line = line_of(mark)};
  }
  bool wants_key() const {
    return !levels_.empty() && levels_.back().value.kind == YamlValue::Kind::object &&
           !levels_.back().key;
  }
  void enter_member(int64_t line, const std::string& key) {
    if (!levels_.back().keys.insert(key).second) {
      refuse_at(line, "'" + printable(key) + "' is there twice");
    }
    levels_.back().key = key;
  }
  void enter(YamlValue value) {
    if (levels_.size() == deepest_yaml) refuse_at(value.line, "it is nested too deeply");
    levels_.push_back({std::move(value)});
  }
  void leave() {
    YamlValue done = std::move(levels_.back().value);
    levels_.pop_back();
    add(std::move(done));
  }
  void add(YamlValue value) {
    if (levels_.empty()) return void(documents_.push_back(std::move(value)));
    Level& level = levels_.back();
    if (level.value.kind == YamlValue::Kind::object) {
      if (!level.key) refuse_at(value.line, "a key must be a text");
      value.key = *std::exchange(level.key, std::nullopt);
    }
    level.value.items.push_back(std::move(value));
  }

  std::vector<YamlValue> documents_;
  std::vector<Level> levels_;
  int last_start_ = -1;
};

// The values of its documents, but for empty ones. Throws std::invalid_argument, beginning with the
// line, for what is no YAML, is larger than 1 MiB, nested deeper than 32, or has anchors, aliases,
// tags of its own, or keys that are no texts or given twice.
std::vector<YamlValue> parse_yaml(std::string_view text) {
  if (text.size() > largest_yaml_bytes) throw std::invalid_argument("it is larger than 1 MiB");
  std::istringstream stream{std::string(text)};
  Builder builder;
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    refuse_at(line_of(error.mark), "no YAML: " + printable(error.msg));
  }
  std::vector<YamlValue> documents = builder.take();
  std::erase_if(documents,
                [](const YamlValue& value) { return value.kind == YamlValue::Kind::nothing; });
  return documents;
}

constexpr int64_t most_devices_of_a_kind = 64;

void require(bool holds, const YamlValue& value, const std::string& what) {
  if (!holds) refuse_at(value.line, what);
}

void require_kind(const YamlValue& value, YamlValue::Kind kind, const std::string& what) {
  require(value.kind == kind, value, what);
}

// A whole number without a sign; of at most 9 digits.
int64_t number_of(const YamlValue& value, const std::string& name, int64_t most) {
  const std::string& text = value.text;
  const bool digits = value.kind == YamlValue::Kind::text && !value.quoted && !text.empty() &&
                      text.size() < 10 && text.find_first_not_of("0123456789") == text.npos;
  require(digits && std::stoll(text) <= most, value,
          name + " must be a number from 0 to " + std::to_string(most));
  return std::stoll(text);
}

bool truth_of(const YamlValue& value, const std::string& name) {
  const std::string text = lower_case(value.text);
  const bool plain = value.kind == YamlValue::Kind::text && !value.quoted;
  require(plain && (text == "true" || text == "false"), value, name + " must be true or false");
  return text == "true";
}

// The ID of a device, and that of its board behind it: NewDeviceIDFromString() in
// pkg/types/device.go of mig-parted.
std::string device_id_in(const YamlValue& value) {
  static const Pattern form("0[xX][0-9A-Fa-f]{8}(:0[xX][0-9A-Fa-f]{8})?");
  const bool fits = value.kind == YamlValue::Kind::text && value.text.size() < 22;
  require(fits && form.matches(value.text), value,
          "device-filter must be IDs such as \"0x233510DE\", or with the ID of the board "
          "\"0x233510DE:0x18BE10DE\"");
  return value.text;
}

std::vector<std::string> filter_in(const YamlValue& value) {
  if (value.kind == YamlValue::Kind::text && value.text.empty()) return {};
  if (value.kind != YamlValue::Kind::list) return {device_id_in(value)};
  return transformed(value.items, device_id_in);
}

void read_devices(const YamlValue& value, MigConfigEntry& entry) {
  entry.all_devices = value.kind == YamlValue::Kind::text && value.text == "all";
  if (entry.all_devices) return;
  require_kind(value, YamlValue::Kind::list, "devices must be all, or a list of indexes");
  for (const YamlValue& item : value.items) {
    entry.devices.push_back(number_of(item, "an index of a GPU", 1023));
  }
}

void read_mig_devices(const YamlValue& value, MigConfigEntry& entry) {
  require_kind(value, YamlValue::Kind::object, "mig-devices must be profiles with numbers");
  int64_t sum = 0;
  for (const YamlValue& count : value.items) {
    const std::string& profile = count.key;
    require(is_mig_profile(profile), count, "'" + printable(profile) + "' is no MIG profile");
    sum += entry.mig_devices[profile] = number_of(count, profile, most_devices_of_a_kind);
  }
  require(sum > 0 || value.items.empty(), value, "all numbers of mig-devices are 0");
}

MigConfigEntry entry_in(const YamlValue& value) {
  require_kind(value, YamlValue::Kind::object, "an entry must have devices and mig-enabled");
  MigConfigEntry entry;
  for (const YamlValue& member : value.items) {
    const std::string& key = member.key;
    if (key == "device-filter") {
      entry.device_filter = filter_in(member);
    } else if (key == "devices") {
      read_devices(member, entry);
    } else if (key == "mig-enabled") {
      entry.enabled = truth_of(member, key);
    } else if (key == "mig-devices") {
      read_mig_devices(member, entry);
    } else {
      refuse_at(member.line, "'" + printable(key) +
                                 "' is not known; there are: device-filter, devices, mig-enabled, "
                                 "mig-devices");
    }
  }
  require(value.has("devices"), value, "devices must be there");
  require(value.has("mig-enabled"), value, "mig-enabled must be there");
  require(!entry.enabled || value.has("mig-devices"), value,
          "mig-devices must be there, if only as {}");
  require(entry.enabled || entry.mig_devices.empty(), value,
          "mig-devices are there, and mig-enabled is false");
  return entry;
}

bool is_for(const MigConfigEntry& entry, int64_t index, const Gpu& gpu) {
  const auto& filter = entry.device_filter;
  const auto is = [](const Maybe<std::string>& known, const std::string& id) {
    return known && lower_case(*known) == lower_case(id);
  };
  const auto same = [&](const std::string& id) {
    const size_t colon = id.find(':');
    return is(gpu.device_id, id.substr(0, colon)) &&
           (colon == id.npos || is(gpu.subsystem_id, id.substr(colon + 1)));
  };
  if (!filter.empty() && std::ranges::none_of(filter, same)) return false;
  return entry.all_devices || find_in(entry.devices, index) != nullptr;
}

std::string counted_profiles(const std::map<std::string, int64_t>& counts) {
  std::vector<std::string> texts;
  for (const auto& [profile, count] : counts) {
    if (count > 0) texts.push_back(std::to_string(count) + " x " + profile);
  }
  return texts.empty() ? "no MIG devices" : joined(texts);
}

// The profiles that are wanted, and those that cannot be checked: drivers know more than the table.
std::string wanted_profiles(const MigConfigEntry& entry, const Gpu& gpu) {
  const auto known = mig_profiles_of(gpu.name);
  std::vector<std::string> unchecked;
  for (const auto& [profile, count] : entry.mig_devices) {
    if (count > 0 && std::ranges::count(known, profile, &MigProfile::name) == 0)
      unchecked.push_back(profile);
  }
  return counted_profiles(entry.mig_devices) +
         (unchecked.empty() ? ""
                            : " (unchecked, as nearmetal does not know it of this board: " +
                                  joined(unchecked) + ")");
}

// Empty: as configured.
std::string difference(const MigConfigEntry& entry, const Gpu& gpu) {
  if (!gpu.mig) return entry.enabled ? "has no MIG: " + gpu.mig.reason : "";
  if (*gpu.mig != entry.enabled) {
    return std::string("has MIG ") + (*gpu.mig ? "on" : "off") + ", not " +
           (entry.enabled ? "on with " + wanted_profiles(entry, gpu) : "off");
  }
  std::map<std::string, int64_t> there;
  for (const MigInstance& instance : gpu.mig_instances) {
    ++there[instance.profile.value.value_or("unknown")];
  }
  const std::string seen = counted_profiles(there);
  if (!entry.enabled || seen == counted_profiles(entry.mig_devices)) return "";
  return "has " + seen + ", not " + wanted_profiles(entry, gpu);
}

using MigConfigs = std::map<std::string, std::vector<MigConfigEntry>>;

// The configurations of a text that is a file of mig-parted and nothing else.
MigConfigs configs_of_file(const std::vector<YamlValue>& documents) {
  const YamlValue root = documents.empty() ? YamlValue{} : documents.front();
  require_kind(root, YamlValue::Kind::object, "it must have a version and mig-configs");
  if (documents.size() > 1) refuse_at(documents[1].line, "there is a second document");
  MigConfigs configs;
  for (const YamlValue& member : root.items) {
    const std::string& key = member.key;
    if (key == "version") {
      require(member.kind == YamlValue::Kind::text && member.text == "v1", member,
              "version must be v1, the one that this program reads");
    } else if (key == "mig-configs") {
      require_kind(member, YamlValue::Kind::object, "mig-configs must be labels with entries");
      for (const YamlValue& entries : member.items) {
        const std::string& label = entries.key;
        require(entries.kind == YamlValue::Kind::list && !entries.items.empty(), entries,
                "'" + printable(label) + "' must be a list of entries");
        for (const YamlValue& item : entries.items) configs[label].push_back(entry_in(item));
      }
    } else {
      refuse_at(member.line,
                "'" + printable(key) + "' is not known; there are: version, mig-configs");
    }
  }
  require(root.has("version"), root, "version must be there");
  require(!configs.empty(), root, "mig-configs must have at least one entry");
  return configs;
}

// Adds the files of mig-parted that a ConfigMap holds, as of NVIDIA's GPU operator, whatever their
// names.
void add_configs(MigConfigs& configs, const YamlValue& config_map) {
  const YamlValue* data = config_map.member("data");
  if (data == nullptr) return;
  for (const YamlValue& file : data->items) {
    const std::string& content = file.text;
    if (content.find("mig-configs") == content.npos) continue;
    try {
      for (auto& [label, entries] : configs_of_file(parse_yaml(content))) {
        require(configs.emplace(label, std::move(entries)).second, file,
                "another file has '" + printable(label) + "', too");
      }
    } catch (const std::invalid_argument& error) {
      refuse_at(file.line, "in '" + printable(file.key) + "': " + error.what());
    }
  }
}

// The configurations, and whether they are in ConfigMaps.
std::pair<MigConfigs, bool> configs_in(std::string_view text) {
  const std::vector<YamlValue> documents = parse_yaml(text);
  MigConfigs configs;
  bool in_map = false;
  for (const YamlValue& object : documents) {
    const YamlValue* kind = object.member("kind");
    if (kind == nullptr || kind->text != "ConfigMap") continue;
    in_map = true;
    add_configs(configs, object);
  }
  if (!in_map) return {configs_of_file(documents), false};
  require(!configs.empty(), documents[0], "no file in a ConfigMap has mig-configs");
  return {configs, true};
}

}  // namespace

MigConfigs mig_configs_from_yaml(std::string_view text) { return configs_in(text).first; }

MigConfig read_mig_config(const std::string& place) {
  std::error_code ignored;
  const size_t hash = std::filesystem::exists(place, ignored) ? place.npos : place.rfind('#');
  MigConfig config{place.substr(0, hash), "", {}};
  if (hash != place.npos) config.label = place.substr(hash + 1);
  std::string text;
  try {
    text = text_of_file(config.file);
    const auto [configs, in_map] = configs_in(text);
    config.of_kubernetes = in_map;
    std::vector<std::string> labels;
    for (const auto& [label, unused] : configs) labels.push_back(printable(label));
    if (hash == place.npos) {
      if (configs.size() != 1) {
        throw std::invalid_argument("say which of its configurations, as in FILE#LABEL: " +
                                    shortened(joined(labels)));
      }
      config.label = configs.begin()->first;
    }
    const auto found = configs.find(config.label);
    if (found == configs.end()) {
      throw std::invalid_argument("it has no configuration '" + config.label + "'; it has " +
                                  shortened(joined(labels)));
    }
    config.entries = found->second;
  } catch (const std::invalid_argument& error) {
    const std::string other = other_kind("mig-configs:", text);
    throw std::invalid_argument(config.file + ": " + (other.empty() ? error.what() : other));
  }
  return config;
}

std::vector<std::string> mig_differences(const MigConfig& config, const std::vector<Gpu>& gpus) {
  std::vector<std::string> differences;
  for (int64_t i = 0; i < std::ssize(gpus); ++i) {
    const MigConfigEntry* last = nullptr;
    for (const MigConfigEntry& entry : config.entries) {
      if (is_for(entry, i, gpus[i])) last = &entry;
    }
    const std::string why = last == nullptr
                                ? "is in no entry of '" + config.label + "', by its index and kind"
                                : difference(*last, gpus[i]);
    if (why.empty()) continue;
    differences.push_back("GPU " + std::to_string(i) + " (" + gpus[i].name + ") " + why);
  }
  return differences;
}

std::string apply_command(const MigConfig& config) {
  if (config.of_kubernetes) {
    return shell_quoted({"kubectl", "label", "--overwrite", "node", "NODE",
                         "nvidia.com/mig.config=" + config.label});
  }
  return shell_quoted({"nvidia-mig-parted", "apply", "-f", config.file, "-c", config.label});
}

}  // namespace nearmetal
