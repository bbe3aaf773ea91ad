#include "models/cuda/libraries/convolution.h"

#include <sstream>

#include "models/cuda/libraries/convolution_graph.h"
#include "models/names.h"

namespace nearmetal::cuda {

std::string ConvolutionProblem::key() const {
  static constexpr const char* names[] = {
      "forward",          "forward_statistics", "forward_bias",    "forward_activation",
      "forward_residual", "backward_data",      "backward_weights"};
  std::ostringstream text;
  text << "conv " << names[static_cast<int>(op)] << ' ' << to_string(precision) << " x"
       << shape.batch << 'x' << shape.input_height << 'x' << shape.input_width << 'x'
       << shape.input_channels << " w" << shape.output_channels << 'x' << shape.kernel << 'x'
       << shape.kernel << " s" << shape.stride << " p" << shape.padding_before << '-'
       << shape.padding_after;
  return text.str();
}

Descriptor ConvolutionPlan::bind(const ConvolutionOperands& operands, void* workspace) const {
  std::vector<Binding> bindings{
      {x_id, operands.x}, {weights_id, operands.weights}, {y_id, operands.y}};
  for (const Binding& optional :
       {Binding{sum_id, operands.sum}, Binding{square_sum_id, operands.square_sum},
        Binding{bias_id, operands.bias}, Binding{residual_id, operands.residual}}) {
    if (optional.address != nullptr) bindings.push_back(optional);
  }
  return Plan::bind(bindings, workspace);
}

std::vector<ConvolutionPlan> offered_plans(const PlanDevice& device,
                                           const ConvolutionProblem& problem,
                                           int64_t workspace_limit, int limit) {
  const std::vector<Plan> plans =
      offered_plans(device, operation_graph(device, problem),
                    {.workspace_limit = workspace_limit,
                     .limit = limit,
                     .strict_fp32 = problem.precision == Precision::fp32});
  return {plans.begin(), plans.end()};
}

ConvolutionPlan named_plan(const PlanDevice& device, const ConvolutionProblem& problem,
                           const std::string& name) {
  return ConvolutionPlan(named_plan(device, operation_graph(device, problem), name));
}

}  // namespace nearmetal::cuda
