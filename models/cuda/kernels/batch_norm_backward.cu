#include "models/cuda/device/call.h"
#include "models/cuda/kernels/batch_norm.h"
#include "models/cuda/kernels/channel_reduction.h"
#include "models/cuda/kernels/pixel_places.h"

namespace nearmetal::cuda {
namespace {

constexpr int apply_unroll = 2;
constexpr int sums_blocks = 1;  // at once on a multiprocessor

enum class ReluMask { none, recomputed, stored };

constexpr bool has_second(Incoming incoming) {
  return incoming == Incoming::two || incoming == Incoming::two_second_at_even_pixels;
}

// dz = mask * gradient of one pack.
template <class T, ReluMask relu, Incoming incoming>
struct Gradient {
  const T* dy;
  const T* dy_second;
  const uint8_t* mask;
  int channel, channels;
  float mean_factor;
  Channels<T> multiplier, shift;  // for ReluMask::recomputed

  __device__ Gradient(const NormBackwardOperands& operands, int channel, int channels)
      : dy(static_cast<const T*>(operands.dy)),
        dy_second(static_cast<const T*>(operands.dy_second)),
        mask(operands.mask),
        channel(channel),
        channels(channels),
        mean_factor(1 / static_cast<float>(operands.image.pixels())) {
    if constexpr (relu == ReluMask::recomputed) {
      multiplier = Channels<T>::load(operands.state.multiplier + channel);
      shift = Channels<T>::load(operands.state.shift + channel);
    }
  }

  struct Loaded {
    Pack<T> dy, dy_second;
    unsigned bits;
  };
  __device__ Loaded load(int64_t at) const {
    static_assert(incoming == Incoming::one || incoming == Incoming::two);
    Loaded loaded;
    loaded.dy = load_pack(dy + at);
    if constexpr (incoming == Incoming::two) loaded.dy_second = load_pack(dy_second + at);
    if constexpr (relu == ReluMask::stored) loaded.bits = mask[at / pack_width<T>];
    return loaded;
  }
  __device__ Loaded load(int64_t at, unsigned row, const PixelPlaces& places) const {
    if constexpr (incoming == Incoming::one || incoming == Incoming::two) {
      return load(at);
    } else {
      Loaded loaded;
      if constexpr (incoming == Incoming::of_mean) {
        loaded.dy = load_pack(dy + places.image(row) * channels + channel);
      } else {
        loaded.dy = load_pack(dy + at);
        const int64_t pixel = places.even_pixel(row);
        loaded.dy_second =
            pixel < 0 ? Pack<T>{} : load_pack(dy_second + pixel * channels + channel);
      }
      loaded.bits = mask[at / pack_width<T>];
      return loaded;
    }
  }
  __device__ Channels<T> values(const Loaded& loaded, const Channels<T>& x) const {
    Channels<T> dz = to_floats(loaded.dy);
    if constexpr (has_second(incoming)) {
      const Channels<T> second = to_floats(loaded.dy_second);
#pragma unroll
      for (int i = 0; i < pack_width<T>; ++i) dz.values[i] += second.values[i];
    }
    if constexpr (incoming == Incoming::of_mean) {
#pragma unroll
      for (int i = 0; i < pack_width<T>; ++i) dz.values[i] *= mean_factor;
    }
#pragma unroll
    for (int i = 0; i < pack_width<T>; ++i) {
      bool passes = true;
      if constexpr (relu == ReluMask::stored) passes = loaded.bits >> i & 1;
      if constexpr (relu == ReluMask::recomputed) {
        passes = fmaf(x.values[i], multiplier.values[i], shift.values[i]) > 0;
      }
      dz.values[i] = passes ? dz.values[i] : 0.0f;
    }
    return dz;
  }
};

// The use of dz besides the batch norm's own gradients: none; it is stored; it is stored and goes
// through another batch norm as well.
enum class Residual { none, tensor, normalised };

// Enough loads in flight to hide the latency of memory, few enough to keep them in registers, of
// which bf16 takes more to be unpacked.
template <class T, Incoming incoming, Residual residual>
inline constexpr int sums_unroll =
    !std::is_same_v<T, __nv_bfloat16> && !has_second(incoming) && residual != Residual::normalised
        ? 4
        : 2;

// `centred`: dz * (x - mean) is summed, too.
template <class T, ReluMask relu, Incoming incoming, Residual residual, bool centred>
__global__ void __launch_bounds__(reduction_threads, sums_blocks)
    backward_sums_kernel(NormBackwardOperands operands, Extent extent, Count count,
                         PixelPlaces places, ReductionScratch scratch) {
  constexpr int width = pack_width<T>;
  constexpr int unroll = sums_unroll<T, incoming, residual>;
  constexpr int tile_rows = slice_rows<T> * unroll;
  constexpr bool dual = residual == Residual::normalised;
  constexpr int sum_count = 1 + (centred ? 1 : 0) + (dual ? 1 : 0), last = sum_count - 1;
  const auto* x = static_cast<const T*>(operands.x);
  const auto* residual_x = static_cast<const T*>(operands.residual_x);
  const int channel = blockIdx.x * slice_channels + threadIdx.x % slice_lanes<T> * width;
  float sums[sum_count][width] = {};
  if (channel < extent.channels) {
    const Gradient<T, relu, incoming> gradient(operands, channel, extent.channels);
    Channels<T> mean, residual_mean;
    if constexpr (centred) mean = Channels<T>::load(operands.state.mean + channel);
    if constexpr (dual) {
      residual_mean = Channels<T>::load(operands.residual_state.mean + channel);
    }
    for (int64_t tile = blockIdx.y; tile * tile_rows < extent.rows; tile += gridDim.y) {
      const int64_t first = tile * tile_rows + threadIdx.x / slice_lanes<T>;
      typename Gradient<T, relu, incoming>::Loaded loaded[unroll];
      Pack<T> packs[unroll], residual_packs[unroll];
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        const int64_t row = first + u * slice_rows<T>;
        if (row >= extent.rows) break;
        const int64_t at = row * extent.channels + channel;
        loaded[u] = gradient.load(at, static_cast<unsigned>(row), places);
        if constexpr (centred) packs[u] = load_pack(x + at);
        if constexpr (dual) {
          residual_packs[u] = load_pack(residual_x + at);
        }
      }
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        const int64_t row = first + u * slice_rows<T>;
        if (row >= extent.rows) break;
        Channels<T> at_x;
        if constexpr (centred) at_x = to_floats(packs[u]);
        const Channels<T> dz = gradient.values(loaded[u], at_x);
        Channels<T> at_residual;
        if constexpr (dual) at_residual = to_floats(residual_packs[u]);
#pragma unroll
        for (int i = 0; i < width; ++i) {
          const float value = dz.values[i];
          sums[0][i] += value;
          if constexpr (centred) {
            sums[1][i] = fmaf(value, at_x.values[i] - mean.values[i], sums[1][i]);
          }
          if constexpr (dual) {
            sums[last][i] =
                fmaf(value, at_residual.values[i] - residual_mean.values[i], sums[last][i]);
          }
        }
        if constexpr (residual != Residual::none) {
          store_pack(static_cast<T*>(operands.dz) + row * extent.channels + channel,
                     from_floats<T>(dz));
        }
      }
    }
  }
  reduce_channels<T>(sums, extent.channels, scratch, [&](int at, const float(&totals)[sum_count]) {
    if constexpr (centred) {
      finish_backward(operands.state, at, totals[0], totals[1], count);
    } else {
      operands.state.bias_gradient[at] = totals[0];
    }
    if constexpr (dual) {
      finish_backward(operands.residual_state, at, totals[0], totals[last], count);
    }
  });
}

template <class T>
struct AffineInput {  // a * dz + b * x + c for the channels of a pack
  Channels<T> a, b, c;

  __device__ AffineInput(const BatchNormState& state, int channel)
      : a(Channels<T>::load(state.a + channel)),
        b(Channels<T>::load(state.b + channel)),
        c(Channels<T>::load(state.c + channel)) {}
  __device__ Pack<T> values(const Channels<T>& dz, const Channels<T>& x) const {
    Channels<T> result;
#pragma unroll
    for (int i = 0; i < pack_width<T>; ++i) {
      result.values[i] =
          fmaf(a.values[i], dz.values[i], fmaf(b.values[i], x.values[i], c.values[i]));
    }
    return from_floats<T>(result);
  }
};

template <class T, ReluMask relu, Incoming incoming, bool dual>
__global__ void __launch_bounds__(sweep_threads, 2)
    backward_apply_kernel(NormBackwardOperands operands, Extent extent, SweepShape shape) {
  constexpr int width = pack_width<T>;
  const SweepPosition position(shape, extent, width);
  if (!position.active) return;
  const auto* x = static_cast<const T*>(operands.x);
  const auto* residual_x = static_cast<const T*>(operands.residual_x);
  const Gradient<T, relu, incoming> gradient(operands, position.channel, extent.channels);
  const AffineInput<T> affine(operands.state, position.channel);
  const AffineInput<T> residual_affine(dual ? operands.residual_state : operands.state,
                                       position.channel);
  sweep_backwards<apply_unroll>(position, extent, [&](const int64_t(&at)[apply_unroll], int count) {
    typename Gradient<T, relu, incoming>::Loaded loaded[apply_unroll];
    Pack<T> packs[apply_unroll], residual_packs[apply_unroll];
#pragma unroll
    for (int u = 0; u < apply_unroll; ++u) {
      if (u >= count) break;
      loaded[u] = gradient.load(at[u]);
      packs[u] = load_pack(x + at[u]);
      if constexpr (dual) residual_packs[u] = load_pack(residual_x + at[u]);
    }
#pragma unroll
    for (int u = 0; u < apply_unroll; ++u) {
      if (u >= count) break;
      const Channels<T> at_x = to_floats(packs[u]);
      const Channels<T> dz = gradient.values(loaded[u], at_x);
      store_pack(static_cast<T*>(operands.dx) + at[u], affine.values(dz, at_x));
      if constexpr (dual) {
        store_pack(static_cast<T*>(operands.residual_dx) + at[u],
                   residual_affine.values(dz, to_floats(residual_packs[u])));
      }
    }
  });
}

template <class T, ReluMask relu, Incoming incoming, Residual residual, bool centred = true>
void launch_sums(const NormBackwardOperands& operands, Extent extent,
                 const ReductionScratch& scratch, cudaStream_t stream) {
  const dim3 grid = reduction_grid(extent, slice_rows<T> * sums_unroll<T, incoming, residual>,
                                   scratch.multiprocessors, sums_blocks);
  enqueue({grid, reduction_threads, stream},
          backward_sums_kernel<T, relu, incoming, residual, centred>, operands, extent,
          Count(operands.count), PixelPlaces(operands.image), scratch);
}

// Behind an addition, whose ReLU has left its mask.
template <class T, bool centred>
void launch_residual_sums(const NormBackwardOperands& operands, Extent extent,
                          const ReductionScratch& scratch, cudaStream_t stream) {
  const auto launch = [&]<Incoming incoming>() {
    if constexpr (incoming == Incoming::one || incoming == Incoming::two) {
      if (operands.residual_x != nullptr) {
        return launch_sums<T, ReluMask::stored, incoming, Residual::normalised, centred>(
            operands, extent, scratch, stream);
      }
    }
    launch_sums<T, ReluMask::stored, incoming, Residual::tensor, centred>(operands, extent, scratch,
                                                                          stream);
  };
  switch (operands.incoming) {
    case Incoming::one:
      return launch.template operator()<Incoming::one>();
    case Incoming::two:
      return launch.template operator()<Incoming::two>();
    case Incoming::two_second_at_even_pixels:
      return launch.template operator()<Incoming::two_second_at_even_pixels>();
    case Incoming::of_mean:
      if constexpr (centred) return launch.template operator()<Incoming::of_mean>();
  }
  no_kernel("sums of dz alone where its consumer is a mean");
}

// By second moments x is not read.
template <class T>
void launch_residual_sums(const NormBackwardOperands& operands, Extent extent,
                          const ReductionScratch& scratch, cudaStream_t stream) {
  if (operands.x != nullptr)
    return launch_residual_sums<T, true>(operands, extent, scratch, stream);
  if constexpr (sizeof(T) == 2) {
    launch_residual_sums<T, false>(operands, extent, scratch, stream);
  } else {
    no_kernel("second moments are for types of 16 bits");
  }
}

template <class T, Incoming incoming>
void launch_plain_sums(const NormBackwardOperands& operands, Extent extent,
                       const ReductionScratch& scratch, cudaStream_t stream) {
  if (!operands.relu) {
    return launch_sums<T, ReluMask::none, Incoming::one, Residual::none>(operands, extent, scratch,
                                                                         stream);
  }
  const auto launch = operands.dz == nullptr
                          ? launch_sums<T, ReluMask::recomputed, incoming, Residual::none>
                          : launch_sums<T, ReluMask::recomputed, incoming, Residual::tensor>;
  launch(operands, extent, scratch, stream);
}

}  // namespace

void launch_norm_backward_sums(Precision precision, const NormBackwardOperands& operands,
                               Extent extent, const ReductionScratch& scratch,
                               cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    const auto launch = operands.mask != nullptr             ? launch_residual_sums<T>
                        : operands.incoming == Incoming::two ? launch_plain_sums<T, Incoming::two>
                                                             : launch_plain_sums<T, Incoming::one>;
    launch(operands, extent, scratch, stream);
  });
}

void launch_norm_backward_apply(Precision precision, const NormBackwardOperands& operands,
                                Extent extent, int multiprocessors, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    const SweepShape shape(extent, pack_width<T>, apply_unroll, multiprocessors);
    const auto launch = [&](auto kernel, const NormBackwardOperands& used) {
      enqueue({shape.grid(), sweep_threads, stream}, kernel, used, extent, shape);
    };
    if (operands.dz != nullptr) {  // the sums have left dz: nothing more to add or to mask
      NormBackwardOperands used = operands;
      used.dy = operands.dz;
      return operands.residual_x != nullptr
                 ? launch(backward_apply_kernel<T, ReluMask::none, Incoming::one, true>, used)
                 : launch(backward_apply_kernel<T, ReluMask::none, Incoming::one, false>, used);
    }
    if (!operands.relu) {
      return launch(backward_apply_kernel<T, ReluMask::none, Incoming::one, false>, operands);
    }
    operands.incoming == Incoming::two
        ? launch(backward_apply_kernel<T, ReluMask::recomputed, Incoming::two, false>, operands)
        : launch(backward_apply_kernel<T, ReluMask::recomputed, Incoming::one, false>, operands);
  });
}

}  // namespace nearmetal::cuda
