// oneDNN 3, and 2.6 as if it were 3: the one place that knows how the two differ.
#pragma once

#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>

namespace nearmetal::cpu {

/// Where a primitive runs, and how.
struct PrimitivePlace {
  const dnnl::engine& engine;
  const dnnl::primitive_attr& attributes;
};

/// How a pooling moves over an image, each of two dimensions.
struct PoolWindow {
  dnnl::memory::dims strides, kernel, padding;
};

using Dims = dnnl::memory::dims;

/// "strides 144 1, blocks of 16 in dimension 0": how far apart the values of each dimension lie,
/// where a block that is cut out of one counts as a value.
inline std::string layout_text(const Dims& strides, const Dims& blocks, const Dims& of_dimensions) {
  std::string text = "strides";
  for (const int64_t stride : strides) text += " " + std::to_string(stride);
  for (size_t i = 0; i < blocks.size(); ++i) {
    text += ", blocks of " + std::to_string(blocks[i]) + " in dimension " +
            std::to_string(of_dimensions[i]);
  }
  return text;
}

#if DNNL_VERSION_MAJOR >= 3

/// The description of a forward primitive from its arguments in oneDNN's order.
template <class Primitive, class... Arguments>
auto describe(PrimitivePlace place, const Arguments&... arguments) {
  return typename Primitive::primitive_desc(place.engine, arguments..., place.attributes);
}

/// That of a backward one, whose forward primitive is described by `forward`.
template <class Primitive, class Forward, class... Arguments>
auto describe_backward(PrimitivePlace place, const Forward& forward,
                       const Arguments&... arguments) {
  return typename Primitive::primitive_desc(place.engine, arguments..., forward, place.attributes);
}

inline dnnl::memory::dims dims_of(const dnnl::memory::desc& desc) { return desc.get_dims(); }

inline dnnl::memory::data_type type_of(const dnnl::memory::desc& desc) {
  return desc.get_data_type();
}

inline std::string layout_text(const dnnl::memory::desc& desc) {
  return layout_text(desc.get_strides(), desc.get_inner_blks(), desc.get_inner_idxs());
}

/// Whether it was to be made from what does not go together, and is none.
inline bool is_empty(const dnnl::memory::desc& desc) { return desc.get(true) == nullptr; }

inline void append_relu(dnnl::post_ops& operations, float slope) {
  operations.append_eltwise(dnnl::algorithm::eltwise_relu, slope, 0);
}

// Version 3 is told the layouts of all tensors, and of dilation between the values of a window.
#define NM_ONEDNN_3(...) __VA_ARGS__,

#else

template <class Primitive, class... Arguments>
auto describe(PrimitivePlace place, const Arguments&... arguments) {
  return typename Primitive::primitive_desc({arguments...}, place.attributes, place.engine);
}

template <class Primitive, class Forward, class... Arguments>
auto describe_backward(PrimitivePlace place, const Forward& forward,
                       const Arguments&... arguments) {
  return
      typename Primitive::primitive_desc({arguments...}, place.attributes, place.engine, forward);
}

inline dnnl::memory::dims dims_of(const dnnl::memory::desc& desc) { return desc.dims(); }

inline dnnl::memory::data_type type_of(const dnnl::memory::desc& desc) { return desc.data_type(); }

inline std::string layout_text(const dnnl::memory::desc& desc) {
  const auto& blocking = desc.data.format_desc.blocking;
  const auto first = [](const dnnl_dim_t* values, int count) {
    return Dims(values, values + count);
  };
  return layout_text(first(blocking.strides, desc.data.ndims),
                     first(blocking.inner_blks, blocking.inner_nblks),
                     first(blocking.inner_idxs, blocking.inner_nblks));
}

inline bool is_empty(const dnnl::memory::desc& desc) { return desc.is_zero(); }

inline void append_relu(dnnl::post_ops& operations, float slope) {
  operations.append_eltwise(1, dnnl::algorithm::eltwise_relu, slope, 0);
}

#define NM_ONEDNN_3(...)

#endif

/// `from` and `to` are layouts of values; the gradients of a backward pass have those of the
/// values.
inline auto describe_pooling(PrimitivePlace place, dnnl::prop_kind kind, dnnl::algorithm algorithm,
                             const dnnl::memory::desc& from, const dnnl::memory::desc& to,
                             const PoolWindow& window) {
  return describe<dnnl::pooling_forward>(
      place, kind, algorithm, from, to, window.strides, window.kernel,
      NM_ONEDNN_3(dnnl::memory::dims{0, 0}) window.padding, window.padding);
}

inline auto describe_pooling_backward(PrimitivePlace place,
                                      const dnnl::pooling_forward::primitive_desc& forward,
                                      dnnl::algorithm algorithm, const dnnl::memory::desc& from,
                                      const dnnl::memory::desc& to, const PoolWindow& window) {
  return describe_backward<dnnl::pooling_backward>(
      place, forward, algorithm, from, to, window.strides, window.kernel,
      NM_ONEDNN_3(dnnl::memory::dims{0, 0}) window.padding, window.padding);
}

/// Of rows that each are normalised, scaled and shifted.
inline auto describe_layer_norm(PrimitivePlace place, dnnl::prop_kind kind,
                                const dnnl::memory::desc& rows, float epsilon) {
  using enum dnnl::normalization_flags;
  return describe<dnnl::layer_normalization_forward>(place, kind, rows, NM_ONEDNN_3(rows) epsilon,
                                                     use_scale | use_shift);
}

inline auto describe_layer_norm_backward(
    PrimitivePlace place, const dnnl::layer_normalization_forward::primitive_desc& forward,
    const dnnl::memory::desc& rows, float epsilon) {
  using enum dnnl::normalization_flags;
  return describe_backward<dnnl::layer_normalization_backward>(
      place, forward, dnnl::prop_kind::backward, rows, NM_ONEDNN_3(rows) rows, epsilon,
      use_scale | use_shift);
}

inline auto describe_gelu(PrimitivePlace place, dnnl::prop_kind kind,
                          const dnnl::memory::desc& values) {
  return describe<dnnl::eltwise_forward>(place, kind, dnnl::algorithm::eltwise_gelu_erf,
                                         NM_ONEDNN_3(values) values);
}

inline auto describe_gelu_backward(PrimitivePlace place,
                                   const dnnl::eltwise_forward::primitive_desc& forward,
                                   const dnnl::memory::desc& values) {
  return describe_backward<dnnl::eltwise_backward>(
      place, forward, dnnl::algorithm::eltwise_gelu_erf, NM_ONEDNN_3(values) values, values);
}

#undef NM_ONEDNN_3

}  // namespace nearmetal::cpu
