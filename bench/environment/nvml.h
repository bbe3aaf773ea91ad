// NVIDIA's management library, loaded where it is installed.
#pragma once

#include <string>
#include <utility>

#include "base/errors.h"
#include "base/value.h"

namespace nearmetal {

/// A GPU, MIG device included, as NVML knows it.
using NvmlDevice = void*;

// Numbers of nvml.h.
constexpr unsigned clock_sm = 1, clock_memory = 2;
constexpr unsigned most_nvlinks = 36;

/// NVML does not start.
struct NvmlDown : NotSupported {
  NvmlDown(const std::string& reason, int status) : NotSupported(reason), status(status) {}
  int status;  // nvmlReturn_t
};

/// NVML is part of the driver, so that every build can ask it and none needs its header: functions
/// are found by name, and called with the types of their arguments as nvml.h declares them.
class Nvml {
 public:
  /// Throws NvmlDown with the reason where there is no library, or no driver that it works with.
  explicit Nvml(const std::string& library = "libnvidia-ml.so.1");
  /// One that answers nothing, for this reason.
  explicit Nvml(Unknown why) : missing_(std::move(why.reason)) {}
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// nvmlReturn_t.
  template <class... Arguments>
  int status_of(const char* function, Arguments... arguments) const {
    void* found = library_ == nullptr ? nullptr : symbol(function);
    if (found == nullptr) return no_function;
    return reinterpret_cast<int (*)(Arguments...)>(found)(arguments...);
  }

  /// Empty, or why the function gave no answer.
  template <class... Arguments>
  std::string call(const char* function, Arguments... arguments) const {
    return problem(function, status_of(function, arguments...));
  }

  /// The last argument of the function, which it fills.
  template <class T, class... Arguments>
  Maybe<T> ask(const char* function, Arguments... arguments) const {
    T answer{};
    const std::string why = call(function, arguments..., &answer);
    return why.empty() ? Maybe<T>(answer) : Maybe<T>(Unknown{why});
  }

  /// A text that the function writes into a buffer, its last argument but for the size.
  template <class... Arguments>
  Maybe<std::string> text(const char* function, Arguments... arguments) const {
    char buffer[256] = "";
    const std::string why =
        call(function, arguments..., &buffer[0], static_cast<unsigned>(sizeof buffer));
    return why.empty() ? Maybe<std::string>(buffer) : Maybe<std::string>(Unknown{why});
  }

  Maybe<std::string> driver_version() const { return text("nvmlSystemGetDriverVersion"); }
  /// The device by its address on the PCI bus, with or without a function number.
  Maybe<NvmlDevice> device_at(const std::string& pci_id) const {
    return ask<NvmlDevice>("nvmlDeviceGetHandleByPciBusId_v2", pci_id.c_str());
  }

  /// The status of a function in words; empty: it succeeded.
  std::string problem(const char* function, int status) const;

 private:
  static constexpr int no_function = 13;  // NVML_ERROR_FUNCTION_NOT_FOUND

  void* symbol(const char* function) const;

  void* library_ = nullptr;
  std::string missing_;  // why there is no library
};

}  // namespace nearmetal
