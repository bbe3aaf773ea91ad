#include "bench/environment/nvml.h"

#include <dlfcn.h>

#include "base/errors.h"

namespace nearmetal {

Nvml::Nvml(const std::string& library) {
  library_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) throw NotSupported(std::string("no NVML: ") + dlerror());
  const std::string why = call("nvmlInit_v2");
  if (why.empty()) return;
  dlclose(library_);
  throw NotSupported("NVML does not start: " + why);
}

Nvml::~Nvml() {
  if (library_ == nullptr) return;
  call("nvmlShutdown");
  dlclose(library_);
}

void* Nvml::symbol(const char* function) const { return dlsym(library_, function); }

std::string Nvml::problem(const char* function, int status) const {
  const char* text = "status";
  if (void* found = symbol("nvmlErrorString")) {
    text = reinterpret_cast<const char* (*)(int)>(found)(status);
  }
  return std::string(function) + ": " + text + " (" + std::to_string(status) + ")";
}

}  // namespace nearmetal
