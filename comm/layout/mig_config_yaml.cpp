#include <algorithm>
#include <stdexcept>

#include "comm/layout/mig_config.h"
#include "comm/layout/mig_profiles.h"
#include "comm/layout/yaml_value.h"
#include "reports/text/text.h"
#include "reports/text/text_table.h"

namespace nearmetal {
namespace {

constexpr int64_t most_devices_of_a_kind = 64;

[[noreturn]] void refuse(const YamlValue& value, const std::string& what) {
  throw std::invalid_argument("line " + std::to_string(value.line) + ": " + what);
}

void require_kind(const YamlValue& value, YamlValue::Kind kind, const std::string& what) {
  if (value.kind != kind) refuse(value, what);
}

// A whole number without a sign; of at most 9 digits.
int64_t number_of(const YamlValue& value, const std::string& name, int64_t most) {
  const std::string& text = value.text;
  const bool digits = value.kind == YamlValue::Kind::text && !value.quoted && !text.empty() &&
                      text.size() < 10 && text.find_first_not_of("0123456789") == text.npos;
  if (!digits || std::stoll(text) > most) {
    refuse(value, name + " must be a number from 0 to " + std::to_string(most));
  }
  return std::stoll(text);
}

bool truth_of(const YamlValue& value, const std::string& name) {
  const std::string text = lower_case(value.text);
  const bool plain = value.kind == YamlValue::Kind::text && !value.quoted;
  if (!plain || (text != "true" && text != "false")) refuse(value, name + " must be true or false");
  return text == "true";
}

std::string device_id_in(const YamlValue& value) {
  const std::string& text = value.text;
  const bool form = value.kind == YamlValue::Kind::text && text.size() == 10 &&
                    lower_case(text).starts_with("0x") &&
                    lower_case(text).find_first_not_of("0123456789abcdef", 2) == text.npos;
  if (!form) refuse(value, "device-filter must be IDs such as \"0x233510DE\"");
  return text;
}

std::vector<std::string> filter_in(const YamlValue& value) {
  if (value.kind == YamlValue::Kind::text && value.text.empty()) return {};
  if (value.kind != YamlValue::Kind::list) return {device_id_in(value)};
  std::vector<std::string> ids;
  for (const YamlValue& item : value.items) ids.push_back(device_id_in(item));
  return ids;
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
    if (!is_mig_profile(profile)) refuse(count, "'" + printable(profile) + "' is no MIG profile");
    sum += entry.mig_devices[profile] = number_of(count, profile, most_devices_of_a_kind);
  }
  if (sum == 0 && !value.items.empty()) refuse(value, "all numbers of mig-devices are 0");
}

MigConfigEntry entry_in(const YamlValue& value) {
  require_kind(value, YamlValue::Kind::object, "an entry must have devices and mig-enabled");
  MigConfigEntry entry;
  bool devices = false, enabled = false, mig_devices = false;
  for (const YamlValue& member : value.items) {
    const std::string& key = member.key;
    if (key == "device-filter") {
      entry.device_filter = filter_in(member);
    } else if (key == "devices") {
      devices = true;
      read_devices(member, entry);
    } else if (key == "mig-enabled") {
      enabled = true;
      entry.enabled = truth_of(member, key);
    } else if (key == "mig-devices") {
      mig_devices = true;
      read_mig_devices(member, entry);
    } else {
      refuse(member, "'" + printable(key) +
                         "' is not known; there are: device-filter, devices, mig-enabled, "
                         "mig-devices");
    }
  }
  if (!devices) refuse(value, "devices must be there");
  if (!enabled) refuse(value, "mig-enabled must be there");
  if (entry.enabled && !mig_devices) refuse(value, "mig-devices must be there, if only as {}");
  if (!entry.enabled && !entry.mig_devices.empty()) {
    refuse(value, "mig-devices are there, and mig-enabled is false");
  }
  return entry;
}

}  // namespace

std::map<std::string, std::vector<MigConfigEntry>> mig_configs_from_yaml(std::string_view text) {
  const YamlValue root = parse_yaml(text);
  require_kind(root, YamlValue::Kind::object, "it must have a version and mig-configs");
  std::map<std::string, std::vector<MigConfigEntry>> configs;
  bool version = false;
  for (const YamlValue& member : root.items) {
    const std::string& key = member.key;
    if (key == "version") {
      version = true;
      const bool known = member.kind == YamlValue::Kind::text && member.text == "v1";
      if (!known) refuse(member, "version must be v1, the one that this program reads");
    } else if (key == "mig-configs") {
      require_kind(member, YamlValue::Kind::object, "mig-configs must be labels with entries");
      for (const YamlValue& entries : member.items) {
        const std::string& label = entries.key;
        const bool some = entries.kind == YamlValue::Kind::list && !entries.items.empty();
        if (!some) refuse(entries, "'" + printable(label) + "' must be a list of entries");
        for (const YamlValue& item : entries.items) configs[label].push_back(entry_in(item));
      }
    } else {
      refuse(member, "'" + printable(key) + "' is not known; there are: version, mig-configs");
    }
  }
  if (!version) refuse(root, "version must be there");
  if (configs.empty()) refuse(root, "mig-configs must have at least one entry");
  return configs;
}

}  // namespace nearmetal
