// The ranks that mpirun or srun started, a module of its own, so that nothing else needs MPI; and
// how they are joined in host memory: to sum gradients, and to hand values and gradients between
// stages.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/errors.h"
#include "comm/join_ranks.h"
#include "comm/known_values.h"
#include "comm/mpi/mpi_sums.h"
#include "comm/mpi/ucx.h"
#include "comm/world.h"
#include "models/load_module.h"
#include "models/program.h"

namespace nearmetal {
namespace {

MPI_Comm split_ranks(MPI_Comm all, int part) {
  constexpr int in_the_same_order = 0;
  MPI_Comm ranks = MPI_COMM_NULL;
  NM_MPI(MPI_Comm_split, all, part, in_the_same_order, &ranks);
  return ranks;
}

// MPI counts in int.
std::vector<std::span<char>> pieces_of(std::span<char> bytes) {
  constexpr size_t piece_bytes = 16 << 20;
  std::vector<std::span<char>> pieces;
  for (; !bytes.empty(); bytes = bytes.subspan(pieces.back().size())) {
    pieces.push_back(bytes.first(std::min(piece_bytes, bytes.size())));
  }
  return pieces;
}

// The sum over those ranks that give the same `part`.
class MpiHostSum : public HostSum {
 public:
  MpiHostSum(MPI_Comm all, int part) : ranks_(split_ranks(all, part)) {}
  ~MpiHostSum() override { MPI_Comm_free(&ranks_); }
  MpiHostSum(const MpiHostSum&) = delete;
  MpiHostSum& operator=(const MpiHostSum&) = delete;

  std::string library() const override { return mpi_version(); }

  void sum(const GradientBucket& values) override {
    NM_MPI(MPI_Allreduce, MPI_IN_PLACE, values.data, mpi_count(values.elements),
           sums_.type(values.type), sums_.operation(values.type), ranks_);
  }

 private:
  MPI_Comm ranks_ = MPI_COMM_NULL;
  MpiSums sums_;
};

class MpiWorld : public World {
 public:
  // All ranks of the job; starts MPI, and ends it with its own life.
  explicit MpiWorld(const std::string& threads_for) : finalizes_(true) {
    const int wanted = threads_for.empty() ? MPI_THREAD_FUNNELED : MPI_THREAD_MULTIPLE;
    int provided = 0, priority = 0;
    const char* by = std::getenv("OMPI_MCA_pml");
    // Each component has a priority, which MPI tells before it starts.
    if (by && std::string(by) == "ucx" &&
        (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS ||
         MPI_T_cvar_get_index("pml_ucx_priority", &priority) != MPI_SUCCESS)) {
      throw NotSupported(mpi_version() +
                         " has no component for UCX (pml ucx), which it is to take");
    }
    require_mpi(MPI_Init_thread(nullptr, nullptr, wanted, &provided), "MPI_Init");
    if (provided < MPI_THREAD_FUNNELED) throw std::runtime_error("this MPI knows no threads");
    if (provided < wanted) {
      MPI_Finalize();
      throw NotSupported(threads_for + " calls MPI from two threads at once, which " +
                         mpi_version() + " here does not allow (MPI_THREAD_MULTIPLE)");
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    count_ranks();
  }
  // The ranks of a communicator, which it frees.
  explicit MpiWorld(MPI_Comm ranks) : ranks_(ranks) { count_ranks(); }
  ~MpiWorld() override { finalizes_ ? MPI_Finalize() : MPI_Comm_free(&ranks_); }
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  MPI_Comm communicator() const { return ranks_; }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int local_rank() const override { return local_rank_; }
  int local_size() const override { return local_size_; }
  const CallCounts* calls() const override { return &MpiCall::counts(); }
  Maybe<std::vector<std::string>> transports() const override { return ucx_transports_taken(); }

  std::vector<std::string> all_gather(const std::string& bytes) override {
    const int mine = static_cast<int>(bytes.size());
    std::vector<int> sizes(size_), offsets(size_);
    NM_MPI(MPI_Allgather, &mine, 1, MPI_INT, sizes.data(), 1, MPI_INT, ranks_);
    if (std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) > std::numeric_limits<int>::max()) {
      throw std::runtime_error("the ranks' results are larger than MPI can gather: 2 GiB");
    }
    std::exclusive_scan(sizes.begin(), sizes.end(), offsets.begin(), 0);
    std::string all(offsets.back() + sizes.back(), '\0');
    NM_MPI(MPI_Allgatherv, bytes.data(), mine, MPI_BYTE, all.data(), sizes.data(), offsets.data(),
           MPI_BYTE, ranks_);
    std::vector<std::string> parts;
    for (int i = 0; i < size_; ++i) parts.push_back(all.substr(offsets[i], sizes[i]));
    return parts;
  }

  std::vector<std::string> gather(std::string bytes) override {
    constexpr int tag = 1;
    int64_t size = std::ssize(bytes);
    if (rank_ > 0) {
      NM_MPI(MPI_Send, &size, 1, MPI_INT64_T, 0, tag, ranks_);
      for (const std::span<char> piece : pieces_of(bytes)) {
        NM_MPI(MPI_Send, piece.data(), mpi_count(std::ssize(piece)), MPI_BYTE, 0, tag, ranks_);
      }
      return {};
    }
    std::vector<std::string> parts(size_);
    parts[0] = std::move(bytes);
    for (int from = 1; from < size_; ++from) {
      NM_MPI(MPI_Recv, &size, 1, MPI_INT64_T, from, tag, ranks_, MPI_STATUS_IGNORE);
      parts[from].resize(size);
      for (const std::span<char> piece : pieces_of(parts[from])) {
        NM_MPI(MPI_Recv, piece.data(), mpi_count(std::ssize(piece)), MPI_BYTE, from, tag, ranks_,
               MPI_STATUS_IGNORE);
      }
    }
    return parts;
  }

  std::string broadcast(const std::string& bytes) override {
    int size = static_cast<int>(bytes.size());
    NM_MPI(MPI_Bcast, &size, 1, MPI_INT, 0, ranks_);
    std::string text = bytes;
    text.resize(size);
    NM_MPI(MPI_Bcast, text.data(), size, MPI_BYTE, 0, ranks_);
    return text;
  }

  void maximum(std::span<int64_t> values) override {
    NM_MPI(MPI_Allreduce, MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_INT64_T,
           MPI_MAX, ranks_);
  }

  void start_maximum(int64_t value) override {
    started_ = value;
    NM_MPI(MPI_Iallreduce, MPI_IN_PLACE, &started_, 1, MPI_INT64_T, MPI_MAX, ranks_, &request_);
  }

  std::optional<int64_t> started_maximum() override {
    int arrived = 0;
    NM_MPI(MPI_Test, &request_, &arrived, MPI_STATUS_IGNORE);
    if (arrived == 0) return std::nullopt;
    return started_;
  }

  std::unique_ptr<World> split(int part) override {
    return std::make_unique<MpiWorld>(split_ranks(ranks_, part));
  }

  std::unique_ptr<HostSum> host_sum(int part) override {
    return std::make_unique<MpiHostSum>(ranks_, part);
  }

  std::vector<Probe> probes() override { return mpi_probes(ranks_); }

  [[noreturn]] void abort(int exit_code) override {
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::_Exit(exit_code);
  }

 private:
  void count_ranks() {
    MPI_Comm_rank(ranks_, &rank_);
    MPI_Comm_size(ranks_, &size_);
    MPI_Comm local = MPI_COMM_NULL;
    NM_MPI(MPI_Comm_split_type, ranks_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &local);
    MPI_Comm_rank(local, &local_rank_);
    MPI_Comm_size(local, &local_size_);
    MPI_Comm_free(&local);
  }

  MPI_Comm ranks_ = MPI_COMM_WORLD;
  bool finalizes_ = false;
  int rank_ = 0;
  int size_ = 1;
  int local_rank_ = 0;
  int local_size_ = 1;
  int64_t started_ = 0;
  MPI_Request request_ = MPI_REQUEST_NULL;  // of started_
};

// Throws std::bad_cast for the world of another module.
MPI_Comm communicator_of(World& world) { return dynamic_cast<MpiWorld&>(world).communicator(); }

// One non-blocking reduction per bucket. MPI moves data only inside its calls, so that each start
// pushes the earlier ones on.
class MpiAllReduce : public AllReduce {
 public:
  explicit MpiAllReduce(MPI_Comm ranks) {
    NM_MPI(MPI_Comm_dup, ranks, &gradients_);
    NM_MPI(MPI_Comm_rank, gradients_, &rank_);
    NM_MPI(MPI_Comm_size, gradients_, &ranks_);
  }
  ~MpiAllReduce() override { MPI_Comm_free(&gradients_); }
  MpiAllReduce(const MpiAllReduce&) = delete;
  MpiAllReduce& operator=(const MpiAllReduce&) = delete;

  std::string library() const override { return mpi_version(); }
  int ranks() const override { return ranks_; }

  void bind(std::vector<GradientBucket> buckets) override {
    for (const GradientBucket& bucket : buckets) mpi_count(bucket.elements);
    buckets_ = std::move(buckets);
    requests_.assign(buckets_.size(), MPI_REQUEST_NULL);
  }

  void start(int first, int count, void*) override {
    for (int bucket = first; bucket < first + count; ++bucket) {
      const GradientBucket& gradient = buckets_[bucket];
      NM_MPI(MPI_Iallreduce, MPI_IN_PLACE, gradient.data, mpi_count(gradient.elements),
             sums_.type(gradient.type), sums_.operation(gradient.type), gradients_,
             &requests_[bucket]);
    }
    int done = 0;
    NM_MPI(MPI_Testall, first, requests_.data(), &done, MPI_STATUSES_IGNORE);
  }

  void finish(void*) override {
    NM_MPI(MPI_Waitall, static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
  }

  std::vector<BucketTest> test(int repeats) override {
    std::vector<BucketTest> tests;
    for (const GradientBucket& bucket : buckets_) {
      BucketTest test{.bytes = bucket.bytes(), .type = bucket.type, .exact = true};
      const std::string mine = known_values(bucket, rank_, ranks_),
                        sums = known_sums(bucket, ranks_);
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

 private:
  MPI_Comm gradients_ = MPI_COMM_NULL;  // apart from all other talk of the ranks
  MpiSums sums_;
  int rank_ = 0;
  int ranks_ = 1;
  std::vector<GradientBucket> buckets_;
  std::vector<MPI_Request> requests_;  // by bucket
};

// Nothing blocks but a wait for the very message, so that no order of sends and receives locks up.
// Messages of a kind keep their order, as MPI's do between two ranks.
class MpiStageLinks final : public StageLinks {
 public:
  explicit MpiStageLinks(MPI_Comm stages) {
    NM_MPI(MPI_Comm_dup, stages, &stages_);
    NM_MPI(MPI_Comm_rank, stages_, &stage_);
    bind(1);
  }
  ~MpiStageLinks() override { MPI_Comm_free(&stages_); }
  MpiStageLinks(const MpiStageLinks&) = delete;
  MpiStageLinks& operator=(const MpiStageLinks&) = delete;

  std::string library() const override { return mpi_version(); }

  void bind(int micro_batches) override {
    requests_.assign(static_cast<size_t>(micro_batches) * transfer_count, MPI_REQUEST_NULL);
  }

  void start(Transfer transfer, int micro_batch, void* data, int64_t bytes, void*) override {
    const int neighbour = is_to_next(transfer) ? stage_ + 1 : stage_ - 1;
    const bool value = transfer == Transfer::receive_value || transfer == Transfer::send_value;
    const int tag = value ? 0 : 1;
    MPI_Request* request = &request_of(transfer, micro_batch);
    if (is_receive(transfer)) {
      NM_MPI(MPI_Irecv, data, mpi_count(bytes), MPI_BYTE, neighbour, tag, stages_, request);
    } else {
      NM_MPI(MPI_Isend, data, mpi_count(bytes), MPI_BYTE, neighbour, tag, stages_, request);
    }
  }

  void finish(Transfer transfer, int micro_batch, void*) override {
    NM_MPI(MPI_Wait, &request_of(transfer, micro_batch), MPI_STATUS_IGNORE);
  }

  void sum(double* values, int count, void*) override {
    NM_MPI(MPI_Allreduce, MPI_IN_PLACE, values, count, MPI_DOUBLE, MPI_SUM, stages_);
  }

  BoundaryTest test(int64_t bytes_from_previous, int64_t bytes_to_next, int repeats) override {
    BoundaryTest test{.bytes = bytes_to_next};
    std::vector<double> seconds;
    for (int run = 0; run < repeats; ++run) {
      const Passage values = sends_and_receives(Transfer::send_value, Transfer::receive_value,
                                                bytes_to_next, bytes_from_previous, run);
      const Passage gradients =
          sends_and_receives(Transfer::send_gradient, Transfer::receive_gradient,
                             bytes_from_previous, bytes_to_next, run);
      test.exact = test.exact && values.exact && gradients.exact;
      seconds.push_back(values.seconds);
    }
    test.seconds = median_of(seconds);
    return test;
  }

 private:
  MPI_Request& request_of(Transfer transfer, int micro_batch) {
    return requests_.at(static_cast<size_t>(micro_batch) * transfer_count +
                        static_cast<size_t>(transfer));
  }
  struct Passage {
    bool exact;
    double seconds;  // without making and comparing the values
  };
  // Whether what came is what the neighbour sent; 0 bytes: there is no neighbour.
  Passage sends_and_receives(Transfer send, Transfer receive, int64_t sent_bytes,
                             int64_t received_bytes, int run) {
    std::string sent = known_boundary(sent_bytes, stage_, run);
    std::string received(received_bytes, '\0');
    NM_MPI(MPI_Barrier, stages_);
    const double begin = MPI_Wtime();
    if (received_bytes > 0) start(receive, 0, received.data(), received_bytes, nullptr);
    if (sent_bytes > 0) start(send, 0, sent.data(), sent_bytes, nullptr);
    if (received_bytes > 0) finish(receive, 0, nullptr);
    if (sent_bytes > 0) finish(send, 0, nullptr);
    const double seconds = MPI_Wtime() - begin;
    const int neighbour = is_to_next(receive) ? stage_ + 1 : stage_ - 1;
    return {received == known_boundary(received_bytes, neighbour, run), seconds};
  }

  MPI_Comm stages_ = MPI_COMM_NULL;  // apart from all other talk of the ranks
  int stage_ = 0;
  std::vector<MPI_Request> requests_;  // by micro-batch and transfer
};

}  // namespace
}  // namespace nearmetal

NM_EXPORT nearmetal::World* nearmetal_world(const std::string& threads_for) {
  return new nearmetal::MpiWorld(threads_for);
}

NM_EXPORT nearmetal::AllReduce* nearmetal_join_mpi(const nearmetal::JoinRequest& request) {
  return new nearmetal::MpiAllReduce(nearmetal::communicator_of(request.world));
}

NM_EXPORT nearmetal::StageLinks* nearmetal_join_stage_links(
    const nearmetal::JoinRequest& request, std::span<const nearmetal::StageGroups> /*groups*/) {
  return new nearmetal::MpiStageLinks(nearmetal::communicator_of(request.world));
}
