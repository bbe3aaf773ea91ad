// Hands values and gradients between stages in the memory of GPUs, by NCCL.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "comm/gpu/nccl_group.h"
#include "comm/join_ranks.h"
#include "comm/known_values.h"
#include "models/load_module.h"
#include "models/probe.h"

namespace nearmetal {
namespace {

// A boundary may have gigabytes, of which the host holds so many at a time: whole periods.
constexpr int64_t known_piece = known_boundary_period << 18;

void upload_known(void* device, int64_t bytes, int from, int run, cudaStream_t stream) {
  const std::string known = known_boundary(std::min(bytes, known_piece), from, run);
  for (int64_t begin = 0; begin < bytes; begin += known_piece) {
    NM_CALL(cudaMemcpyAsync(static_cast<char*>(device) + begin, known.data(),
                            std::min(bytes - begin, known_piece), cudaMemcpyHostToDevice, stream));
  }
  NM_CALL(cudaStreamSynchronize(stream));
}

bool are_known(const void* device, int64_t bytes, int from, int run, cudaStream_t stream) {
  const std::string known = known_boundary(std::min(bytes, known_piece), from, run);
  std::string found(known.size(), '\0');
  bool same = true;
  for (int64_t begin = 0; begin < bytes; begin += known_piece) {
    const int64_t piece = std::min(bytes - begin, known_piece);
    NM_CALL(cudaMemcpyAsync(found.data(), static_cast<const char*>(device) + begin, piece,
                            cudaMemcpyDeviceToHost, stream));
    NM_CALL(cudaStreamSynchronize(stream));
    same = same && std::equal(found.begin(), found.begin() + piece, known.begin());
  }
  return same;
}

// A send of NCCL ends once its receive has begun, and operations of a communicator, or of a stream,
// wait for those before them. So each kind of transfer has a communicator of the two neighbours and
// a stream to itself: what is sent forward never waits for what comes back, in whatever order a
// schedule starts them, and within a kind both sides have the same order.
class NcclStageLinks final : public StageLinks {
 public:
  NcclStageLinks(const JoinRequest& request, std::span<const StageGroups> groups);

  std::string library() const override { return nccl_version(); }

  void bind(int micro_batches) override {
    for (Lane& each : lanes_) {
      each.done.clear();
      if (each.communicator == nullptr) continue;
      for (int i = 0; i < micro_batches; ++i) {
        each.done.push_back(cuda::make_event(cudaEventDisableTiming));
      }
    }
  }

  void start(Transfer transfer, int micro_batch, void* data, int64_t bytes, void* stream) override {
    Lane& used = lane(transfer);
    const int peer = is_to_next(transfer) ? 1 : 0;  // of the two, the earlier stage is the first
    NM_CALL(cudaEventRecord(used.ready.get(), static_cast<cudaStream_t>(stream)));
    NM_CALL(cudaStreamWaitEvent(used.stream.get(), used.ready.get()));
    const auto count = static_cast<size_t>(bytes);
    if (is_receive(transfer)) {
      NM_CALL(ncclRecv(data, count, ncclInt8, peer, used.communicator.get(), used.stream.get()));
    } else {
      NM_CALL(ncclSend(data, count, ncclInt8, peer, used.communicator.get(), used.stream.get()));
    }
    NM_CALL(cudaEventRecord(used.done.at(micro_batch).get(), used.stream.get()));
  }

  void finish(Transfer transfer, int micro_batch, void* stream) override {
    NM_CALL(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream),
                                lane(transfer).done.at(micro_batch).get()));
  }

  void sum(double* values, int count, void* stream) override {
    NM_CALL(ncclAllReduce(values, values, count, ncclFloat64, ncclSum, sums_.get(),
                          static_cast<cudaStream_t>(stream)));
  }

  BoundaryTest test(int64_t bytes_from_previous, int64_t bytes_to_next, int repeats) override;

 private:
  struct Lane {
    Communicator communicator;  // null: there is no such neighbour
    cuda::StreamHandle stream;
    cuda::EventHandle ready;              // of the step: the memory may be used
    std::vector<cuda::EventHandle> done;  // by micro-batch
  };

  Lane& lane(Transfer transfer) { return lanes_[static_cast<size_t>(transfer)]; }
  void join(Transfer transfer, const std::string& group, int rank);
  void connect();
  double seconds_of_value(int64_t bytes_from_previous, int64_t bytes_to_next);
  bool passes(Transfer send, Transfer receive, int64_t sent_bytes, int64_t received_bytes, int run);

  int stage_ = 0;
  std::array<Lane, transfer_count> lanes_;
  Communicator sums_;
  cuda::StreamHandle stream_;  // of what is done between steps
};

NcclStageLinks::NcclStageLinks(const JoinRequest& request, std::span<const StageGroups> groups)
    : stage_(request.world.rank()) {
  NM_CALL(cudaSetDevice(request.gpu));
  const int stages = request.world.size();
  // From the first boundary to the last: a stage joins the one before it first.
  if (stage_ > 0) {
    join(Transfer::receive_value, groups[stage_ - 1].values, 1);
    join(Transfer::send_gradient, groups[stage_ - 1].gradients, 1);
  }
  if (stage_ + 1 < stages) {
    join(Transfer::send_value, groups[stage_].values, 0);
    join(Transfer::receive_gradient, groups[stage_].gradients, 0);
  }
  sums_ = join_group(groups[0].sums, stage_, stages);
  stream_ = cuda::make_stream();
  bind(1);
  connect();
}

void NcclStageLinks::join(Transfer transfer, const std::string& group, int rank) {
  constexpr int neighbours = 2;
  Lane& joined = lane(transfer);
  joined.communicator = join_group(group, rank, neighbours);
  joined.stream = cuda::make_urgent_stream();
  joined.ready = cuda::make_event(cudaEventDisableTiming);
}

// NCCL connects two ranks at their first transfer, for which the hosts wait for each other: here,
// where their order is known, and not inside a step.
void NcclStageLinks::connect() {
  constexpr int64_t bytes = 256;
  const cuda::DeviceMemory memory = cuda::allocate_device(bytes);
  for (const Transfer transfer : {Transfer::receive_value, Transfer::send_gradient,
                                  Transfer::send_value, Transfer::receive_gradient}) {
    if (lane(transfer).communicator == nullptr) continue;
    start(transfer, 0, memory.get(), bytes, stream_.get());
    finish(transfer, 0, stream_.get());
    NM_CALL(cudaStreamSynchronize(stream_.get()));
  }
}

// Whether what came is what the neighbour sent; 0 bytes: there is no neighbour.
bool NcclStageLinks::passes(Transfer send, Transfer receive, int64_t sent_bytes,
                            int64_t received_bytes, int run) {
  const cuda::DeviceMemory out = cuda::allocate_device(sent_bytes + 1);
  const cuda::DeviceMemory in = cuda::allocate_device(received_bytes + 1);
  upload_known(out.get(), sent_bytes, stage_, run, stream_.get());
  NM_CALL(cudaMemsetAsync(in.get(), 0xff, received_bytes + 1, stream_.get()));
  if (received_bytes > 0) start(receive, 0, in.get(), received_bytes, stream_.get());
  if (sent_bytes > 0) start(send, 0, out.get(), sent_bytes, stream_.get());
  if (received_bytes > 0) finish(receive, 0, stream_.get());
  if (sent_bytes > 0) finish(send, 0, stream_.get());
  const int neighbour = is_to_next(receive) ? stage_ + 1 : stage_ - 1;
  return are_known(in.get(), received_bytes, neighbour, run, stream_.get());
}

// The time of a value, with nothing else on the GPU. Of two in a row the second is timed: by then
// neither stage waits for the other to begin, nor the GPU for the host.
double NcclStageLinks::seconds_of_value(int64_t bytes_from_previous, int64_t bytes_to_next) {
  const cuda::DeviceMemory out = cuda::allocate_device(bytes_to_next + 1);
  const cuda::DeviceMemory in = cuda::allocate_device(bytes_from_previous + 1);
  const cuda::EventHandle begin = cuda::make_event(), end = cuda::make_event();
  const auto transfer = [&] {
    if (bytes_from_previous > 0) {
      start(Transfer::receive_value, 0, in.get(), bytes_from_previous, stream_.get());
    }
    if (bytes_to_next > 0) {
      start(Transfer::send_value, 0, out.get(), bytes_to_next, stream_.get());
    }
    if (bytes_from_previous > 0) finish(Transfer::receive_value, 0, stream_.get());
    if (bytes_to_next > 0) finish(Transfer::send_value, 0, stream_.get());
  };
  transfer();
  NM_CALL(cudaEventRecord(begin.get(), stream_.get()));
  transfer();
  NM_CALL(cudaEventRecord(end.get(), stream_.get()));
  return cuda::seconds_between(begin.get(), end.get());
}

BoundaryTest NcclStageLinks::test(int64_t bytes_from_previous, int64_t bytes_to_next, int repeats) {
  BoundaryTest test{.bytes = bytes_to_next};
  std::vector<double> seconds;
  for (int run = 0; run < repeats; ++run) {
    const bool values = passes(Transfer::send_value, Transfer::receive_value, bytes_to_next,
                               bytes_from_previous, run);
    const bool gradients = passes(Transfer::send_gradient, Transfer::receive_gradient,
                                  bytes_from_previous, bytes_to_next, run);
    test.exact = test.exact && values && gradients;
    seconds.push_back(seconds_of_value(bytes_from_previous, bytes_to_next));
  }
  test.seconds = median_of(seconds);
  return test;
}

}  // namespace
}  // namespace nearmetal

NM_EXPORT nearmetal::StageLinks* nearmetal_join_stage_links(
    const nearmetal::JoinRequest& request, std::span<const nearmetal::StageGroups> groups) {
  return new nearmetal::NcclStageLinks(request, groups);
}
