#include "models/cuda/compiler/stem.h"

#include <stdexcept>

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

int64_t padded_channels(StemForm form) { return form == StemForm::pad_to_4 ? 4 : 8; }

// place(k, c, r, s) of every weight of a convolution, in canonical order.
template <class Place>
std::vector<int64_t> places_of(const Parameter& weight, Place place) {
  std::vector<int64_t> places;
  places.reserve(weight.size);
  for (int64_t k = 0; k < weight.dims[0]; ++k) {
    for (int64_t c = 0; c < weight.dims[1]; ++c) {
      for (int64_t r = 0; r < weight.dims[2]; ++r) {
        for (int64_t s = 0; s < weight.dims[3]; ++s) places.push_back(place(k, c, r, s));
      }
    }
  }
  return places;
}

// OHWI with so many stored inputs.
std::vector<int64_t> weight_places(const Parameter& weight, int64_t inputs) {
  const int64_t height = weight.dims[2], width = weight.dims[3];
  return places_of(weight, [=](int64_t k, int64_t c, int64_t r, int64_t s) {
    return ((k * height + r) * width + s) * inputs + c;
  });
}

}  // namespace

std::vector<StemForm> stem_forms(const Node& conv, const Shape& image, Precision precision) {
  std::vector<StemForm> forms;
  if (image.channels <= 4) forms.push_back(StemForm::pad_to_4);
  if (image.channels <= 8) forms.push_back(StemForm::pad_to_8);
  const bool is_16_bit = element_bytes(precision) == 2;
  if (is_16_bit && fits_space_to_depth(conv.window, image))
    forms.push_back(StemForm::space_to_depth);
  if (forms.empty())
    throw std::invalid_argument("images of more than 8 channels are not supported");
  return forms;
}

ImageLayout stem_image_layout(StemForm form, const Shape& image, int64_t batch) {
  ImageLayout layout{batch,
                     static_cast<int>(image.channels),
                     static_cast<int>(image.height),
                     static_cast<int>(image.width),
                     1,
                     0};
  if (form == StemForm::space_to_depth) {
    layout.block = block;
    layout.stored_channels = blocked_channels;
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
  ConvolutionShape shape = convolution_shape(conv, image, batch);
  if (form == StemForm::space_to_depth) {
    shape.input_channels = blocked_channels;
    shape.input_height /= block;
    shape.input_width /= block;
    shape.kernel = 4;
    shape.stride = 1;
    shape.padding_before = 2;
    shape.padding_after = 1;
  } else {
    shape.input_channels = padded_channels(form);
  }
  return shape;
}

std::vector<int64_t> stem_weight_places(StemForm form, const Parameter& weight) {
  if (form != StemForm::space_to_depth) return weight_places(weight, padded_channels(form));
  return places_of(weight, [inputs = weight.dims[1]](int64_t k, int64_t c, int64_t r, int64_t s) {
    const int64_t row = r + 1, column = s + 1;
    const int64_t part = (row % block * block + column % block) * inputs + c;
    return ((k * 4 + row / block) * 4 + column / block) * blocked_channels + part;
  });
}

std::vector<int64_t> weight_places(const Parameter& weight) {
  return weight_places(weight, weight.dims[1]);
}

}  // namespace nearmetal::cuda
