// Sums gradients in host memory over the ranks of an MPI job.
#include <cstring>
#include <string>

#include "comm/join_ranks.h"
#include "comm/known_values.h"
#include "comm/mpi/mpi_sums.h"
#include "comm/mpi/mpi_world.h"
#include "models/load_module.h"
#include "models/program.h"

namespace nearmetal {
namespace {

// One non-blocking reduction per bucket. MPI moves data only inside its calls, so that each start
// pushes the earlier ones on.
class MpiAllReduce : public AllReduce {
 public:
  explicit MpiAllReduce(MPI_Comm ranks);
  ~MpiAllReduce() override { MPI_Comm_free(&gradients_); }
  MpiAllReduce(const MpiAllReduce&) = delete;
  MpiAllReduce& operator=(const MpiAllReduce&) = delete;

  std::string library() const override { return mpi_version(); }
  int ranks() const override { return ranks_; }
  void bind(std::vector<GradientBucket> buckets) override;
  void start(int first, int count, void* stream) override;
  void finish(void* stream) override;
  std::vector<BucketTest> test(int repeats) override;

 private:
  MPI_Comm gradients_ = MPI_COMM_NULL;  // apart from all other talk of the ranks
  MpiSums sums_;
  int rank_ = 0;
  int ranks_ = 1;
  std::vector<GradientBucket> buckets_;
  std::vector<MPI_Request> requests_;  // by bucket
};

MpiAllReduce::MpiAllReduce(MPI_Comm ranks) {
  NM_MPI(MPI_Comm_dup, ranks, &gradients_);
  NM_MPI(MPI_Comm_rank, gradients_, &rank_);
  NM_MPI(MPI_Comm_size, gradients_, &ranks_);
}

void MpiAllReduce::bind(std::vector<GradientBucket> buckets) {
  for (const GradientBucket& bucket : buckets) mpi_count(bucket.elements);
  buckets_ = std::move(buckets);
  requests_.assign(buckets_.size(), MPI_REQUEST_NULL);
}

void MpiAllReduce::start(int first, int count, void*) {
  for (int bucket = first; bucket < first + count; ++bucket) {
    const GradientBucket& gradient = buckets_[bucket];
    NM_MPI(MPI_Iallreduce, MPI_IN_PLACE, gradient.data, mpi_count(gradient.elements),
           sums_.type(gradient.type), sums_.operation(gradient.type), gradients_,
           &requests_[bucket]);
  }
  int done = 0;
  NM_MPI(MPI_Testall, first, requests_.data(), &done, MPI_STATUSES_IGNORE);
}

void MpiAllReduce::finish(void*) {
  NM_MPI(MPI_Waitall, static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
}

std::vector<BucketTest> MpiAllReduce::test(int repeats) {
  std::vector<BucketTest> tests;
  for (const GradientBucket& bucket : buckets_) {
    BucketTest test{.bytes = bucket.bytes(), .type = bucket.type, .exact = true};
    const std::string mine = known_values(bucket, rank_, ranks_), sums = known_sums(bucket, ranks_);
    std::vector<double> seconds;
    for (int run = 0; run < repeats; ++run) {
      std::memcpy(bucket.data, mine.data(), mine.size());
      NM_MPI(MPI_Barrier, gradients_);
      const double begin = MPI_Wtime();
      start(static_cast<int>(tests.size()), 1, nullptr);
      finish(nullptr);
      seconds.push_back(MPI_Wtime() - begin);
      test.exact = test.exact && std::memcmp(bucket.data, sums.data(), sums.size()) == 0;
    }
    test.seconds = median_of(seconds);
    tests.push_back(test);
  }
  return tests;
}

}  // namespace
}  // namespace nearmetal

NM_EXPORT nearmetal::AllReduce* nearmetal_join_mpi(const nearmetal::JoinRequest& request) {
  return new nearmetal::MpiAllReduce(nearmetal::communicator_of(request.world));
}
