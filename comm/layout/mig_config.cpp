#include "comm/layout/mig_config.h"

#include <algorithm>
#include <fstream>
#include <stdexcept>

#include "comm/layout/mig_profiles.h"
#include "comm/layout/shell_text.h"
#include "comm/layout/yaml_value.h"
#include "reports/json/json.h"
#include "reports/text/text.h"
#include "reports/text/text_table.h"

namespace nearmetal {
namespace {

std::string text_of_file(const std::string& path) {
  std::error_code ignored;
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path, ignored)) {
    throw std::invalid_argument("it cannot be read: " + why_unreadable(path));
  }
  std::string text(largest_yaml_bytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(file.gcount());
  return text;
}

bool is_for(const MigConfigEntry& entry, int64_t index, const Gpu& gpu) {
  const auto& filter = entry.device_filter;
  const auto same = [&](const std::string& id) {
    return gpu.device_id && lower_case(id) == lower_case(*gpu.device_id);
  };
  if (!filter.empty() && std::none_of(filter.begin(), filter.end(), same)) return false;
  return entry.all_devices ||
         std::find(entry.devices.begin(), entry.devices.end(), index) != entry.devices.end();
}

std::string counted_profiles(const std::map<std::string, int64_t>& counts) {
  std::string text;
  for (const auto& [profile, count] : counts) {
    if (count == 0) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " x " + profile;
  }
  return text.empty() ? "no MIG devices" : text;
}

std::map<std::string, int64_t> profiles_of(const Gpu& gpu) {
  std::map<std::string, int64_t> counts;
  for (const MigInstance& instance : gpu.mig_instances) {
    ++counts[instance.profile ? *instance.profile : "unknown"];
  }
  return counts;
}

// Empty: as configured.
std::string difference(const MigConfigEntry& entry, const Gpu& gpu) {
  if (!gpu.mig) return entry.enabled ? "has no MIG: " + gpu.mig.reason : "";
  if (*gpu.mig != entry.enabled) {
    return std::string("has MIG ") + (*gpu.mig ? "on" : "off") + ", not " +
           (entry.enabled ? "on with " + counted_profiles(entry.mig_devices) : "off");
  }
  const std::string seen = counted_profiles(profiles_of(gpu));
  const std::string wanted = counted_profiles(entry.mig_devices);
  if (!entry.enabled || seen == wanted) return "";
  return "has " + seen + ", not " + wanted;
}

}  // namespace

MigConfig read_mig_config(const std::string& place) {
  std::error_code ignored;
  const size_t hash = std::filesystem::exists(place, ignored) ? place.npos : place.rfind('#');
  MigConfig config{place.substr(0, hash), "", {}};
  if (hash != place.npos) config.label = place.substr(hash + 1);
  try {
    const auto configs = mig_configs_from_yaml(text_of_file(config.file));
    std::string labels;
    for (const auto& [label, unused] : configs) {
      labels += (labels.empty() ? "" : ", ") + printable(label);
    }
    if (hash == place.npos) {
      if (configs.size() != 1) {
        throw std::invalid_argument("say which of its configurations, as in FILE#LABEL: " +
                                    shortened(labels));
      }
      config.label = configs.begin()->first;
    }
    const auto found = configs.find(config.label);
    if (found == configs.end()) {
      throw std::invalid_argument("it has no configuration '" + config.label + "'; it has " +
                                  shortened(labels));
    }
    config.entries = found->second;
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(config.file + ": " + error.what());
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
  return shell_quoted({"nvidia-mig-parted", "apply", "-f", config.file, "-c", config.label});
}

}  // namespace nearmetal
