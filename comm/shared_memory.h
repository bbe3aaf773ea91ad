// Memory that the processes of a host share, and sums by way of it: who copies what, and who waits
// for whom.
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/world.h"

namespace nearmetal {

/// Zeroed, without a name in any file system, gone with the last process that holds it. Not
/// movable: what was given data() keeps it.
class SharedMemory {
 public:
  /// Shared by all ranks, which must be on one host, one user's and in one PID namespace;
  /// collective, with the same `bytes`. Throws std::runtime_error, where the others go on to wait
  /// for this rank.
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

/// The part that a rank reports to have put into shared memory.
enum class Stage { gradients, sums };

/// The operations of one rank, one after another. Shared memory has room for each bucket of each
/// rank, and for the sums of each bucket; a bucket has a part for each rank (part_of()).
class StagedOperations {
 public:
  virtual ~StagedOperations() = default;
  /// This rank's gradients, to shared memory: at least the parts of the others.
  virtual void share_gradients(int bucket) = 0;
  /// This rank's part of the gradients of the others, from there.
  virtual void fetch_gradients(int bucket) = 0;
  /// Sums this rank's part: its own gradients and those fetched, in the order of the ranks.
  virtual void add(int bucket) = 0;
  /// Copies this rank's part of the sums to shared memory.
  virtual void share_sums(int bucket) = 0;
  /// Copies at least the others' parts of the sums from there.
  virtual void fetch_sums(int bucket) = 0;
  /// Every other rank will find that this one has come so far with the buckets from `first` on.
  virtual void signal(Stage stage, int first) = 0;
  /// Waits until every other rank has, and takes that back, for the next sum.
  virtual void await(Stage stage, int first) = 0;
};

/// Sums `count` buckets from `first` on over all ranks, which all do this, for the same buckets in
/// the same order. Buffers need no further synchronisation before they are used again: a rank
/// overwrites its gradients only after it has every rank's sums, and a rank publishes its sums only
/// after it has read all gradients. The same holds for sums, one exchange later.
void sum_staged(int first, int count, StagedOperations& operations);

}  // namespace nearmetal
