// Attention as cuDNN sees it: its problem, the plans offered for it, and one that runs it.
//
// Sums over the keys are in a fixed order: the gradients of scores are in the workspace, in 16
// bits, before they are summed into that of q. The form of the graph whose blocks add to the
// gradient of q as they come takes less workspace, and its results differ from run to run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/cuda/device/check.h"
#include "models/cuda/libraries/operands.h"
#include "models/cuda/libraries/plans.h"
#include "models/training_options.h"

namespace nearmetal::cuda {

struct AttentionProblem {
  AttentionOp op = AttentionOp::forward;
  AttentionExtent extent;
  Precision precision = Precision::fp16;

  /// Names the work: two problems with the same key can run the same plan.
  std::string key() const;
  AttentionProblem with(AttentionOp other) const { return {other, extent, precision}; }
};

/// cuDNN up to 9.15 errs backward behind the last of tokens that do not fill tiles of 128, unless
/// the number of tokens of each sample masks them.
constexpr bool masks_tokens(const AttentionExtent& extent) { return extent.tokens % 128 != 0; }

/// [batch] of a number each, for AttentionOperands.
DeviceMemory make_token_counts(const AttentionExtent& extent);

/// Copies share the plan.
class AttentionPlan : public Plan {
 public:
  AttentionPlan(Plan plan, const AttentionProblem& problem);
  Descriptor bind(const AttentionOperands& operands, void* workspace) const;

 private:
  // Read at each execution.
  struct Values {
    float score_factor, one, minus_infinity;
  };
  AttentionProblem problem_;
  std::shared_ptr<const Values> values_;
};

/// At most `limit` plans within the workspace; none for types of 32 bits.
std::vector<AttentionPlan> offered_plans(const PlanDevice& device, const AttentionProblem& problem,
                                         int64_t workspace_limit, int limit);

/// The plan of that name. Throws std::runtime_error if this cuDNN cannot build it.
AttentionPlan named_plan(const PlanDevice& device, const AttentionProblem& problem,
                         const std::string& name);

}  // namespace nearmetal::cuda
