// How a GPU is divided: by MIG, or as a vGPU of a VM.
#pragma once

#include <array>
#include <string>

#include "bench/environment/nvml.h"
#include "reports/document/environment.h"

namespace nearmetal {

/// The name of a number that NVML answered.
template <size_t count>
Maybe<std::string> name_in(const Maybe<unsigned>& value,
                           const std::array<const char*, count>& names) {
  if (!value) return Unknown{value.reason};
  if (*value >= count) return Unknown{"NVML says " + std::to_string(*value)};
  return std::string(names[*value]);
}

/// Virtualisation, MIG mode and instances, and of a vGPU its profile, licence and scheduler, of the
/// GPU that `device` is, which is named in `gpu`.
void add_partition(Gpu& gpu, const Nvml& nvml, NvmlDevice device);

}  // namespace nearmetal
