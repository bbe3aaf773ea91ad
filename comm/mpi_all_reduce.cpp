#include "comm/mpi_all_reduce.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

namespace nearmetal {

void require_mpi(int status, const char* what) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(status, text, &length);
  throw std::runtime_error(std::string(what) + " failed: " + text);
}

MpiAllReduce::MpiAllReduce(MPI_Comm everyone) {
  require_mpi(MPI_Comm_dup(everyone, &gradients_), "MPI_Comm_dup");
  require_mpi(MPI_Comm_rank(gradients_, &rank_), "MPI_Comm_rank");
  require_mpi(MPI_Comm_size(gradients_, &ranks_), "MPI_Comm_size");
}

MpiAllReduce::~MpiAllReduce() { MPI_Comm_free(&gradients_); }

// "Open MPI v4.1.4, package: ..." and the like: the first words name it.
std::string MpiAllReduce::library() const {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  require_mpi(MPI_Get_library_version(text, &length), "MPI_Get_library_version");
  const std::string version(text, length);
  return version.substr(0, version.find_first_of(",\n"));
}

void MpiAllReduce::bind(std::vector<GradientBucket> buckets) {
  for (const GradientBucket& bucket : buckets) {
    if (bucket.type != Precision::fp32) {
      throw std::invalid_argument("MPI sums gradients in fp32 alone");
    }
    if (bucket.elements > std::numeric_limits<int>::max()) {
      throw std::invalid_argument("a bucket of gradients is larger than MPI can send: 8 GiB");
    }
  }
  buckets_ = std::move(buckets);
  requests_.assign(buckets_.size(), MPI_REQUEST_NULL);
}

void MpiAllReduce::start(int first, int count, void*) {
  for (int bucket = first; bucket < first + count; ++bucket) {
    const GradientBucket& gradient = buckets_[bucket];
    require_mpi(MPI_Iallreduce(MPI_IN_PLACE, gradient.data, static_cast<int>(gradient.elements),
                               MPI_FLOAT, MPI_SUM, gradients_, &requests_[bucket]),
                "MPI_Iallreduce");
  }
  int done = 0;
  require_mpi(MPI_Testall(first, requests_.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
}

void MpiAllReduce::finish(void*) {
  require_mpi(
      MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE),
      "MPI_Waitall");
}

// Small integers: their sums are exact in fp32 in any order.
std::vector<BucketTest> MpiAllReduce::test(int repeats) {
  constexpr int64_t period = 1021;
  std::vector<BucketTest> tests;
  for (const GradientBucket& bucket : buckets_) {
    auto* values = static_cast<float*>(bucket.data);
    BucketTest test{.bytes = bucket.bytes(), .exact = true};
    std::vector<double> seconds;
    for (int run = 0; run < repeats; ++run) {
      for (int64_t i = 0; i < bucket.elements; ++i) {
        values[i] = static_cast<float>(i % period + rank_);
      }
      require_mpi(MPI_Barrier(gradients_), "MPI_Barrier");
      const double begin = MPI_Wtime();
      start(static_cast<int>(tests.size()), 1, nullptr);
      finish(nullptr);
      seconds.push_back(MPI_Wtime() - begin);
      for (int64_t i = 0; i < bucket.elements; ++i) {
        const int64_t sum = ranks_ * (i % period) + int64_t{ranks_} * (ranks_ - 1) / 2;
        test.exact = test.exact && values[i] == static_cast<float>(sum);
      }
    }
    std::nth_element(seconds.begin(), seconds.begin() + repeats / 2, seconds.end());
    test.seconds = seconds[repeats / 2];
    tests.push_back(test);
  }
  return tests;
}

}  // namespace nearmetal
