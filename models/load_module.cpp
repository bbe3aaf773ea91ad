#include "models/load_module.h"

#include <dlfcn.h>

#include <filesystem>

#include "models/errors.h"

namespace nearmetal {

std::filesystem::path program_path() { return std::filesystem::read_symlink("/proc/self/exe"); }

namespace {

std::filesystem::path module_path(const std::string& name, const std::string& what) {
  const std::string file = "libnearmetal_" + name + ".so";
  const auto folder = program_path().parent_path();
  for (const auto& candidate : {folder / file, folder.parent_path() / "lib" / "nearmetal" / file}) {
    if (std::filesystem::exists(candidate)) return candidate;
  }
  throw NotBuilt("this build has no " + what + ": there is no " + file + " in " + folder.string());
}

}  // namespace

void* load_module(const std::string& name, const std::string& what, const char* entry, bool share) {
  const auto path = module_path(name, what);
  void* module = dlopen(path.c_str(), RTLD_NOW | (share ? RTLD_GLOBAL : RTLD_LOCAL));
  if (module == nullptr) {
    throw NotSupported("the " + what + " does not load: " + dlerror());
  }
  void* found = dlsym(module, entry);
  if (found == nullptr) {
    throw NotSupported(path.string() + " is not the " + what + " of nearmetal: " + dlerror());
  }
  return found;
}

Backend& load_backend(const std::string& name) {
  void* entry = load_module(name, name + " backend", backend_entry_name);
  return *reinterpret_cast<BackendEntry>(entry)();
}

}  // namespace nearmetal
