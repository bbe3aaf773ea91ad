// Watches a rank's GPU and CPUs from a thread of its own while its window is timed.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bench/monitor/progress.h"

namespace nearmetal {

struct MonitorOptions {
  double hz = 10;
  std::optional<std::string> pci_id{};    // of the rank's GPU
  std::optional<std::string> mig_uuid{};  // of the part that it has for itself; none: all of it
  bool on_all_cpus = true;    // its threads keep all CPUs that it may use busy, and no GPU
  int64_t ranks_on_host = 1;  // of this job: their work is not that of others
  int64_t logical_cpus = 1;   // of the host
  int64_t sharing_jobs = 1;   // jobs that are meant to be on the GPU at once, and on the CPUs
  bool through_mps = false;   // whose server is one more process
  std::filesystem::path root = "/";
  std::string nvml_library = "libnvidia-ml.so.1";
};

/// The latest value of each quantity, in the order of `names`; the meaning of NaN is "not known".
struct MonitorTable {
  double interval_seconds = 0.1;  // at least, from row to row
  std::vector<std::string> names;
  std::map<std::string, std::string> not_monitored;  // name to reason
  std::vector<double> seconds;                       // when each row was taken, since any time
  std::vector<double> values;                        // row after row
  std::vector<unsigned long long> throttle_bits;
  Maybe<int64_t> most_processes = Unknown{"no GPU is watched"};    // on the GPU at once
  Maybe<int64_t> memory_errors = Unknown{"no GPU is watched"};     // uncorrected, in the window
  Maybe<int64_t> link_errors = Unknown{"no GPU is watched"};       // of NVLink
  Maybe<double> largest_link_rate = Unknown{"no GPU is watched"};  // as pcie_rate()
  std::optional<double> held_share;  // of the periods of the quota, in which it stopped threads
  Maybe<double> joules = Unknown{"no GPU is watched"};
  std::vector<RdmaTraffic> rdma_traffic;
};

/// Half as many rows: the means of two neighbours over their time, and of what throttled them the
/// first. Rows to come are twice as far apart, so that all of a run weighs alike.
void halve(MonitorTable& table);

/// Samples between construction and stop(), of which those inside the timed window count. Memory is
/// taken at the start; once it is full it is halved.
class Monitor {
 public:
  Monitor(const MonitorOptions& options, const TrainerProgress& progress);
  ~Monitor();

  /// Ends the thread. `samples`: of the window, by the GPU. None where it did not open.
  std::optional<Monitoring> stop(const Maybe<double>& samples);

 private:
  struct Sources;
  void loop();
  bool in_window() const;
  void sample(double seconds);
  void read_totals();

  MonitorOptions options_;
  const TrainerProgress& progress_;
  std::unique_ptr<Sources> sources_;
  MonitorTable table_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool over_ = false;
  std::thread thread_;
};

Monitoring judge_samples(const MonitorTable& table, const MonitorOptions& options = {});

}  // namespace nearmetal
