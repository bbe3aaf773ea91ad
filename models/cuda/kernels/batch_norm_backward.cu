
#include "models/cuda/device/check.h"
#include "models/cuda/kernels/batch_norm.h"
#include "models/cuda/kernels/channel_reduction.h"

namespace nearmetal::cuda {
namespace {

constexpr int apply_unroll = 2;
constexpr int sums_blocks = 1;  // at once on a multiprocessor

enum class ReluMask { none, recomputed, stored };

// dz = mask * (dy + dy_second) of one pack.
template <class T, ReluMask relu, bool two>
struct Gradient {
  const T* dy;
  const T* dy_second;
  const uint8_t* mask;
  Channels<T> multiplier, shift;  // for ReluMask::recomputed

  __device__ Gradient(const NormBackwardOperands& operands, int channel)
      : dy(static_cast<const T*>(operands.dy)),
        dy_second(static_cast<const T*>(operands.dy_second)),
        mask(operands.mask) {
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
    Loaded loaded;
    loaded.dy = load_pack(dy + at);
    if constexpr (two) loaded.dy_second = load_pack(dy_second + at);
    if constexpr (relu == ReluMask::stored) loaded.bits = mask[at / pack_width<T>];
    return loaded;
  }
  __device__ Channels<T> values(const Loaded& loaded, const Channels<T>& x) const {
    Channels<T> dz = to_floats(loaded.dy);
    if constexpr (two) {
      const Channels<T> second = to_floats(loaded.dy_second);
#pragma unroll
      for (int i = 0; i < pack_width<T>; ++i) dz.values[i] += second.values[i];
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

// What becomes of dz besides the batch norm's own gradients.
enum class Residual { none, tensor, normalised, normalised_tensor };

// Enough loads in flight to hide the latency of memory, few enough to keep them in registers, of
// which bf16 takes more to be unpacked.
template <class T, bool two, Residual residual>
inline constexpr int sums_unroll =
    !std::is_same_v<T, __nv_bfloat16> && !two &&
            (residual == Residual::none || residual == Residual::tensor)
        ? 4
        : 2;

template <class T, ReluMask relu, bool two, Residual residual>
__global__ void __launch_bounds__(reduction_threads, sums_blocks)
    backward_sums_kernel(NormBackwardOperands operands, Extent extent, Count count,
                         ReductionScratch scratch) {
  constexpr int width = pack_width<T>;
  constexpr int unroll = sums_unroll<T, two, residual>;
  constexpr int tile_rows = slice_rows<T> * unroll;
  constexpr bool stores_dz =
      residual == Residual::tensor || residual == Residual::normalised_tensor;
  constexpr bool dual = residual == Residual::normalised || residual == Residual::normalised_tensor;
  constexpr int sum_count = dual ? 3 : 2;
  const auto* x = static_cast<const T*>(operands.x);
  const auto* residual_x = static_cast<const T*>(operands.residual_x);
  const int channel = blockIdx.x * slice_channels + threadIdx.x % slice_lanes<T> * width;
  float sums[sum_count][width] = {};
  if (channel < extent.channels) {
    const Gradient<T, relu, two> gradient(operands, channel);
    const auto mean = Channels<T>::load(operands.state.mean + channel);
    Channels<T> residual_mean;
    if constexpr (dual) {
      residual_mean = Channels<T>::load(operands.residual_state.mean + channel);
    }
    for (int64_t tile = blockIdx.y; tile * tile_rows < extent.rows; tile += gridDim.y) {
      const int64_t first = tile * tile_rows + threadIdx.x / slice_lanes<T>;
      typename Gradient<T, relu, two>::Loaded loaded[unroll];
      Pack<T> packs[unroll], residual_packs[unroll];
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        const int64_t row = first + u * slice_rows<T>;
        if (row >= extent.rows) break;
        const int64_t at = row * extent.channels + channel;
        loaded[u] = gradient.load(at);
        packs[u] = load_pack(x + at);
        if constexpr (dual) {
          residual_packs[u] = load_pack(residual_x + at);
        }
      }
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        const int64_t row = first + u * slice_rows<T>;
        if (row >= extent.rows) break;
        const Channels<T> at_x = to_floats(packs[u]);
        const Channels<T> dz = gradient.values(loaded[u], at_x);
        Channels<T> at_residual;
        if constexpr (dual) at_residual = to_floats(residual_packs[u]);
#pragma unroll
        for (int i = 0; i < width; ++i) {
          const float value = dz.values[i];
          sums[0][i] += value;
          sums[1][i] = fmaf(value, at_x.values[i] - mean.values[i], sums[1][i]);
          if constexpr (dual) {
            sums[2][i] = fmaf(value, at_residual.values[i] - residual_mean.values[i], sums[2][i]);
          }
        }
        if constexpr (stores_dz) {
          store_pack(static_cast<T*>(operands.dz) + row * extent.channels + channel,
                     from_floats<T>(dz));
        }
      }
    }
  }
  reduce_channels<T>(sums, extent.channels, scratch, [&](int at, const float(&totals)[sum_count]) {
    finish_backward(operands.state, at, totals[0], totals[1], count);
    if constexpr (dual) {
      finish_backward(operands.residual_state, at, totals[0], totals[2], count);
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

template <class T, ReluMask relu, bool two, bool dual>
__global__ void __launch_bounds__(sweep_threads, 2)
    backward_apply_kernel(NormBackwardOperands operands, Extent extent, SweepShape shape) {
  constexpr int width = pack_width<T>;
  const SweepPosition position(shape, extent, width);
  if (!position.active) return;
  const auto* x = static_cast<const T*>(operands.x);
  const auto* residual_x = static_cast<const T*>(operands.residual_x);
  const Gradient<T, relu, two> gradient(operands, position.channel);
  const AffineInput<T> affine(operands.state, position.channel);
  const AffineInput<T> residual_affine(dual ? operands.residual_state : operands.state,
                                       position.channel);
  sweep_backwards<apply_unroll>(position, extent, [&](const int64_t(&at)[apply_unroll], int count) {
    typename Gradient<T, relu, two>::Loaded loaded[apply_unroll];
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

// body<two>(), whether the output has two consumers.
template <class Body>
void with_consumers(const NormBackwardOperands& operands, Body&& body) {
  operands.dy_second != nullptr ? body(std::true_type()) : body(std::false_type());
}

}  // namespace

void launch_norm_backward_sums(Precision precision, const NormBackwardOperands& operands,
                               Extent extent, const ReductionScratch& scratch,
                               cudaStream_t stream) {
  const bool stores_dz = operands.dz != nullptr;
  with_element_type(precision, [&]<class T>() {
    with_consumers(operands, [&](auto two) {
      const auto launch = [&]<ReluMask relu, Residual residual>() {
        const dim3 grid = reduction_grid(extent, slice_rows<T> * sums_unroll<T, two, residual>,
                                         scratch.multiprocessors, sums_blocks);
        backward_sums_kernel<T, relu, two, residual><<<grid, reduction_threads, 0, stream>>>(
            operands, extent, Count(operands.count), scratch);
      };
      if (operands.residual_x != nullptr) {
        stores_dz ? launch.template operator()<ReluMask::stored, Residual::normalised_tensor>()
                  : launch.template operator()<ReluMask::stored, Residual::normalised>();
      } else if (operands.mask != nullptr) {
        launch.template operator()<ReluMask::stored, Residual::tensor>();
      } else {
        stores_dz ? launch.template operator()<ReluMask::recomputed, Residual::tensor>()
                  : launch.template operator()<ReluMask::recomputed, Residual::none>();
      }
    });
  });
  NM_CHECK_LAUNCH();
}

void launch_norm_backward_apply(Precision precision, const NormBackwardOperands& operands,
                                Extent extent, int multiprocessors, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    const SweepShape shape(extent, pack_width<T>, apply_unroll, multiprocessors);
    const auto launch = [&](auto kernel, const NormBackwardOperands& used) {
      kernel<<<shape.grid(), sweep_threads, 0, stream>>>(used, extent, shape);
    };
    if (operands.dz != nullptr) {  // the sums have left dz: nothing more to add or to mask
      NormBackwardOperands used = operands;
      used.dy = operands.dz;
      return launch(backward_apply_kernel<T, ReluMask::none, false, false>, used);
    }
    with_consumers(operands, [&](auto two) {
      operands.residual_x != nullptr
          ? launch(backward_apply_kernel<T, ReluMask::stored, two, true>, operands)
          : launch(backward_apply_kernel<T, ReluMask::recomputed, two, false>, operands);
    });
  });
  NM_CHECK_LAUNCH();
}

}  // namespace nearmetal::cuda
