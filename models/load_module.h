// Loads a module of the program, such as a backend, on first use.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

/// Before a function of a module that load_module() finds by its name.
#define NM_EXPORT extern "C" __attribute__((visibility("default")))

namespace nearmetal {

class Backend;  // models/program.h

/// Where the executable of this process lies. Throws std::filesystem::filesystem_error without
/// /proc.
std::filesystem::path program_path();

/// Throws NotSupported where somebody else could have put there what is taken for a file that was
/// built or installed with this program: the file, the folders on the way to it from the folder
/// above the program's, and where it is a link, the folder of what it names must belong to root, to
/// this user or to the owner of the program, and not be for everybody to write. A group may write:
/// its owner lets it.
void require_trusted(const std::filesystem::path& file);

/// The modules that a program of that path would load, by name: those in its folder, or beside that
/// in ../lib/nearmetal where it is installed.
std::vector<std::filesystem::path> modules_of(const std::filesystem::path& program);

/// The symbol that libnearmetal_<name>.so exports as `entry`. Throws NotBuilt where there is no
/// such module, NotSupported where it is not trusted or its libraries are not on this machine. It
/// lies in the folder of the executable, or in ../lib/nearmetal beside it when installed. `what`
/// names it in errors, e.g. "cpu backend". The module stays loaded until the process ends; `share`
/// shows its libraries' symbols to modules that those load.
void* load_module(const std::string& name, const std::string& what, const char* entry,
                  bool share = false);

/// `name` is "cpu" or "cuda". Throws NotSupported; see load_module().
Backend& load_backend(const std::string& name);

/// The function that the module of a backend exports under this name.
using BackendEntry = Backend* (*)();
inline constexpr const char* backend_entry_name = "nearmetal_backend";

}  // namespace nearmetal
