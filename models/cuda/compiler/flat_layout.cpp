#include "models/cuda/compiler/flat_layout.h"

namespace nearmetal::cuda {
namespace {

constexpr int64_t slice_alignment = 128;  // elements: 256 bytes of a 16-bit type

// The weight of a convolution in the layout that its kernels read.
ParameterSlice convolution_slice(const Graph& graph, const Node& conv, StemForm stem) {
  const Shape& input = graph.input_shape(conv);
  const Parameter& weight = graph.parameters()[conv.parameters[0]];
  ParameterSlice slice;
  slice.is_matrix = true;
  if (graph.node(conv.inputs[0]).op == OpKind::input) {
    slice.elements = stem_shape(stem, conv, input, 1).weight_elements();
    slice.places = stem_weight_places(stem, weight);
  } else {
    slice.elements = convolution_shape(conv, input, 1).weight_elements();
    slice.places = weight_places(weight);
  }
  return slice;
}

template <class Move>
void for_each_element(const Graph& graph, const FlatLayout& layout, Move move) {
  for (size_t p = 0; p < layout.slices.size(); ++p) {
    const Parameter& parameter = graph.parameters()[p];
    const std::vector<int64_t>& places = layout.slices[p].places;
    const int64_t flat = layout.offset(static_cast<int>(p));
    for (int64_t i = 0; i < parameter.size; ++i) {
      move(parameter.offset + i, flat + (places.empty() ? i : places[i]));
    }
  }
}

}  // namespace

FlatLayout flat_layout(const Graph& graph, StemForm stem) {
  FlatLayout layout;
  layout.slices.resize(graph.parameters().size());
  for (const Node& node : graph.nodes()) {
    for (const int p : node.parameters) {
      const Parameter& parameter = graph.parameters()[p];
      layout.slices[p].elements = parameter.size;
      layout.slices[p].is_matrix = parameter.dims.size() > 1;
    }
    if (node.op == OpKind::conv) {
      layout.slices[node.parameters[0]] = convolution_slice(graph, node, stem);
    }
  }
  for (auto slice = layout.slices.rbegin(); slice != layout.slices.rend(); ++slice) {
    int64_t& section = slice->is_matrix ? layout.matrix_elements : layout.vector_elements;
    slice->offset = section;
    section += (slice->elements + slice_alignment - 1) / slice_alignment * slice_alignment;
  }
  return layout;
}

std::vector<float> FlatLayout::to_flat(const Graph& graph, std::span<const float> canonical) const {
  std::vector<float> flat(elements(), 0.0f);
  for_each_element(graph, *this, [&](int64_t from, int64_t to) { flat[to] = canonical[from]; });
  return flat;
}

std::vector<float> FlatLayout::to_canonical(const Graph& graph, std::span<const float> flat) const {
  std::vector<float> canonical(graph.parameter_count());
  for_each_element(graph, *this, [&](int64_t to, int64_t from) { canonical[to] = flat[from]; });
  return canonical;
}

}  // namespace nearmetal::cuda
