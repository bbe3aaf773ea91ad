// Loads a module of the program on first use.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>

/// Before a function of a module that load_module() finds by its name.
#define NM_EXPORT extern "C" __attribute__((visibility("default")))

namespace nearmetal {

/// Where the executable of this process lies. Throws std::filesystem::filesystem_error without
/// /proc.
std::filesystem::path program_path();

/// What libnearmetal_<name>.so exports as `entry`. Throws NotBuilt where there is no such
/// module, NotSupported where its libraries are not on this machine. It lies in the folder of the
/// executable, or in
/// ../lib/nearmetal beside it when installed. `what` names it in errors, e.g. "cpu backend". The
/// module stays loaded until the process ends; `share` shows its libraries' symbols to modules that
/// those load.
void* load_module(const std::string& name, const std::string& what, const char* entry,
                  bool share = false);

}  // namespace nearmetal
