// Where each parameter lies in the flat device buffers, for each form in which the convolution that
// reads the image can be computed.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/names.h"
#include "models/cuda/kernels/images.h"
#include "models/cuda/libraries/convolution.h"
#include "models/graph.h"

namespace nearmetal::cuda {

/// Tensor cores want more than the three channels of an image. Either they are padded with zeros,
/// or every 2 x 2 pixels become one of 12 channels, and a 7x7 filter of stride 2 a 4x4 one of
/// stride 1 with one row and one column of zero taps: the same sums, in another order. Patches that
/// do not overlap become one pixel each of all their values, and the filter 1x1: a plain product.
enum class StemForm { pad_to_4, pad_to_8, space_to_depth, patches };
constexpr auto names_of(StemForm) {
  return std::array{"pad_to_4", "pad_to_8", "space_to_depth", "patches"};
}

/// The forms that fit this convolution. space_to_depth is for 16-bit types alone: it pads unequally
/// before and behind the image, and cuDNN's fp32 weight gradient (9.14, engine 1) then reads beyond
/// its operand.
std::vector<StemForm> stem_forms(const Node& conv, const Shape& image, Precision precision);

ImageLayout stem_image_layout(StemForm form, const Node& conv, const Shape& image, int64_t batch);
ConvolutionShape stem_shape(StemForm form, const Node& conv, const Shape& image, int64_t batch);

/// For each weight of one output in canonical order (IHW) its place in the filter of this form; the
/// places that are left over are not parameters and stay zero.
std::vector<int64_t> stem_weight_places(StemForm form, const Parameter& weight);

/// The shape of any other convolution.
ConvolutionShape convolution_shape(const Node& conv, const Shape& input, int64_t batch);

struct ParameterSlice {
  int64_t offset = 0;    // in elements, from the start of its section
  int64_t elements = 0;  // with padding inside, e.g. of the channels of an image
  bool is_matrix = false;
  // Where the canonical elements of one output lie in its part of the slice, the same for each
  // output; empty: in order.
  std::vector<int64_t> places;
  int64_t output_elements = 0;  // of one output in the slice; 0 without places

  /// Where a canonical element lies in the slice.
  int64_t place(int64_t element) const {
    if (places.empty()) return element;
    const auto count = static_cast<int64_t>(places.size());
    return element / count * output_elements + places[element % count];
  }
  /// The whole slice of a parameter in canonical order; what pads it is 0.
  std::vector<float> to_flat(std::span<const float> canonical) const;
  /// A parameter in canonical order from its slice.
  void to_canonical(std::span<const float> flat, std::span<float> canonical) const;
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
  /// All parameters in canonical order from both sections.
  std::vector<float> to_canonical(const Graph& graph, std::span<const float> flat) const;
};

FlatLayout flat_layout(const Graph& graph, StemForm stem);

}  // namespace nearmetal::cuda
