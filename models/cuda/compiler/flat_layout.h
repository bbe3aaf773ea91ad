// Where each parameter lies in the flat device buffers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/cuda/compiler/stem.h"
#include "models/graph.h"

namespace nearmetal::cuda {

struct ParameterSlice {
  int64_t offset = 0;    // in elements, from the start of its section
  int64_t elements = 0;  // with padding inside, e.g. of the channels of an image
  bool is_matrix = false;
  std::vector<int64_t> places;  // of the canonical elements in the slice; empty: in order
};

/// Two sections, matrices and vectors (see FlatParameters), each last layer first, so that what the
/// backward pass finishes first lies in front. Every slice starts at a multiple of 256 bytes in any
/// type.
struct FlatLayout {
  std::vector<ParameterSlice> slices;  // by the graph's parameter index
  int64_t matrix_elements = 0;
  int64_t vector_elements = 0;

  int64_t elements() const { return matrix_elements + vector_elements; }
  /// Offset of a slice when both sections lie behind one another.
  int64_t offset(int parameter) const {
    const ParameterSlice& slice = slices.at(parameter);
    return slice.offset + (slice.is_matrix ? 0 : matrix_elements);
  }
  std::vector<float> to_flat(const Graph& graph, std::span<const float> canonical) const;
  std::vector<float> to_canonical(const Graph& graph, std::span<const float> flat) const;
};

FlatLayout flat_layout(const Graph& graph, StemForm stem);

}  // namespace nearmetal::cuda
