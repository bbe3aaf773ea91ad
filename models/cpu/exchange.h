// Puts the exchange of gradients between ranks into a step.
#pragma once

#include "models/cpu/lowering.h"
#include "models/program.h"

namespace nearmetal::cpu {

/// The flat gradient and where it is summed: in the same memory where it travels in fp32, else in
/// memory of its own, of the same number of elements.
struct FlatGradient {
  float* computed = nullptr;
  void* sent = nullptr;
  Precision sent_type = Precision::fp32;

  bool is_converted() const { return sent != computed; }
};

/// Cuts the flat gradient into buckets of at least `bucket_bytes` as sent (0: one), binds them to
/// `all_reduce` and adds to a bound step: the start of each bucket behind the operation that
/// completes it, and the end of all before the update; where it is converted, the conversion of
/// each bucket before its start, and that of all sums after the end, which counts as exposed.
void insert_exchange(LoweredStep& step, AllReduce& all_reduce, int64_t bucket_bytes,
                     const FlatGradient& gradient, StepState& state);

}  // namespace nearmetal::cpu
