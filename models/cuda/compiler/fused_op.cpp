#include "models/cuda/compiler/fused_op.h"

#include <algorithm>

namespace nearmetal::cuda {

ValueId FusedOp::at(Role role) const {
  const auto found = std::ranges::find(operands, role, &Operand::role);
  return found == operands.end() ? no_value : found->value;
}

}  // namespace nearmetal::cuda
