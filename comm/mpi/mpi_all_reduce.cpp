#include "comm/mpi/mpi_all_reduce.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "comm/known_sums.h"

namespace nearmetal {

MpiAllReduce::MpiAllReduce(MPI_Comm everyone) {
  require_mpi(MPI_Comm_dup(everyone, &gradients_), "MPI_Comm_dup");
  require_mpi(MPI_Comm_rank(gradients_, &rank_), "MPI_Comm_rank");
  require_mpi(MPI_Comm_size(gradients_, &ranks_), "MPI_Comm_size");
}

MpiAllReduce::~MpiAllReduce() { MPI_Comm_free(&gradients_); }

void MpiAllReduce::bind(std::vector<GradientBucket> buckets) {
  for (const GradientBucket& bucket : buckets) mpi_count(bucket.elements);
  buckets_ = std::move(buckets);
  requests_.assign(buckets_.size(), MPI_REQUEST_NULL);
}

void MpiAllReduce::start(int first, int count, void*) {
  for (int bucket = first; bucket < first + count; ++bucket) {
    const GradientBucket& gradient = buckets_[bucket];
    require_mpi(MPI_Iallreduce(MPI_IN_PLACE, gradient.data, mpi_count(gradient.elements),
                               sums_.type(gradient.type), sums_.operation(gradient.type),
                               gradients_, &requests_[bucket]),
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

std::vector<BucketTest> MpiAllReduce::test(int repeats) {
  std::vector<BucketTest> tests;
  for (const GradientBucket& bucket : buckets_) {
    BucketTest test{.bytes = bucket.bytes(), .type = bucket.type, .exact = true};
    const std::string mine = known_values(bucket, rank_, ranks_), sums = known_sums(bucket, ranks_);
    std::vector<double> seconds;
    for (int run = 0; run < repeats; ++run) {
      std::memcpy(bucket.data, mine.data(), mine.size());
      require_mpi(MPI_Barrier(gradients_), "MPI_Barrier");
      const double begin = MPI_Wtime();
      start(static_cast<int>(tests.size()), 1, nullptr);
      finish(nullptr);
      seconds.push_back(MPI_Wtime() - begin);
      test.exact = test.exact && std::memcmp(bucket.data, sums.data(), sums.size()) == 0;
    }
    std::nth_element(seconds.begin(), seconds.begin() + repeats / 2, seconds.end());
    test.seconds = seconds[repeats / 2];
    tests.push_back(test);
  }
  return tests;
}

}  // namespace nearmetal
