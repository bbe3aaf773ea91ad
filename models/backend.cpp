#include "models/backend.h"

#include <dlfcn.h>

#include <filesystem>

namespace nearmetal {
namespace {

std::filesystem::path module_path(const std::string& name) {
  const std::string file = "libnearmetal_" + name + ".so";
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  for (const auto& candidate : {folder / file, folder.parent_path() / "lib" / "nearmetal" / file}) {
    if (std::filesystem::exists(candidate)) return candidate;
  }
  throw BackendUnavailable("this build has no " + name + " backend: there is no " + file + " in " +
                           folder.string());
}

}  // namespace

Backend& load_backend(const std::string& name) {
  const auto path = module_path(name);
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    throw BackendUnavailable("the " + name + " backend does not load: " + dlerror());
  }
  const auto entry = reinterpret_cast<BackendEntry>(dlsym(module, backend_entry_name));
  if (entry == nullptr) {
    throw BackendUnavailable(path.string() + " is not a backend of nearmetal: " + dlerror());
  }
  return *entry();
}

}  // namespace nearmetal
