// Puts the exchange of gradients between ranks into a step.
#pragma once

#include "models/all_reduce.h"
#include "models/cpu/lowering.h"

namespace nearmetal {

/// Cuts the flat gradient into buckets of at least `bucket_bytes` (0: one), binds them to
/// `all_reduce` and adds to a bound step: the start of each bucket behind the operation that
/// completes it, and the end of all before the update.
void insert_exchange(LoweredStep& step, AllReduce& all_reduce, int64_t bucket_bytes,
                     float* gradient, StepState& state);

}  // namespace nearmetal
