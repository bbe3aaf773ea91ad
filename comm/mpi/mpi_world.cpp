// The ranks that mpirun or srun started; a module of its own, so that nothing else needs MPI.
#include "comm/mpi/mpi_world.h"

#include <limits>
#include <numeric>
#include <stdexcept>

#include "base/errors.h"
#include "comm/mpi/mpi_sums.h"
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

}  // namespace

MpiWorld::MpiWorld(const std::string& threads_for) : finalizes_(true) {
  const int wanted = threads_for.empty() ? MPI_THREAD_FUNNELED : MPI_THREAD_MULTIPLE;
  int provided = 0;
  require_mpi(MPI_Init_thread(nullptr, nullptr, wanted, &provided), "MPI_Init");
  if (provided < MPI_THREAD_FUNNELED) throw std::runtime_error("this MPI knows no threads");
  if (provided < wanted) {
    MPI_Finalize();
    throw NotSupported(threads_for + " calls MPI from two threads at once, which " + mpi_version() +
                       " here does not allow (MPI_THREAD_MULTIPLE)");
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  count_ranks();
}

MpiWorld::MpiWorld(MPI_Comm ranks) : ranks_(ranks) { count_ranks(); }

MpiWorld::~MpiWorld() {
  if (!finalizes_) MPI_Comm_free(&ranks_);
  if (finalizes_) MPI_Finalize();
}

void MpiWorld::count_ranks() {
  MPI_Comm_rank(ranks_, &rank_);
  MPI_Comm_size(ranks_, &size_);
  MPI_Comm local = MPI_COMM_NULL;
  NM_MPI(MPI_Comm_split_type, ranks_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &local);
  MPI_Comm_rank(local, &local_rank_);
  MPI_Comm_size(local, &local_size_);
  MPI_Comm_free(&local);
}

std::vector<std::string> MpiWorld::all_gather(const std::string& bytes) {
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

std::string MpiWorld::broadcast(const std::string& bytes) {
  int size = static_cast<int>(bytes.size());
  NM_MPI(MPI_Bcast, &size, 1, MPI_INT, 0, ranks_);
  std::string text = bytes;
  text.resize(size);
  NM_MPI(MPI_Bcast, text.data(), size, MPI_BYTE, 0, ranks_);
  return text;
}

void MpiWorld::maximum(std::span<int64_t> values) {
  NM_MPI(MPI_Allreduce, MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_INT64_T,
         MPI_MAX, ranks_);
}

void MpiWorld::start_maximum(int64_t value) {
  started_ = value;
  NM_MPI(MPI_Iallreduce, MPI_IN_PLACE, &started_, 1, MPI_INT64_T, MPI_MAX, ranks_, &request_);
}

std::optional<int64_t> MpiWorld::started_maximum() {
  int arrived = 0;
  NM_MPI(MPI_Test, &request_, &arrived, MPI_STATUS_IGNORE);
  if (arrived == 0) return std::nullopt;
  return started_;
}

std::unique_ptr<World> MpiWorld::split(int part) {
  return std::make_unique<MpiWorld>(split_ranks(ranks_, part));
}

std::unique_ptr<HostSum> MpiWorld::host_sum(int part) {
  return std::make_unique<MpiHostSum>(ranks_, part);
}

void MpiWorld::abort(int exit_code) {
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

MPI_Comm communicator_of(World& world) { return dynamic_cast<MpiWorld&>(world).communicator(); }

}  // namespace nearmetal

NM_EXPORT nearmetal::World* nearmetal_world(const std::string& threads_for) {
  return new nearmetal::MpiWorld(threads_for);
}
