// The exchange of gradients with other ranks, as kernels of a step.
#pragma once

#include <cstdint>

#include "models/cuda/compiler/lowering.h"

namespace nearmetal::cuda {

/// Cuts the gradients into buckets of at least `bucket_bytes` as sent (0: one), binds them to
/// `all_reduce` and adds to the step: their start behind the kernel that completes them, and the
/// end of all before the update. The gradients of vectors, small and complete only at the end of
/// the backward pass, are the last bucket, started together with the one before. Of several
/// micro-batches each bucket becomes the mean before its start. Gradients whose type is not
/// `options.gradient_type` are converted before the start of their bucket, and their sums back
/// after the end of all, which counts as exposed. All references must outlive the step.
void insert_exchange(LoweredStep& step, const FlatLayout& layout, const ProgramOptions& options,
                     const StepResources& resources, AllReduce& all_reduce, int64_t bucket_bytes);

}  // namespace nearmetal::cuda
