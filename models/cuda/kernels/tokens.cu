#include "models/cuda/device/call.h"
#include "models/cuda/kernels/pack.h"
#include "models/cuda/kernels/tokens.h"
#include "models/cuda/kernels/warp.h"

namespace nearmetal::cuda {
namespace {

constexpr int sample_sums_threads = 256;
constexpr int sample_sums_packs = 32;  // of a block: one for each lane of its warps

// sums[i] over samples of values[sample][i], for the first `elements` of each of so many
// `sample_elements`; `exact`, if not null, gets them before they are rounded. The warps of a block
// take every eighth sample.
template <class T, class Sum>
__global__ void __launch_bounds__(sample_sums_threads)
    sum_over_samples_kernel(int64_t samples, int64_t sample_elements, const T* values,
                            int64_t elements, Sum* sums, float* exact) {
  constexpr int width = pack_width<T>, warps = sample_sums_threads / sample_sums_packs;
  __shared__ Channels<T> shared[warps][sample_sums_packs];
  const int lane = static_cast<int>(threadIdx.x) % sample_sums_packs;
  const int warp = static_cast<int>(threadIdx.x) / sample_sums_packs;
  const int64_t at = (int64_t{blockIdx.x} * sample_sums_packs + lane) * width;
  Channels<T> sum = {};
  if (at < elements) {
#pragma unroll 4
    for (int64_t sample = warp; sample < samples; sample += warps) {
      const Channels<T> add = to_floats(load_pack(values + sample * sample_elements + at));
#pragma unroll
      for (int i = 0; i < width; ++i) sum.values[i] += add.values[i];
    }
  }
  shared[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || at >= elements) return;
  for (int w = 1; w < warps; ++w) {
#pragma unroll
    for (int i = 0; i < width; ++i) sum.values[i] += shared[w][lane].values[i];
  }
#pragma unroll
  for (int i = 0; i < width; ++i) {
    sums[at + i] = from_float<Sum>(sum.values[i]);
    if (exact != nullptr) exact[at + i] = sum.values[i];
  }
}

template <class T, class Sum>
void sum_over_samples(int64_t samples, int64_t sample_elements, const void* values,
                      int64_t elements, void* sums, float* exact, cudaStream_t stream) {
  const unsigned blocks = blocks_for(elements / pack_width<T>, sample_sums_packs);
  enqueue({blocks, sample_sums_threads, stream}, sum_over_samples_kernel<T, Sum>, samples,
          sample_elements, values, elements, sums, exact);
}

template <class T>
__device__ Pack<T> rounded(const float* values) {
  return from_floats<T>(Channels<T>::load(values));
}

// Where a pack of a tensor lies; `extent` is that of the tensor.
struct PackPlace {
  int64_t sample, element;  // the latter within the sample
  bool exists;

  __device__ PackPlace(const TokenExtent& extent, int width) {
    const int64_t at = (int64_t{blockIdx.x} * piece_threads + threadIdx.x) * width;
    exists = at < extent.elements();
    sample = at / extent.sample_elements();
    element = at % extent.sample_elements();
  }
};

template <class T>
__global__ void prepend_token_kernel(TokenExtent x_extent, TokenExtent extent, const T* x,
                                     const float* token, T* y) {
  const PackPlace place(extent, pack_width<T>);
  if (!place.exists) return;
  T* out = y + place.sample * extent.sample_elements() + place.element;
  const int64_t element = place.element - extent.features;
  store_pack(out, element < 0 ? rounded<T>(token + place.element)
                              : load_pack(x + place.sample * x_extent.sample_elements() + element));
}

template <class T>
__global__ void drop_token_kernel(TokenExtent extent, TokenExtent dy_extent, const T* dy, T* dx) {
  const PackPlace place(extent, pack_width<T>);
  if (!place.exists) return;
  const int64_t from = place.sample * dy_extent.sample_elements() + extent.features + place.element;
  store_pack(dx + place.sample * extent.sample_elements() + place.element, load_pack(dy + from));
}

template <class T>
__global__ void add_positions_kernel(TokenExtent extent, const T* x, const float* positions, T* y) {
  const PackPlace place(extent, pack_width<T>);
  if (!place.exists) return;
  const int64_t at = place.sample * extent.sample_elements() + place.element;
  Channels<T> sum = to_floats(load_pack(x + at));
  const auto position = Channels<T>::load(positions + place.element);
#pragma unroll
  for (int i = 0; i < pack_width<T>; ++i) sum.values[i] += position.values[i];
  store_pack(y + at, from_floats<T>(sum));
}

template <class T>
__global__ void first_token_kernel(TokenExtent extent, const T* x, T* y) {
  const TokenExtent first{extent.batch, 1, extent.features};
  const PackPlace place(first, pack_width<T>);
  if (!place.exists) return;
  store_pack(y + place.sample * extent.features + place.element,
             load_pack(x + place.sample * extent.sample_elements() + place.element));
}

template <class T>
__global__ void first_token_backward_kernel(TokenExtent extent, const T* dy, T* dx) {
  const PackPlace place(extent, pack_width<T>);
  if (!place.exists) return;
  Pack<T> pack = from_floats<T>(Channels<T>{});
  if (place.element < extent.features) {
    pack = load_pack(dy + place.sample * extent.features + place.element);
  }
  store_pack(dx + place.sample * extent.sample_elements() + place.element, pack);
}

// With a thread for each pack of a tensor.
template <class T, class... Parameters, class... Arguments>
void launch_packs(const TokenExtent& extent, cudaStream_t stream, void (*kernel)(Parameters...),
                  const Arguments&... arguments) {
  enqueue(each_piece(extent.elements() / pack_width<T>, stream), kernel, arguments...);
}

TokenExtent with_one_more(TokenExtent extent) {
  ++extent.tokens;
  return extent;
}

constexpr int sort_threads = sorted_tokens / 4;
static_assert(sorted_tokens == 1 << sorted_token_bits);

template <class T>
__global__ void embedding_kernel(TokenExtent extent, const int32_t* ids, EmbeddingValues tables,
                                 T* y) {
  const int64_t at = (int64_t{blockIdx.x} * piece_threads + threadIdx.x) * pack_width<T>;
  if (at >= extent.elements()) return;
  const int64_t token = at / extent.features, feature = at % extent.features;
  Channels<T> sum = Channels<T>::load(tables.words + ids[token] * extent.features + feature);
  const auto position =
      Channels<T>::load(tables.positions + token % extent.tokens * extent.features + feature);
  const auto type = Channels<T>::load(tables.types + feature);
#pragma unroll
  for (int i = 0; i < pack_width<T>; ++i) {
    sum.values[i] = sum.values[i] + position.values[i] + type.values[i];
  }
  store_pack(y + at, from_floats<T>(sum));
}

// Behind all words: where the last part is not full.
constexpr uint32_t no_token = 0xffffffff;

// A block sorts its part by word, then by place (Batcher's bitonic sort).
__global__ void __launch_bounds__(sort_threads)
    sort_tokens_kernel(int64_t tokens, const int32_t* ids, uint32_t* sorted) {
  __shared__ uint32_t keys[sorted_tokens];
  const int64_t first = int64_t{blockIdx.x} * sorted_tokens;
  for (int i = static_cast<int>(threadIdx.x); i < sorted_tokens; i += sort_threads) {
    keys[i] = first + i < tokens ? static_cast<uint32_t>(ids[first + i]) << sorted_token_bits | i
                                 : no_token;
  }
  for (int size = 2; size <= sorted_tokens; size *= 2) {
    for (int distance = size / 2; distance > 0; distance /= 2) {
      __syncthreads();
      for (int pair = static_cast<int>(threadIdx.x); pair < sorted_tokens / 2;
           pair += sort_threads) {
        const int low = 2 * pair - pair % distance, high = low + distance;
        const bool rises = (low & size) == 0;
        const uint32_t a = keys[low], b = keys[high];
        if ((a > b) == rises) {
          keys[low] = b;
          keys[high] = a;
        }
      }
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < sorted_tokens; i += sort_threads) {
    sorted[first + i] = keys[i];
  }
}

// The first key of a part that is not below `key`.
__device__ int lower_bound(const uint32_t* part, uint32_t key) {
  int first = 0;
#pragma unroll
  for (int step = sorted_tokens / 2; step > 0; step /= 2) {
    if (part[first + step - 1] < key) first += step;
  }
  return first + (part[first] < key ? 1 : 0);
}

// A warp has a word: its lanes look for it in as many parts at once, then add its tokens, whose
// features they share.
template <class T>
__global__ void __launch_bounds__(piece_threads)
    words_gradient_kernel(TokenExtent extent, int parts, int64_t words, const uint32_t* sorted,
                          const T* dy, T* gradient) {
  constexpr int width = pack_width<T>;
  const int lane = static_cast<int>(threadIdx.x) % warp_lanes;
  const int64_t word = (int64_t{blockIdx.x} * piece_threads + threadIdx.x) / warp_lanes;
  if (word >= words) return;
  const auto key = static_cast<uint32_t>(word) << sorted_token_bits;
  for (int64_t base = 0; base < extent.features; base += warp_lanes * width) {
    const int64_t feature = base + lane * width;
    Channels<T> sum = {};
    for (int group = 0; group < parts; group += warp_lanes) {
      int begin = 0, count = 0;
      if (group + lane < parts) {
        const uint32_t* const part = sorted + int64_t{group + lane} * sorted_tokens;
        begin = lower_bound(part, key);
        while (begin + count < sorted_tokens && part[begin + count] >> sorted_token_bits == word) {
          ++count;
        }
      }
      for (unsigned left = __ballot_sync(0xffffffff, count > 0); left != 0; left &= left - 1) {
        const int of = __ffs(static_cast<int>(left)) - 1;
        const int first = __shfl_sync(0xffffffff, begin, of);
        const int tokens = __shfl_sync(0xffffffff, count, of);
        const int64_t part = int64_t{group + of} * sorted_tokens;
        if (feature >= extent.features) continue;
#pragma unroll 4
        for (int t = first; t < first + tokens; ++t) {
          const int64_t token = part + sorted[part + t] % sorted_tokens;
          const Channels<T> add = to_floats(load_pack(dy + token * extent.features + feature));
#pragma unroll
          for (int i = 0; i < width; ++i) sum.values[i] += add.values[i];
        }
      }
    }
    if (feature < extent.features) {
      store_pack(gradient + word * extent.features + feature, from_floats<T>(sum));
    }
  }
}

// Rows from `first` on, which no token reads.
template <class T>
void clear_rows(void* table, int64_t first, int64_t rows, int64_t features, cudaStream_t stream) {
  if (first == rows) return;
  NM_CALL(cudaMemsetAsync(static_cast<T*>(table) + first * features, 0,
                          (rows - first) * features * sizeof(T), stream));
}

}  // namespace

void launch_prepend_token(Precision precision, const TokenExtent& extent, const void* x,
                          const float* token, void* y, cudaStream_t stream) {
  const TokenExtent longer = with_one_more(extent);
  with_element_type(precision, [&]<class T>() {
    launch_packs<T>(longer, stream, prepend_token_kernel<T>, extent, longer, x, token, y);
  });
}

void launch_prepend_token_backward(Precision precision, const TokenExtent& extent, const void* dy,
                                   void* dx, void* token_gradient, cudaStream_t stream) {
  const TokenExtent longer = with_one_more(extent);
  with_element_type(precision, [&]<class T>() {
    launch_packs<T>(extent, stream, drop_token_kernel<T>, extent, longer, dy, dx);
    sum_over_samples<T, T>(extent.batch, longer.sample_elements(), dy, extent.features,
                           token_gradient, nullptr, stream);
  });
}

void launch_add_positions(Precision precision, const TokenExtent& extent, const void* x,
                          const float* positions, void* y, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    launch_packs<T>(extent, stream, add_positions_kernel<T>, extent, x, positions, y);
  });
}

void launch_positions_gradient(Precision precision, const TokenExtent& extent, const void* dy,
                               void* gradient, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    sum_over_samples<T, T>(extent.batch, extent.sample_elements(), dy, extent.sample_elements(),
                           gradient, nullptr, stream);
  });
}

void launch_first_token(Precision precision, const TokenExtent& extent, const void* x, void* y,
                        cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    launch_packs<T>({extent.batch, 1, extent.features}, stream, first_token_kernel<T>, extent, x,
                    y);
  });
}

void launch_first_token_backward(Precision precision, const TokenExtent& extent, const void* dy,
                                 void* dx, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    launch_packs<T>(extent, stream, first_token_backward_kernel<T>, extent, dy, dx);
  });
}

void launch_embedding(Precision precision, const TokenExtent& extent, const int32_t* ids,
                      const EmbeddingValues& tables, void* y, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    launch_packs<T>(extent, stream, embedding_kernel<T>, extent, ids, tables, y);
  });
}

void launch_words_gradient(Precision precision, const TokenExtent& extent, const int32_t* ids,
                           int64_t words, const void* dy, uint32_t* sorted, void* gradient,
                           cudaStream_t stream) {
  const auto parts = static_cast<int>(sorted_parts(extent));
  enqueue({dim3(parts), sort_threads, stream}, sort_tokens_kernel, extent.batch * extent.tokens,
          ids, sorted);
  with_element_type(precision, [&]<class T>() {
    enqueue(each_piece(words * warp_lanes, stream), words_gradient_kernel<T>, extent, parts, words,
            sorted, dy, gradient);
  });
}

void launch_places_gradient(Precision precision, const TokenExtent& extent, int64_t positions,
                            const void* dy, float* exact, void* gradient, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    sum_over_samples<T, T>(extent.batch, extent.sample_elements(), dy, extent.sample_elements(),
                           gradient, exact, stream);
    clear_rows<T>(gradient, extent.tokens, positions, extent.features, stream);
  });
}

void launch_types_gradient(Precision precision, const TokenExtent& extent, int64_t types,
                           const float* exact, void* gradient, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    sum_over_samples<float, T>(extent.tokens, extent.features, exact, extent.features, gradient,
                               nullptr, stream);
    clear_rows<T>(gradient, 1, types, extent.features, stream);
  });
}

}  // namespace nearmetal::cuda
