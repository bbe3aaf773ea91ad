// Configurations of mig-parted, NVIDIA's MIG partition editor: read, and compared with what is
// there.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "reports/document/environment.h"

namespace nearmetal {

/// The state that some GPUs should have. Source: api/spec/v1/spec.go of
/// github.com/NVIDIA/mig-parted.
struct MigConfigEntry {
  std::vector<std::string> device_filter;  // "0x233510DE[:0x18BE10DE]"; empty: any kind
  bool all_devices = false;
  std::vector<int64_t> devices;  // indexes, unless all
  bool enabled = false;
  std::map<std::string, int64_t> mig_devices;  // profile to how many

  bool operator==(const MigConfigEntry&) const = default;
};

struct MigConfig {
  std::string file;
  std::string label;
  std::vector<MigConfigEntry> entries;
  bool of_kubernetes = false;  // in a ConfigMap, which NVIDIA's GPU operator applies
};

/// The configurations of a file of version v1 by label, or of all such files in the ConfigMaps
/// among objects of Kubernetes (assets/state-mig-manager of github.com/NVIDIA/gpu-operator). Throws
/// std::invalid_argument with line and reason for YAML of more than 1 MiB, nested deeper than a
/// configuration is, with anchors, aliases or tags, keys that are unknown or given twice, values of
/// another type, and what mig-parted refuses.
std::map<std::string, std::vector<MigConfigEntry>> mig_configs_from_yaml(std::string_view text);

/// `place`: FILE, which then has one configuration, or FILE#LABEL. Throws std::invalid_argument
/// with the file and the reason.
MigConfig read_mig_config(const std::string& place);

/// The differences of GPUs, in the order of their indexes, from the configuration, a line for each;
/// empty: none. Judges as `nvidia-mig-parted assert`: the last of the entries that a GPU matches
/// counts, each GPU must match one, and one without MIG is as good as one with MIG off.
std::vector<std::string> mig_differences(const MigConfig& config, const std::vector<Gpu>& gpus);

/// "nvidia-mig-parted apply -f FILE -c LABEL", or the label of the node that has the operator do
/// it.
std::string apply_command(const MigConfig& config);

}  // namespace nearmetal
