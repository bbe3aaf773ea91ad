// The facts of a machine that doctor checks.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/sweep/host_probe.h"
#include "comm/layout/layout.h"
#include "comm/layout/mig_config.h"
#include "reports/document/environment.h"
#include "reports/document/types.h"
#include "reports/document/warning.h"

namespace nearmetal {

/// One GPU's state at this moment.
struct GpuNow {
  bool link_is_slow = false;  // slower than GPU and slot can, though copies kept it busy
  Maybe<int64_t> processes;
  Maybe<int64_t> throttle_bits;  // nvmlClocksEventReason... of nvml.h
};

/// Processes of this program under mpirun.
struct MpiLaunch {
  std::optional<int> status;  // none: it did not end in time
  int64_t ranks = 0;          // ranks that reported their version
  std::string text;           // the first that it printed, where it failed
};

/// The obstacle that keeps a backend from working, from the build to the device.
enum class Obstacle { none, not_built, not_loaded, old_driver, no_device };

struct BackendCheck {
  Obstacle obstacle = Obstacle::none;
  std::string reason;
  std::string fix{};  // of an old driver
};

/// The obstacles that a sweep of a layout file would meet before it starts anything.
struct LayoutCheck {
  std::string file;
  int64_t layouts = 0;
  std::vector<std::string> problems;       // each with its place in the file
  std::vector<Finding> peers{};            // of its jobs: which ranks may not read others' memory
  std::vector<UnsupportedArm> left_out{};  // of its layouts, what this machine cannot do
  bool names_this_machine = true;          // among its hosts
};

/// All that doctor looks at. Collecting it changes nothing but the start of two short processes.
struct Checkup {
  Environment environment;                       // its GPUs are all that NVML lists
  bool gpu_device_files = false;                 // /dev/nvidiactl or the like: the driver is here
  Maybe<std::string> nvml;                       // version of the driver that the library talks to
  int nvml_status = 0;                           // NvmlStatus, where it does not start
  std::vector<GpuNow> gpus_now;                  // in their order
  std::map<std::string, BackendCheck> backends;  // by name
  std::optional<MpiLaunch> mpi;                  // none: there is no mpirun
  std::optional<MpiLaunch> nccl;        // sums over two GPUs; none: not tried, as there are not two
  std::optional<MpiLaunch> hosts;       // sums over ranks on them; none: not tried
  std::vector<std::string> host_names;  // of a layout file, to be tried; empty: none
  std::string one_machine{};            // on two of these hosts; empty: each is another
  std::vector<std::string> unlike_variables{};    // of their ranks, in words
  std::vector<SharedAddress> shared_addresses{};  // of these hosts; none where a network is named
  std::optional<LayoutCheck> layout;              // none: not asked for
  std::optional<MigConfig> mig_config;            // wanted of the GPUs; none: not asked for
  Maybe<bool> plan_cache_writable;
  std::string plan_cache_folder;
  Maybe<int64_t> free_disk_bytes;  // where reports go
  Maybe<bool> clock_synchronised;
  Maybe<double> cpus_busy_with_others;  // CPUs, on average over a moment
};

/// Loads every backend, asks NVML, and has mpirun start processes of this program: two here, and
/// one on each host of `layouts`, where it has others than this machine. Takes some seconds;
/// minutes where they hang.
Checkup collect_checkup(const LayoutFile& layouts);

/// Plans what a sweep of the file would start, and looks whether the GPUs that it names on this
/// machine, MIG devices, MPS and what its ranks are to find are there, as `checkup` knows them.
/// Starts nothing.
LayoutCheck check_layout(const std::string& file, const Checkup& checkup);

}  // namespace nearmetal
