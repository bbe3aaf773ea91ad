// The work that a run is asked to do, and who asked for it.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "reports/document/run_config.h"

namespace nearmetal {

/// A configuration, and which of its settings somebody chose, by name, in the order of the choices.
struct Workload {
  RunConfig config;
  std::vector<std::string> given{};

  bool is_given(const std::string& name) const;
};

/// The settings on which the operations of a step depend, and so the keys of its kernels.
inline const std::vector<std::string> settings_of_operations = {
    "device",  "model",    "precision",    "batch",     "image_size",
    "classes", "sequence", "forward_only", "inference", "kernels"};

inline bool decides_operations(const std::string& setting) {
  return std::ranges::find(settings_of_operations, setting) != settings_of_operations.end();
}

/// The origin of every setting: those `given` came by a flag, nobody chose the others.
Origins origins_of(const std::vector<std::string>& given = {});

}  // namespace nearmetal
