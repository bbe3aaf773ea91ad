#include "models/program.h"

#include "models/graph.h"

namespace nearmetal {

BoundaryBytes bytes_of_boundaries(const Graph& graph, const ProgramOptions& options) {
  const auto bytes = [&](const Node& boundary) {
    return options.batch_size * boundary.shape.elements() * element_bytes(options.precision);
  };
  return {graph.receives() ? bytes(graph.nodes().front()) : 0,
          graph.sends() ? bytes(graph.nodes().back()) : 0};
}

}  // namespace nearmetal
