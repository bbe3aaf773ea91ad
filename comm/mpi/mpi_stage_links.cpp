// Hands values and gradients between stages in host memory.
#include <vector>

#include "comm/join_ranks.h"
#include "comm/known_values.h"
#include "comm/mpi/mpi_sums.h"
#include "comm/mpi/mpi_world.h"
#include "models/load_module.h"
#include "models/probe.h"

namespace nearmetal {
namespace {

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

  BoundaryTest test(int64_t bytes_from_previous, int64_t bytes_to_next, int repeats) override;

 private:
  MPI_Request& request_of(Transfer transfer, int micro_batch) {
    return requests_.at(static_cast<size_t>(micro_batch) * transfer_count +
                        static_cast<size_t>(transfer));
  }
  struct Passage {
    bool exact;
    double seconds;  // without making and comparing the values
  };
  Passage sends_and_receives(Transfer send, Transfer receive, int64_t sent_bytes,
                             int64_t received_bytes, int run);

  MPI_Comm stages_ = MPI_COMM_NULL;  // apart from all other talk of the ranks
  int stage_ = 0;
  std::vector<MPI_Request> requests_;  // by micro-batch and transfer
};

// Whether what came is what the neighbour sent; 0 bytes: there is no neighbour.
MpiStageLinks::Passage MpiStageLinks::sends_and_receives(Transfer send, Transfer receive,
                                                         int64_t sent_bytes, int64_t received_bytes,
                                                         int run) {
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

BoundaryTest MpiStageLinks::test(int64_t bytes_from_previous, int64_t bytes_to_next, int repeats) {
  BoundaryTest test{.bytes = bytes_to_next};
  std::vector<double> seconds;
  for (int run = 0; run < repeats; ++run) {
    const Passage values = sends_and_receives(Transfer::send_value, Transfer::receive_value,
                                              bytes_to_next, bytes_from_previous, run);
    const Passage gradients =
        sends_and_receives(Transfer::send_gradient, Transfer::receive_gradient, bytes_from_previous,
                           bytes_to_next, run);
    test.exact = test.exact && values.exact && gradients.exact;
    seconds.push_back(values.seconds);
  }
  test.seconds = median_of(seconds);
  return test;
}

}  // namespace
}  // namespace nearmetal

NM_EXPORT nearmetal::StageLinks* nearmetal_join_stage_links(
    const nearmetal::JoinRequest& request, std::span<const nearmetal::StageGroups> /*groups*/) {
  return new nearmetal::MpiStageLinks(nearmetal::communicator_of(request.world));
}
