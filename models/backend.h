// Loads a backend's module on first use.
#pragma once

#include <string>

#include "models/program.h"

namespace nearmetal {

/// Thrown where a backend was not built or its libraries are not on this machine.
struct BackendUnavailable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// `name` is "cpu" or "cuda": loads libnearmetal_<name>.so from the folder of the executable, or
/// from
/// ../lib/nearmetal beside it when installed. The module stays loaded until the process ends.
Backend& load_backend(const std::string& name);

/// What each module exports under this name.
using BackendEntry = Backend* (*)();
inline constexpr const char* backend_entry_name = "nearmetal_backend";

}  // namespace nearmetal
