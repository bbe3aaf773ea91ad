#include "models/program.h"

#include "base/errors.h"
#include "models/graph.h"

namespace nearmetal {

BoundaryBytes bytes_of_boundaries(const Graph& graph, const ProgramOptions& options) {
  const auto bytes = [&](const Node& boundary) {
    return options.batch_size * boundary.shape.elements() * element_bytes(options.precision);
  };
  return {graph.receives() ? bytes(graph.nodes().front()) : 0,
          graph.sends() ? bytes(graph.nodes().back()) : 0};
}

void require_memory(const ProgramOptions& options, int64_t needed, int64_t available,
                    const std::string& memory, const std::function<int64_t()>& largest_batch) {
  if (needed <= available) return;
  const int64_t largest = largest_batch();
  throw OutOfMemory("batch " + std::to_string(options.batch_size) + " needs " +
                        std::to_string(needed) + " bytes of " + memory + ", " +
                        std::to_string(available) + " are free; the largest batch that fits is " +
                        std::to_string(largest),
                    needed, available, largest);
}

int64_t largest_fitting(int64_t good, int64_t bad, const std::function<bool(int64_t batch)>& fits) {
  while (bad - good > 1) {
    const int64_t middle = (good + bad) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

}  // namespace nearmetal
