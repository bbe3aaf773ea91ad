// Seeded initial parameters.
#pragma once

#include <cstdint>
#include <vector>

#include "models/graph.h"

namespace nearmetal {

/// All parameters in canonical layout, the same for a seed on every rank and device. Convolutions:
/// He normal, fan-out (arXiv 1502.01852); classifier: uniform within 1/sqrt(inputs); batch norm:
/// scale 1, bias 0. `zero_last_scale` starts the last scale of each residual branch at 0 (arXiv
/// 1706.02677).
std::vector<float> initial_parameters(const Graph& graph, uint64_t seed,
                                      bool zero_last_scale = false);

}  // namespace nearmetal
