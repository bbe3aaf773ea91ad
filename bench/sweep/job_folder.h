// Where a job has its temporary files.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "bench/environment/child_process.h"

namespace nearmetal {

/// A folder of the job's own, so that jobs at once do not meet in the session folder that Open MPI
/// gives all jobs of a user; what a job that was killed leaves is gone with it. It goes with this
/// object, or soon after; where this process is killed, once the job is gone as well.
class JobFolder {
 public:
  /// `shares_memory`: all ranks are on this machine, so that what they share lies in a folder of
  /// the job's own as well. Throws std::runtime_error.
  explicit JobFolder(bool shares_memory);
  ~JobFolder();
  JobFolder(const JobFolder&) = delete;
  JobFolder& operator=(const JobFolder&) = delete;

  /// NAME=VALUE of what the job's launcher must find in its environment.
  std::vector<std::string> variables() const;
  /// The file that takes the last report of the job's rank 0, as one of the variables says.
  std::filesystem::path last_report() const { return folder_ / "last_report.json"; }
  /// File descriptor that the launcher inherits.
  int lifeline() const { return keeper_.lifeline(); }

 private:
  std::filesystem::path folder_;
  std::filesystem::path shared_memory_;  // empty: none
  Keeper keeper_;
};

}  // namespace nearmetal
