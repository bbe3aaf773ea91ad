// Ranks that a launcher started, or some of them, as MPI knows them.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/mpi/mpi_sums.h"
#include "comm/world.h"

namespace nearmetal {

class MpiWorld : public World {
 public:
  /// All ranks of the job; starts MPI, and ends it with its own life.
  explicit MpiWorld(const std::string& threads_for);
  /// The ranks of a communicator, which it frees.
  explicit MpiWorld(MPI_Comm ranks);
  ~MpiWorld() override;
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  MPI_Comm communicator() const { return ranks_; }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int local_rank() const override { return local_rank_; }
  int local_size() const override { return local_size_; }
  std::vector<std::string> all_gather(const std::string& bytes) override;
  std::string broadcast(const std::string& bytes) override;
  void maximum(std::span<int64_t> values) override;
  void start_maximum(int64_t value) override;
  std::optional<int64_t> started_maximum() override;
  std::unique_ptr<World> split(int part) override;
  std::unique_ptr<HostSum> host_sum(int part) override;
  std::vector<Probe> probes() override { return mpi_probes(ranks_); }
  [[noreturn]] void abort(int exit_code) override;

 private:
  void count_ranks();

  MPI_Comm ranks_ = MPI_COMM_WORLD;
  bool finalizes_ = false;
  int rank_ = 0;
  int size_ = 1;
  int local_rank_ = 0;
  int local_size_ = 1;
  int64_t started_ = 0;
  MPI_Request request_ = MPI_REQUEST_NULL;  // of started_
};

/// The communicator of a world that this module made. Throws std::bad_cast for another.
MPI_Comm communicator_of(World& world);

}  // namespace nearmetal
