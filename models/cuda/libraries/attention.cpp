#include "models/cuda/libraries/attention.h"

#include <cmath>
#include <limits>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "models/cuda/libraries/attention_graph.h"
#include "models/names.h"

namespace nearmetal::cuda {

std::string AttentionProblem::key() const {
  std::ostringstream text;
  text << "attention " << (op == AttentionOp::forward ? "forward " : "backward ")
       << to_string(precision) << ' ' << extent.batch << 'x' << extent.tokens << 'x'
       << extent.features() << " heads " << extent.heads;
  return text.str();
}

DeviceMemory make_token_counts(const AttentionExtent& extent) {
  const std::vector<int32_t> counts(extent.batch, static_cast<int32_t>(extent.tokens));
  const auto bytes = static_cast<int64_t>(counts.size() * sizeof(int32_t));
  DeviceMemory memory = allocate_device(bytes);
  NM_CALL(cudaMemcpy(memory.get(), counts.data(), bytes, cudaMemcpyHostToDevice));
  NM_CALL(cudaDeviceSynchronize());  // the copy may return before it is done
  return memory;
}

AttentionPlan::AttentionPlan(Plan plan, const AttentionProblem& problem)
    : Plan(std::move(plan)),
      problem_(problem),
      values_(std::make_shared<const Values>(
          Values{1 / std::sqrt(static_cast<float>(problem.extent.head_features)), 1,
                 -std::numeric_limits<float>::infinity()})) {}

Descriptor AttentionPlan::bind(const AttentionOperands& operands, void* workspace) const {
  const int64_t part_bytes = problem_.extent.features() * element_bytes(problem_.precision);
  const auto part = [part_bytes](const void* packed, int index) {
    return static_cast<const char*>(packed) + index * part_bytes;
  };
  std::vector<Binding> bindings{
      {q_id, part(operands.packed, 0)}, {k_id, part(operands.packed, 1)},
      {v_id, part(operands.packed, 2)}, {attended_id, operands.y},
      {log_sums_id, operands.log_sums}, {score_factor_id, &values_->score_factor}};
  if (problem_.op == AttentionOp::backward) {
    bindings.insert(bindings.end(), {{attended_gradient_id, operands.dy},
                                     {dots_id, operands.dots},
                                     {q_gradient_id, part(operands.packed_gradient, 0)},
                                     {k_gradient_id, part(operands.packed_gradient, 1)},
                                     {v_gradient_id, part(operands.packed_gradient, 2)},
                                     {one_id, &values_->one}});
  }
  if (masks_tokens(problem_.extent)) {
    bindings.insert(bindings.end(), {{query_counts_id, operands.token_counts},
                                     {key_counts_id, operands.token_counts},
                                     {minus_infinity_id, &values_->minus_infinity}});
  }
  return Plan::bind(bindings, workspace);
}

std::vector<AttentionPlan> offered_plans(const PlanDevice& device, const AttentionProblem& problem,
                                         int64_t workspace_limit, int limit) {
  std::vector<AttentionPlan> plans;
  if (element_bytes(problem.precision) != 2) return plans;
  std::optional<Descriptor> graph;
  try {
    graph = operation_graph(device, problem);
  } catch (const std::runtime_error&) {
    return plans;  // this cuDNN does not know such a graph
  }
  const PlanRules rules{
      .workspace_limit = workspace_limit, .limit = limit, .run_time_compiled = true};
  for (const Plan& plan : offered_plans(device, *graph, rules)) plans.emplace_back(plan, problem);
  return plans;
}

AttentionPlan named_plan(const PlanDevice& device, const AttentionProblem& problem,
                         const std::string& name) {
  return {named_plan(device, operation_graph(device, problem), name), problem};
}

}  // namespace nearmetal::cuda
