#include "comm/nccl_all_reduce.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

namespace nearmetal {
namespace {

#define NM_CALL(expression) ::nearmetal::require_ok((expression), #expression)

ncclDataType_t nccl_type(Precision type) {
  switch (type) {
    case Precision::fp16:
      return ncclFloat16;
    case Precision::bf16:
      return ncclBfloat16;
    default:
      return ncclFloat32;
  }
}

// A whole number below 256, exact in every type, as the bytes of an element of this type.
std::array<char, 4> element(Precision type, int value) {
  std::array<char, 4> bytes{};
  const auto put = [&](auto converted) {
    std::memcpy(bytes.data(), &converted, sizeof(converted));
  };
  const auto single = static_cast<float>(value);
  if (type == Precision::fp16) {
    put(__float2half_rn(single));
  } else if (type == Precision::bf16) {
    put(__float2bfloat16_rn(single));
  } else {
    put(single);
  }
  return bytes;
}

// Elements value(0), value(1), ... with the period of the values.
template <class Value>
std::string elements(const GradientBucket& bucket, int period, Value value) {
  const int64_t size = element_bytes(bucket.type);
  std::string text(bucket.bytes(), '\0');
  for (int64_t i = 0; i < bucket.elements; ++i) {
    const auto bytes = element(bucket.type, value(static_cast<int>(i % period)));
    std::memcpy(text.data() + i * size, bytes.data(), size);
  }
  return text;
}

}  // namespace

void require_ok(ncclResult_t status, const char* call) {
  if (status == ncclSuccess) return;
  throw std::runtime_error(std::string("NCCL: ") + ncclGetErrorString(status) + " (" +
                           ncclGetLastError(nullptr) + ") in " + call);
}

void require_ok(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(status) + " in " + call);
}

std::string nccl_version() {
  int version = 0;
  NM_CALL(ncclGetVersion(&version));
  return "nccl " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
         "." + std::to_string(version % 100);
}

NcclAllReduce::NcclAllReduce(const std::string& group, int rank, int ranks, int gpu)
    : rank_(rank), ranks_(ranks) {
  NM_CALL(cudaSetDevice(gpu));
  int lowest = 0, highest = 0;
  NM_CALL(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  cudaStream_t stream = nullptr;
  NM_CALL(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest));
  stream_.reset(stream);
  begin_ = make_event();
  end_ = make_event();
  ncclUniqueId id{};
  if (group.size() != sizeof(id)) throw std::invalid_argument("this names no group of NCCL");
  std::memcpy(&id, group.data(), sizeof(id));
  NM_CALL(ncclCommInitRank(&communicator_, ranks, id, rank));
}

// Without waiting for other ranks, which may have failed.
NcclAllReduce::~NcclAllReduce() {
  if (communicator_ != nullptr) ncclCommAbort(communicator_);
}

NcclAllReduce::Event NcclAllReduce::make_event() {
  cudaEvent_t event = nullptr;
  NM_CALL(cudaEventCreate(&event));
  return Event(event);
}

// The update divides by the ranks: an average inside NCCL rules out some of its algorithms.
void NcclAllReduce::sum(const GradientBucket& bucket) {
  NM_CALL(ncclAllReduce(bucket.data, bucket.data, bucket.elements, nccl_type(bucket.type), ncclSum,
                        communicator_, stream_.get()));
}

void NcclAllReduce::start(int first, int count, void* stream) {
  NM_CALL(cudaEventRecord(begin_.get(), static_cast<cudaStream_t>(stream)));
  NM_CALL(cudaStreamWaitEvent(stream_.get(), begin_.get()));
  NM_CALL(ncclGroupStart());
  for (int bucket = first; bucket < first + count; ++bucket) sum(buckets_[bucket]);
  NM_CALL(ncclGroupEnd());
}

void NcclAllReduce::finish(void* stream) {
  NM_CALL(cudaEventRecord(end_.get(), stream_.get()));
  NM_CALL(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), end_.get()));
}

std::vector<BucketTest> NcclAllReduce::test(int repeats) {
  std::vector<BucketTest> tests;
  for (const GradientBucket& bucket : buckets_) tests.push_back(test(bucket, repeats));
  return tests;
}

// Whole numbers whose sums are below 256 for up to 128 ranks; those beyond give zeros.
BucketTest NcclAllReduce::test(const GradientBucket& bucket, int repeats) {
  const int givers = std::min(ranks_, 128);
  const int period = 256 / givers;
  const auto given = [&](int rank, int i) { return rank < givers ? (i + rank) % period : 0; };
  const std::string mine = elements(bucket, period, [&](int i) { return given(rank_, i); });
  const std::string wanted = elements(bucket, period, [&](int i) {
    int sum = 0;
    for (int rank = 0; rank < givers; ++rank) sum += given(rank, i);
    return sum;
  });
  std::string found(mine.size(), '\0');
  NM_CALL(cudaMemcpyAsync(bucket.data, mine.data(), mine.size(), cudaMemcpyHostToDevice,
                          stream_.get()));
  sum(bucket);
  NM_CALL(cudaMemcpyAsync(found.data(), bucket.data, found.size(), cudaMemcpyDeviceToHost,
                          stream_.get()));
  NM_CALL(cudaMemsetAsync(bucket.data, 0, bucket.bytes(), stream_.get()));
  std::vector<double> seconds;
  // The first brings all ranks to the same point.
  for (int run = 0; run <= repeats; ++run) {
    NM_CALL(cudaEventRecord(begin_.get(), stream_.get()));
    sum(bucket);
    NM_CALL(cudaEventRecord(end_.get(), stream_.get()));
    NM_CALL(cudaEventSynchronize(end_.get()));
    float milliseconds = 0;
    NM_CALL(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()));
    if (run > 0) seconds.push_back(milliseconds * 1e-3);
  }
  std::nth_element(seconds.begin(), seconds.begin() + repeats / 2, seconds.end());
  return {.bytes = bucket.bytes(), .seconds = seconds[repeats / 2], .exact = found == wanted};
}

}  // namespace nearmetal
