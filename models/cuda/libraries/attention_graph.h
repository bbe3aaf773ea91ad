// Attention, forward or backward, as a graph of cuDNN's operations: those, in the order, for which
// it has fused kernels.
#pragma once

#include "models/cuda/libraries/attention.h"

namespace nearmetal::cuda {

/// Unique ids of the tensors of an attention's graph that have an address.
enum AttentionTensorId : int64_t {
  q_id = 1,
  k_id,
  v_id,
  attended_id,
  log_sums_id,
  attended_gradient_id,
  dots_id,
  q_gradient_id,
  k_gradient_id,
  v_gradient_id,
  query_counts_id,
  key_counts_id,
  // On the host:
  score_factor_id,
  one_id,
  minus_infinity_id,
  first_virtual_id  // of those without
};

Descriptor operation_graph(const PlanDevice& device, const AttentionProblem& problem);

}  // namespace nearmetal::cuda
