// Where the monitor's samples come from: NVML and /proc.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench/environment/nvml.h"

namespace nearmetal {

/// Of a link of PCIe, in 1e9 transfers a second.
double pcie_rate(double generation, double width);

/// One quantity, read anew at every sample. Unknown once: not asked for again.
class GpuSource {
 public:
  /// Where `mig_uuid` names a MIG device of the GPU, memory and processes are that device's, while
  /// clocks, power and temperature are those of the GPU, which are not divided (nvml.h: of memory
  /// and processes "per-instance information can be queried by using specific MIG device handles").
  /// Throws NotSupported where there is no such GPU or MIG device, or no NVML.
  GpuSource(const std::string& library, const std::string& pci_id,
            const std::optional<std::string>& mig_uuid = {});

  static std::vector<std::string> names();
  /// Values in the order of names(); NaN for what the GPU does not report.
  void read(double* values) const;
  Maybe<unsigned long long> throttle_bits() const;
  Maybe<int64_t> processes() const;
  Maybe<int64_t> memory_errors() const;  // uncorrected, since the driver was loaded
  Maybe<int64_t> link_errors() const;
  Maybe<double> largest_link_rate() const;  // as pcie_rate(), of GPU and slot
  Maybe<double> joules() const;             // since the driver was loaded

 private:
  Nvml nvml_;
  NvmlDevice device_ = nullptr;
  NvmlDevice part_ = nullptr;  // the MIG device, else the GPU
};

class CpuSource {
 public:
  /// `ranks`: of the job on this host. What they use, and what else the same sweep has started by
  /// now, is not counted as that of others.
  CpuSource(const std::filesystem::path& root, int64_t ranks);

  static std::vector<std::string> names();
  /// Values in the order of names(), since the last call; NaN for what the kernel does not report.
  /// Where it has counted no tick since, as the call before.
  void read(double* values);

 private:
  struct Times {
    double total = 0, busy = 0, steal = 0;  // CPU seconds of all CPUs
    double own = 0;                         // of this process and of what belongs to it
    double wall = 0;
  };
  Times times() const;
  void update_rates(const Times& now);

  std::filesystem::path root_;
  std::set<int64_t> watched_;                    // CPUs whose clock is read
  std::vector<std::filesystem::path> siblings_;  // /proc/PID/stat of what belongs to it
  Times last_;
  std::array<double, 3> rates_;  // at last_, as the first of names()
};

}  // namespace nearmetal
