// Lowers a graph to the kernels of one training step: the ops of its passes (planner.h) become
// kernels (emission.h) in the order of a step (models/step_order.h), and their tensors get places;
// and the exchange of gradients with other ranks, as kernels of that step. Runs nothing and needs
// no device.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "models/cuda/compiler/emission.h"
#include "models/cuda/compiler/flat_layout.h"
#include "models/cuda/compiler/resources.h"
#include "models/cuda/kernels/images.h"
#include "models/graph.h"
#include "models/memory_plan.h"
#include "models/program.h"

namespace nearmetal::cuda {

struct LoweredStep {
  std::deque<Tensor> tensors;  // a part behind its whole
  std::vector<Kernel> kernels;
  MemoryPlan memory;               // by tensor
  const Tensor* images = nullptr;  // of all micro-batches
  const Tensor* logits = nullptr;  // fp32, of a graph without a loss
  ImageLayout image_layout;
};

/// Throws std::invalid_argument for a graph with a node that has no kernel. `graph`, `layout` and
/// `resources` must outlive the launches of the result.
LoweredStep lower(const Graph& graph, const ProgramOptions& options, const LoweringChoices& choices,
                  const FlatLayout& layout, const StepResources& resources);

/// The products of a lowered step that the tuner chooses for, each problem once.
std::vector<LinearProblem> distinct_products(const LoweredStep& step);

/// The attention of a graph that the tuner chooses for, each problem once, forward before backward.
std::vector<AttentionProblem> distinct_attention(const Graph& graph, const ProgramOptions& options);

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
