// Something small that a device, or a path between devices, does again and again to show its speed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace nearmetal {

/// Does the work so often and returns the seconds that all of it took.
using TimedRuns = std::function<double(int64_t runs)>;

struct Probe {
  std::string name;          // "copy/device"
  std::string work;          // what one run does
  std::string details{};     // what it reads and leaves, for lists
  double bytes = 0;          // moved by one run: read plus written of memory, sent over a link
  double flops = 0;          // done by one run
  double bus_factor = 0;     // of a collective: what each link carries, as a multiple of `bytes`
  int64_t runs_at_once = 1;  // timed together, where one is too short for its clock
  /// Takes what the work needs, and gives it back with the result's end. Throws std::runtime_error.
  std::function<TimedRuns()> start;
};

/// The name of the probe of a kernel or primitive of a step: "step/backward/bn1+relu".
std::string step_probe_name(const std::string& phase, std::string nodes);

/// The message sizes that the probes of exchange send from rank to rank.
inline constexpr int64_t exchanged_bytes[] = {8, 64 << 10, 4 << 20, 64 << 20};

/// "nccl/allreduce/64KiB".
std::string exchange_probe_name(const std::string& library, const std::string& work, int64_t bytes);

/// Work that takes as long as there are few multiprocessors of a GPU.
inline constexpr const char* hold_probe_name = "hold/multiprocessors";

/// The time of a clock that only goes forward.
double steady_seconds();

/// The upper one of two in the middle.
double median_of(std::vector<double> values);

/// The seconds of one run, after the set-up: the median of `repeats`, each timed alone.
double median_seconds(const Probe& probe, int repeats);

/// Measured on the device itself; 0 where they were not.
struct Ceilings {
  double copy_bytes_per_second = 0;
  double matrix_flops_per_second = 0;
  double cache_bytes = 0;  // DeviceInfo::cache_bytes, not measured
};

/// The least time that the bytes take. What caches hold need neither come from memory nor go back
/// to it: of so many bytes read and as many written nothing is known.
inline double floor_of_bytes(double bytes, const Ceilings& ceilings) {
  return std::max(0.0, bytes - 2 * ceilings.cache_bytes) / ceilings.copy_bytes_per_second;
}

/// The roofline (Williams et al., 2009): bytes and operations at their ceilings, side by side.
inline double floor_seconds(double bytes, double flops, const Ceilings& ceilings) {
  return std::max(floor_of_bytes(bytes, ceilings), flops / ceilings.matrix_flops_per_second);
}

/// Whether the bytes take longer than the operations, or as long.
inline bool bytes_bind(double bytes, double flops, const Ceilings& ceilings) {
  return floor_of_bytes(bytes, ceilings) >= flops / ceilings.matrix_flops_per_second;
}

}  // namespace nearmetal
