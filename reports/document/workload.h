// What a run is asked to do, and who asked for it.
#pragma once

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

/// Of every setting: `given` by a flag, the others as nobody chose them.
Origins origins_of(const std::vector<std::string>& given = {});

}  // namespace nearmetal
