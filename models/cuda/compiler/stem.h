// The forms in which the convolution that reads the image can be computed.
#pragma once

#include <cstdint>
#include <vector>

#include "models/cuda/kernels/images.h"
#include "models/cuda/libraries/convolution.h"
#include "models/graph.h"

namespace nearmetal::cuda {

/// Tensor cores want more than the three channels of an image. Either they are padded with zeros,
/// or every 2 x 2 pixels become one of 12 channels, and a 7x7 filter of stride 2 a 4x4 one of
/// stride 1 with one row and one column of zero taps: the same sums, in another order.
enum class StemForm { pad_to_4, pad_to_8, space_to_depth };

/// The forms that fit this convolution. space_to_depth is for 16-bit types alone: it pads unequally
/// before and behind the image, and cuDNN's fp32 weight gradient (9.14, engine 1) then reads beyond
/// its operand.
std::vector<StemForm> stem_forms(const Node& conv, const Shape& image, Precision precision);

ImageLayout stem_image_layout(StemForm form, const Shape& image, int64_t batch);
ConvolutionShape stem_shape(StemForm form, const Node& conv, const Shape& image, int64_t batch);

/// For each weight in canonical order (OIHW) its place in the filter of this form; the places that
/// are left over are not parameters and stay zero.
std::vector<int64_t> stem_weight_places(StemForm form, const Parameter& weight);

/// The same for any other convolution: OIHW to OHWI.
std::vector<int64_t> weight_places(const Parameter& weight);
ConvolutionShape convolution_shape(const Node& conv, const Shape& input, int64_t batch);

}  // namespace nearmetal::cuda
