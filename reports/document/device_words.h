// What texts call the hardware that ranks compute on.
#pragma once

#include "reports/document/run_config.h"

namespace nearmetal {

struct DeviceWords {
  const char* shared;       // what several jobs have together
  const char* name;         // the same, once it was named
  const char* whole;        // all of it
  const char* part;         // what one of several jobs has of it, at most
  const char* memory;       // where the data of the only rank are
  const char* each_memory;  // where those of each of several ranks are
};

inline constexpr DeviceWords gpu_words = {
    "a GPU",         "the GPU",       "the whole GPU", "its part of the GPU, MIG device or vGPU",
    "on the device", "on each device"};
inline constexpr DeviceWords cpu_words = {"CPUs",           "the CPUs",
                                          "all the CPUs",   "its CPUs",
                                          "of host memory", "of host memory for each rank"};

constexpr const DeviceWords& words_of(Device device) {
  return device == Device::cpu ? cpu_words : gpu_words;
}

}  // namespace nearmetal
