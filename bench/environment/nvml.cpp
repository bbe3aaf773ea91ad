#include "bench/environment/nvml.h"

#include <dlfcn.h>

#include "reports/document/environment.h"

namespace nearmetal {

Nvml::Nvml(const std::string& library) {
  library_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) throw NvmlDown(std::string("no NVML: ") + dlerror(), nvml_not_found);
  const int status = status_of("nvmlInit_v2");
  if (status == 0) return;
  const std::string why = problem("nvmlInit_v2", status);
  dlclose(library_);
  throw NvmlDown("NVML does not start: " + why, status);
}

Nvml::~Nvml() {
  if (library_ == nullptr) return;
  call("nvmlShutdown");
  dlclose(library_);
}

void* Nvml::symbol(const char* function) const { return dlsym(library_, function); }

std::string Nvml::problem(const char* function, int status) const {
  if (library_ == nullptr) return missing_;
  if (status == 0) return "";
  if (symbol(function) == nullptr) return std::string("this driver's NVML has no ") + function;
  const char* text = "status";
  if (void* found = symbol("nvmlErrorString")) {
    text = reinterpret_cast<const char* (*)(int)>(found)(status);
  }
  return std::string(function) + ": " + text + " (" + std::to_string(status) + ")";
}

}  // namespace nearmetal
