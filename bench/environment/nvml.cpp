#include "bench/environment/nvml.h"

#include <dlfcn.h>

#include <array>

#include "models/errors.h"

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

Maybe<std::string> Nvml::text(const char* function, NvmlDevice device) const {
  std::array<char, 256> buffer{};
  const std::string why =
      call(function, device, buffer.data(), static_cast<unsigned>(buffer.size()));
  if (!why.empty()) return Unknown{why};
  return std::string(buffer.data());
}

std::string Nvml::driver_version() const {
  std::array<char, 256> buffer{};
  call("nvmlSystemGetDriverVersion", buffer.data(), static_cast<unsigned>(buffer.size()));
  return buffer.data();
}

Maybe<NvmlDevice> Nvml::device_at(const std::string& pci_id) const {
  return ask<NvmlDevice>("nvmlDeviceGetHandleByPciBusId_v2", pci_id.c_str());
}

}  // namespace nearmetal
