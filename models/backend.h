// Loads a backend's module on first use.
#pragma once

#include <string>

#include "models/program.h"

namespace nearmetal {

/// `name` is "cpu" or "cuda". Throws NotSupported; see load_module().
Backend& load_backend(const std::string& name);

/// What each module exports under this name.
using BackendEntry = Backend* (*)();
inline constexpr const char* backend_entry_name = "nearmetal_backend";

}  // namespace nearmetal
