#include "models/cuda/device/call.h"
#include "models/cuda/kernels/embedding.h"
#include "models/cuda/kernels/pack.h"
#include "models/cuda/kernels/sample_sums.h"
#include "models/cuda/kernels/warp.h"

namespace nearmetal::cuda {
namespace {

constexpr int embedding_threads = 256;
constexpr int sort_threads = sorted_tokens / 4;
static_assert(sorted_tokens == 1 << sorted_token_bits);

template <class T>
__global__ void embedding_kernel(TokenExtent extent, const int32_t* ids, EmbeddingValues tables,
                                 T* y) {
  const int64_t at = (int64_t{blockIdx.x} * embedding_threads + threadIdx.x) * pack_width<T>;
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
__global__ void __launch_bounds__(embedding_threads)
    words_gradient_kernel(TokenExtent extent, int parts, int64_t words, const uint32_t* sorted,
                          const T* dy, T* gradient) {
  constexpr int width = pack_width<T>;
  const int lane = static_cast<int>(threadIdx.x) % warp_lanes;
  const int64_t word = (int64_t{blockIdx.x} * embedding_threads + threadIdx.x) / warp_lanes;
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
void clear_rows(T* table, int64_t first, int64_t rows, int64_t features, cudaStream_t stream) {
  if (first == rows) return;
  NM_CALL(
      cudaMemsetAsync(table + first * features, 0, (rows - first) * features * sizeof(T), stream));
}

}  // namespace

void launch_embedding(Precision precision, const TokenExtent& extent, const int32_t* ids,
                      const EmbeddingValues& tables, void* y, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    embedding_kernel<T><<<blocks_for(extent.elements() / pack_width<T>, embedding_threads),
                          embedding_threads, 0, stream>>>(extent, ids, tables, static_cast<T*>(y));
  });
  NM_CHECK_LAUNCH();
}

void launch_words_gradient(Precision precision, const TokenExtent& extent, const int32_t* ids,
                           int64_t words, const void* dy, uint32_t* sorted, void* gradient,
                           cudaStream_t stream) {
  const auto parts = static_cast<int>(sorted_parts(extent));
  sort_tokens_kernel<<<parts, sort_threads, 0, stream>>>(extent.batch * extent.tokens, ids, sorted);
  NM_CHECK_LAUNCH();
  with_element_type(precision, [&]<class T>() {
    words_gradient_kernel<T>
        <<<blocks_for(words * warp_lanes, embedding_threads), embedding_threads, 0, stream>>>(
            extent, parts, words, sorted, static_cast<const T*>(dy), static_cast<T*>(gradient));
  });
  NM_CHECK_LAUNCH();
}

void launch_places_gradient(Precision precision, const TokenExtent& extent, int64_t positions,
                            const void* dy, float* exact, void* gradient, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    T* table = static_cast<T*>(gradient);
    sum_over_samples(extent.batch, extent.sample_elements(), static_cast<const T*>(dy),
                     extent.sample_elements(), table, exact, stream);
    clear_rows(table, extent.tokens, positions, extent.features, stream);
  });
}

void launch_types_gradient(Precision precision, const TokenExtent& extent, int64_t types,
                           const float* exact, void* gradient, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    T* table = static_cast<T*>(gradient);
    sum_over_samples(extent.tokens, extent.features, exact, extent.features, table, nullptr,
                     stream);
    clear_rows(table, 1, types, extent.features, stream);
  });
}

}  // namespace nearmetal::cuda
