// How the gradients of a program meet those of the other ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/program.h"

namespace nearmetal {

/// A part of the flat gradient, in the memory of the program's device.
struct GradientBucket {
  void* data = nullptr;  // on a GPU aligned to 16 bytes
  int64_t elements = 0;
  Precision type = Precision::fp32;  // of an element: fp32, bf16 or fp16

  int64_t bytes() const { return elements * element_bytes(type); }
};

/// What a sum of known values showed, with nothing else going on.
struct BucketTest {
  int64_t bytes = 0;
  Precision type = Precision::fp32;
  double seconds = 0;  // of one sum: the median, of this rank
  bool exact = false;  // every value that came back is the sum
};

/// Sums gradients over all ranks. A Program starts each bucket as soon as its backward pass has
/// completed it, in the same order on every rank, and finishes all before its update, which divides
/// by ranks(). `stream` is the cudaStream_t that the step is recorded on, null on the CPU.
class AllReduce {
 public:
  virtual ~AllReduce() = default;
  /// What sums, and its version: "nccl 2.28.9".
  virtual std::string library() const = 0;
  virtual int ranks() const = 0;
  /// The buckets of the program that this serves, in the order in which it starts them.
  virtual void bind(std::vector<GradientBucket> buckets) = 0;
  /// What the stream has computed so far completes `count` buckets from `first` on.
  virtual void start(int first, int count, void* stream) = 0;
  /// What follows on the stream sees the sums of all buckets.
  virtual void finish(void* stream) = 0;
  /// Sums values that are known into each bucket, one after another, `repeats` times; every rank
  /// calls it between steps. What the buckets held is lost.
  virtual std::vector<BucketTest> test(int repeats) = 0;
};

}  // namespace nearmetal
