// One update of the parameters in double precision.
#include <cmath>

#include "tests/ops/reference.h"

namespace nearmetal {
namespace {

void update_by_sgd(const OptimizerOptions& options, ReferenceStep& step) {
  for (size_t i = 0; i < step.parameters.size(); ++i) {
    double &w = step.parameters[i], &momentum = step.momentum[i];
    momentum = options.momentum * momentum + step.gradients[i] + options.weight_decay * w;
    w -= options.learning_rate * momentum;
  }
}

// In the order of the pseudo code of torch.optim.AdamW's documentation.
void update_by_adamw(const Parameter& parameter, const OptimizerOptions& options, int64_t updates,
                     ReferenceStep& step) {
  constexpr double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  const auto t = static_cast<double>(updates);
  const double decay = parameter.dims.size() > 1 ? options.weight_decay : 0;
  for (int64_t i = parameter.offset; i < parameter.offset + parameter.size; ++i) {
    const double gradient = step.gradients[i];
    double &w = step.parameters[i], &first = step.momentum[i], &second = step.second_moments[i];
    w -= options.learning_rate * decay * w;
    first = beta1 * first + (1 - beta1) * gradient;
    second = beta2 * second + (1 - beta2) * gradient * gradient;
    const double corrected_first = first / (1 - std::pow(beta1, t));
    const double corrected_second = second / (1 - std::pow(beta2, t));
    w -= options.learning_rate * corrected_first / (std::sqrt(corrected_second) + epsilon);
  }
}

}  // namespace

void update_parameters(const Graph& graph, const OptimizerOptions& options, int64_t updates,
                       ReferenceStep& step) {
  step.momentum.resize(step.parameters.size());
  if (options.kind == Optimizer::sgd) return update_by_sgd(options, step);
  step.second_moments.resize(step.parameters.size());
  for (const Parameter& parameter : graph.parameters()) {
    update_by_adamw(parameter, options, updates, step);
  }
}

}  // namespace nearmetal
