// Where the monitor's samples come from: NVML and /proc.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/nvml.h"

namespace nearmetal {

/// One quantity, read anew at every sample. Unknown once: not asked for again.
class GpuSource {
 public:
  /// Throws NotSupported where there is no such GPU, or no NVML.
  GpuSource(const std::string& library, const std::string& pci_id);

  static std::vector<std::string> names();
  /// In the order of names(); NaN for what the GPU does not tell.
  void read(double* values) const;
  unsigned long long throttle_bits() const;
  int64_t processes() const;
  int64_t memory_errors() const;  // uncorrected, since the driver was loaded
  int64_t link_errors() const;
  Maybe<double> joules() const;  // since the driver was loaded

 private:
  Nvml nvml_;
  NvmlDevice device_ = nullptr;
};

class CpuSource {
 public:
  /// `ranks`: of the job on this host; what they use is not counted as that of others.
  CpuSource(const std::filesystem::path& root, int64_t ranks);

  static std::vector<std::string> names();
  /// In the order of names(), since the last call; NaN for what the kernel does not tell.
  void read(double* values);

 private:
  struct Times {
    double total = 0, busy = 0, steal = 0;  // CPU seconds of all CPUs
    double own = 0;                         // of the job's ranks on this host
    double wall = 0;
  };
  Times times() const;

  std::filesystem::path root_;
  std::vector<std::filesystem::path> siblings_;  // /proc/PID/stat of the job's other ranks here
  Times last_;
};

}  // namespace nearmetal
