#include "models/cuda/compiler/flat_layout.h"

#include <stdexcept>

#include "models/memory_plan.h"

namespace nearmetal::cuda {
namespace {

// Space to depth: padding 3 becomes 4 in pixels, so that windows start at even pixels; the filter
// gets one more row and column in front.
constexpr int block = 2;
constexpr int64_t blocked_channels = 16;  // 12, padded

bool fits_space_to_depth(const Window& window, const Shape& image) {
  return window.kernel == 7 && window.stride == 2 && window.padding == 3 &&
         image.channels * block * block <= blocked_channels && image.height % block == 0 &&
         image.width % block == 0;
}

bool are_patches(const Window& window, const Shape& image) {
  return window.kernel > 1 && window.kernel == window.stride && window.padding == 0 &&
         image.height % window.kernel == 0 && image.width % window.kernel == 0;
}

int64_t padded_channels(StemForm form) { return form == StemForm::pad_to_4 ? 4 : 8; }

// place(c, r, s) of all weights of one output, in canonical order.
template <class Place>
std::vector<int64_t> places_of(int64_t channels, int64_t height, int64_t width, Place place) {
  std::vector<int64_t> places;
  places.reserve(channels * height * width);
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t r = 0; r < height; ++r) {
      for (int64_t s = 0; s < width; ++s) places.push_back(place(c, r, s));
    }
  }
  return places;
}

// Channels last, so many of them stored.
std::vector<int64_t> weight_places(int64_t channels, int64_t height, int64_t width,
                                   int64_t stored) {
  return places_of(channels, height, width,
                   [=](int64_t c, int64_t r, int64_t s) { return (r * width + s) * stored + c; });
}

constexpr int64_t slice_alignment = 128;  // elements: 256 bytes of a 16-bit type

// The weight of a convolution in the layout that its kernels read.
void lay_out_convolution(const Graph& graph, const Node& conv, StemForm stem,
                         ParameterSlice& slice) {
  const Shape& input = graph.input_shape(conv);
  const Parameter& weight = graph.parameters()[conv.parameters[0]];
  if (graph.node(conv.inputs[0]).op == OpKind::input) {
    slice.elements = stem_shape(stem, conv, input, 1).weight_elements();
    slice.places = stem_weight_places(stem, weight);
  } else {
    slice.elements = convolution_shape(conv, input, 1).weight_elements();
    slice.places = weight_places(weight.dims[1], weight.dims[2], weight.dims[3], weight.dims[1]);
  }
  slice.output_elements = slice.elements / weight.dims[0];
}

// The weight of a linear layer that reads the values of a sample as they lie in memory.
void lay_out_linear(const Shape& input, ParameterSlice& slice) {
  if (input.elements() == input.channels) return;
  slice.places = weight_places(input.channels, input.height, input.width, input.channels);
  slice.output_elements = input.elements();
}

// Calls move(element, place) for each canonical element; place() would divide for every one.
template <class Move>
void for_each_place(const ParameterSlice& slice, size_t elements, Move move) {
  const auto count = static_cast<int64_t>(elements);
  if (slice.places.empty()) {
    for (int64_t i = 0; i < count; ++i) move(i, i);
    return;
  }
  const auto row = static_cast<int64_t>(slice.places.size());
  int64_t flat_row = 0;
  for (int64_t first = 0; first < count; first += row, flat_row += slice.output_elements) {
    for (int64_t i = 0; i < row; ++i) move(first + i, flat_row + slice.places[i]);
  }
}

}  // namespace

std::vector<StemForm> stem_forms(const Node& conv, const Shape& image, Precision precision) {
  std::vector<StemForm> forms;
  if (are_patches(conv.window, image)) forms.push_back(StemForm::patches);
  if (image.channels <= 4) forms.push_back(StemForm::pad_to_4);
  if (image.channels <= 8) forms.push_back(StemForm::pad_to_8);
  const bool is_16_bit = element_bytes(precision) == 2;
  if (is_16_bit && fits_space_to_depth(conv.window, image))
    forms.push_back(StemForm::space_to_depth);
  if (forms.empty())
    throw std::invalid_argument("images of more than 8 channels are not supported");
  return forms;
}

ImageLayout stem_image_layout(StemForm form, const Node& conv, const Shape& image, int64_t batch) {
  ImageLayout layout{batch,
                     static_cast<int>(image.channels),
                     static_cast<int>(image.height),
                     static_cast<int>(image.width),
                     1,
                     0};
  if (form == StemForm::space_to_depth) {
    layout.block = block;
    layout.stored_channels = blocked_channels;
  } else if (form == StemForm::patches) {
    layout.block = static_cast<int>(conv.window.kernel);
    // The values of a patch, padded so that rows of them are packs.
    layout.stored_channels =
        static_cast<int>(round_up(layout.channels * layout.block * layout.block, 8));
  } else {
    layout.stored_channels = static_cast<int>(padded_channels(form));
  }
  return layout;
}

ConvolutionShape convolution_shape(const Node& conv, const Shape& input, int64_t batch) {
  return {batch,
          input.channels,
          input.height,
          input.width,
          conv.shape.channels,
          conv.shape.height,
          conv.shape.width,
          conv.window.kernel,
          conv.window.stride,
          conv.window.padding,
          conv.window.padding};
}

ConvolutionShape stem_shape(StemForm form, const Node& conv, const Shape& image, int64_t batch) {
  const ImageLayout layout = stem_image_layout(form, conv, image, batch);
  ConvolutionShape shape = convolution_shape(conv, image, batch);
  shape.input_channels = layout.stored_channels;
  shape.input_height = layout.stored_height();
  shape.input_width = layout.stored_width();
  if (form == StemForm::space_to_depth) {
    shape.kernel = 4;
    shape.stride = 1;
    shape.padding_before = 2;
    shape.padding_after = 1;
  }
  if (form == StemForm::patches) shape.kernel = shape.stride = 1;
  return shape;
}

std::vector<int64_t> stem_weight_places(StemForm form, const Parameter& weight) {
  const int64_t inputs = weight.dims[1], height = weight.dims[2], width = weight.dims[3];
  if (form == StemForm::patches) return weight_places(inputs, height, width, inputs);
  if (form != StemForm::space_to_depth) {
    return weight_places(inputs, height, width, padded_channels(form));
  }
  return places_of(inputs, height, width, [=](int64_t c, int64_t r, int64_t s) {
    const int64_t row = r + 1, column = s + 1;
    const int64_t part = (row % block * block + column % block) * inputs + c;
    return (row / block * 4 + column / block) * blocked_channels + part;
  });
}

FlatLayout flat_layout(const Graph& graph, StemForm stem) {
  FlatLayout layout;
  layout.slices.resize(graph.parameters().size());
  for (const Node& node : graph.nodes()) {
    for (const int p : node.parameters) {
      const Parameter& parameter = graph.parameters()[p];
      layout.slices[p].elements = parameter.size;
      layout.slices[p].is_matrix = parameter.is_matrix();
    }
    if (node.op == OpKind::conv) {
      lay_out_convolution(graph, node, stem, layout.slices[node.parameters[0]]);
    } else if (node.op == OpKind::linear) {
      lay_out_linear(graph.input_shape(node), layout.slices[node.parameters[0]]);
    }
  }
  for (auto slice = layout.slices.rbegin(); slice != layout.slices.rend(); ++slice) {
    int64_t& section = slice->is_matrix ? layout.matrix_elements : layout.vector_elements;
    slice->offset = section;
    section += round_up(slice->elements, slice_alignment);
  }
  return layout;
}

std::vector<float> ParameterSlice::to_flat(std::span<const float> canonical) const {
  std::vector<float> flat(elements, 0.0f);
  for_each_place(*this, canonical.size(),
                 [&](int64_t from, int64_t to) { flat[to] = canonical[from]; });
  return flat;
}

void ParameterSlice::to_canonical(std::span<const float> flat, std::span<float> canonical) const {
  for_each_place(*this, canonical.size(),
                 [&](int64_t to, int64_t from) { canonical[to] = flat[from]; });
}

std::vector<float> FlatLayout::to_canonical(const Graph& graph, std::span<const float> flat) const {
  std::vector<float> canonical(graph.parameter_count());
  for (size_t p = 0; p < slices.size(); ++p) {
    const Parameter& parameter = graph.parameters()[p];
    slices[p].to_canonical(flat.subspan(offset(static_cast<int>(p)), slices[p].elements),
                           std::span(canonical).subspan(parameter.offset, parameter.size));
  }
  return canonical;
}

}  // namespace nearmetal::cuda
