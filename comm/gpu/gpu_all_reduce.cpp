#include "comm/gpu/gpu_all_reduce.h"

#include <string>

#include "comm/known_values.h"

namespace nearmetal {

GpuAllReduce::GpuAllReduce(const JoinRequest& request)
    : rank_(request.world.rank()), ranks_(request.world.size()) {
  NM_CALL(cudaSetDevice(request.gpu));
  stream_ = cuda::make_urgent_stream();
  begin_ = cuda::make_event();
  end_ = cuda::make_event();
}

void GpuAllReduce::start(int first, int count, void* stream) {
  NM_CALL(cudaEventRecord(begin_.get(), static_cast<cudaStream_t>(stream)));
  NM_CALL(cudaStreamWaitEvent(stream_.get(), begin_.get()));
  sum(first, count);
}

void GpuAllReduce::finish(void* stream) {
  NM_CALL(cudaEventRecord(end_.get(), stream_.get()));
  NM_CALL(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), end_.get()));
}

// The values of a rank change from sum to sum, so that what is left of the one before is seen.
bool GpuAllReduce::sums_exactly(int number) {
  constexpr int sums = 3;
  const GradientBucket& bucket = buckets_[number];
  const std::string wanted = known_sums(bucket, ranks_);
  std::string found(wanted.size(), '\0');
  bool exact = true;
  for (int run = 0; run < sums; ++run) {
    const std::string mine = known_values(bucket, (rank_ + run) % ranks_, ranks_);
    NM_CALL(cudaMemcpyAsync(bucket.data, mine.data(), mine.size(), cudaMemcpyHostToDevice,
                            stream_.get()));
    sum(number, 1);
    NM_CALL(cudaMemcpyAsync(found.data(), bucket.data, found.size(), cudaMemcpyDeviceToHost,
                            stream_.get()));
    NM_CALL(cudaStreamSynchronize(stream_.get()));
    exact = exact && found == wanted;
  }
  return exact;
}

std::vector<BucketTest> GpuAllReduce::test(int repeats) {
  std::vector<BucketTest> tests;
  for (const GradientBucket& bucket : buckets_) {
    const auto number = static_cast<int>(tests.size());
    const bool exact = sums_exactly(number);
    const std::string mine = known_values(bucket, rank_, ranks_);
    std::vector<double> seconds;
    for (int run = 0; run < repeats; ++run) {
      // Zeros take less power than gradients, and sums of sums would soon overflow.
      NM_CALL(cudaMemcpyAsync(bucket.data, mine.data(), mine.size(), cudaMemcpyHostToDevice,
                              stream_.get()));
      sum(number, 1);  // brings all ranks to the same point
      NM_CALL(cudaEventRecord(begin_.get(), stream_.get()));
      sum(number, 1);
      NM_CALL(cudaEventRecord(end_.get(), stream_.get()));
      seconds.push_back(cuda::seconds_between(begin_.get(), end_.get()));
    }
    tests.push_back({bucket.bytes(), bucket.type, median_of(seconds), exact});
  }
  return tests;
}

}  // namespace nearmetal
