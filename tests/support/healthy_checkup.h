// A machine on which doctor finds nothing, for tests to break, and what it says of one.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "bench/doctor/diagnose.h"

namespace nearmetal {

inline Checkup healthy() {
  Checkup checkup;
  checkup.gpu_device_files = true;
  checkup.nvml = std::string("580.159.03");
  checkup.environment.virtualisation.nvidia_kernel_module = std::string("580.159.03");
  checkup.environment.limits.shared_memory_bytes = int64_t{8} << 30;
  checkup.environment.limits.locked_memory_bytes = Unknown{"no limit is set"};
  checkup.environment.limits.open_files = 65536;
  checkup.environment.processor.governor = std::string("performance");
  checkup.backends = {{"cpu", {}}, {"cuda", {}}};
  checkup.mpi = MpiLaunch{.status = 0, .ranks = 2, .text = ""};
  checkup.plan_cache_writable = true;
  checkup.free_disk_bytes = int64_t{10} << 30;
  checkup.clock_synchronised = true;
  checkup.cpus_busy_with_others = 0.1;
  for (int i = 0; i < 2; ++i) {
    Gpu gpu;
    gpu.name = "NVIDIA H200";
    gpu.persistence = true;
    gpu.ecc_change_pending = gpu.memory_repair_pending = false;
    gpu.link_width = gpu.largest_link_width = 16;
    gpu.numa_node = 0;
    gpu.active_nvlinks = 18;
    gpu.inactive_nvlinks = 0;
    gpu.peers = {{"0000:0" + std::to_string(1 - i) + ":00.0", true, true, true}};
    checkup.environment.gpus.push_back(gpu);
    checkup.gpus_now.push_back({});
  }
  return checkup;
}

// "severity code" of the finding that is not ok; of several, the first.
inline std::string worst(const Checkup& checkup) {
  for (const Finding& finding : diagnose(checkup)) {
    if (finding.severity == Urgency::ok) continue;
    EXPECT_NE(finding.why, "") << finding.code;
    EXPECT_NE(finding.fix, "") << finding.code;
    return std::string(to_string(finding.severity)) + " " + finding.code;
  }
  return "";
}

// The fix of the finding of that code; empty: there is none.
inline std::string fix_of(const Checkup& checkup, const std::string& code) {
  for (const Finding& finding : diagnose(checkup)) {
    if (finding.code == code) return finding.fix;
  }
  return "";
}

}  // namespace nearmetal
