// Memory that the processes of a job share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/world.h"

namespace nearmetal {

/// Zeroed, without a name in any file system, gone with the last process that holds it. Not
/// movable: what was given data() keeps it.
class SharedMemory {
 public:
  /// Of all ranks, which must be on one host, one user's and in one PID namespace; collective, with
  /// the same `bytes`. Throws std::runtime_error, where the others go on to wait for this rank.
  SharedMemory(World& world, int64_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace nearmetal
