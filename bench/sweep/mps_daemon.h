// An MPS daemon of the sweep's own: NVIDIA's multi-process service, through which processes run
// their kernels on one GPU at the same time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench/environment/child_process.h"

namespace nearmetal {

/// Why there can be none here; none where nothing speaks against one.
std::optional<std::string> no_mps_reason();

/// Runs in a private folder and touches no daemon that is there. It ends, and the folder goes, with
/// this object and with the process, however that ends.
class MpsDaemon {
 public:
  /// Its clients see these GPUs alone, given by their index in the order of the PCI bus, and count
  /// them from 0; on others it has nothing. Throws NotSupported where it does not start.
  explicit MpsDaemon(const std::set<int64_t>& gpus);
  MpsDaemon(const MpsDaemon&) = delete;
  MpsDaemon& operator=(const MpsDaemon&) = delete;

  /// The words that make a command a client: "env", and the variables.
  std::vector<std::string> client_words() const {
    return {"env", "CUDA_MPS_PIPE_DIRECTORY=" + (folder_ / "pipe").string(),
            "CUDA_MPS_LOG_DIRECTORY=" + (folder_ / "log").string()};
  }
  /// The fatal fault that its server logged first.
  std::optional<std::string> fault() const;

 private:
  std::filesystem::path folder_;
  std::optional<Keeper> keeper_;  // ends all
};

}  // namespace nearmetal
