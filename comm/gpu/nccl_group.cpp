// NCCL as the program sees it (comm/nccl.h): groups of ranks, and how fast it moves
// bytes of the GPUs' memory between them.
#include "comm/gpu/nccl_group.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <stdexcept>

#include "comm/nccl.h"
#include "models/load_module.h"

namespace nearmetal {
namespace {

struct Group {
  Group(const std::string& name, int rank_, int ranks_, int gpu) : rank(rank_), ranks(ranks_) {
    NM_CALL(cudaSetDevice(gpu));
    communicator = join_group(name, rank, ranks);
    stream = cuda::make_stream();
    begin = cuda::make_event();
    end = cuda::make_event();
  }

  int rank, ranks;
  cuda::StreamHandle stream;
  cuda::EventHandle begin, end;
  Communicator communicator;
};

// An exchange of `count` fp32 values, in place or from `in` to `out`.
using Exchange = std::function<ncclResult_t(const Group&, const void* in, void* out, size_t count)>;

ncclResult_t all_reduce(const Group& group, const void* in, void* out, size_t count) {
  return ncclAllReduce(in, out, count, ncclFloat32, ncclSum, group.communicator.get(),
                       group.stream.get());
}
ncclResult_t all_gather(const Group& group, const void* in, void* out, size_t count) {
  return ncclAllGather(in, out, count / group.ranks, ncclFloat32, group.communicator.get(),
                       group.stream.get());
}
ncclResult_t broadcast(const Group& group, const void* in, void* out, size_t count) {
  return ncclBroadcast(in, out, count, ncclFloat32, 0, group.communicator.get(),
                       group.stream.get());
}

struct Kind {
  const char* name;
  const char* work;
  Exchange exchange;
  double bus_factor;
  float expected;  // the last value, where each rank gives its number plus 1
};

std::vector<Kind> kinds(int ranks) {
  const auto n = static_cast<float>(ranks);
  return {{"allreduce", "summed over all GPUs", all_reduce, 2 * (n - 1) / n, n * (n + 1) / 2},
          {"allgather", "of all GPUs together to each", all_gather, (n - 1) / n, n},
          {"broadcast", "from the first GPU to all", broadcast, 1, 1}};
}

TimedRuns started(const std::shared_ptr<Group>& group, const Kind& kind, int64_t bytes) {
  const size_t ranks = group->ranks;
  // So that each rank has something to give to allgather.
  const size_t count = (bytes / sizeof(float) + ranks - 1) / ranks * ranks;
  const std::vector<float> given(count, static_cast<float>(group->rank + 1));
  const std::shared_ptr<void> in = cuda::allocate_device(count * sizeof(float));
  const std::shared_ptr<void> out = cuda::allocate_device(count * sizeof(float));
  // On the stream of the exchange, which does not wait for the default one.
  NM_CALL(cudaMemcpyAsync(in.get(), given.data(), count * sizeof(float), cudaMemcpyHostToDevice,
                          group->stream.get()));
  NM_CALL(cudaMemsetAsync(out.get(), 0, count * sizeof(float), group->stream.get()));
  NM_CALL(kind.exchange(*group, in.get(), out.get(), count));
  float found = 0;
  NM_CALL(cudaMemcpyAsync(&found, static_cast<float*>(out.get()) + count - 1, sizeof(found),
                          cudaMemcpyDeviceToHost, group->stream.get()));
  NM_CALL(cudaStreamSynchronize(group->stream.get()));
  if (found != kind.expected) {
    throw std::runtime_error(std::string("NCCL: ") + kind.name + " gave " + std::to_string(found) +
                             " instead of " + std::to_string(kind.expected));
  }
  return [group, exchange = kind.exchange, in, out, count](int64_t runs) {
    NM_CALL(cudaEventRecord(group->begin.get(), group->stream.get()));
    for (int64_t run = 0; run < runs; ++run) {
      NM_CALL(exchange(*group, in.get(), out.get(), count));
    }
    NM_CALL(cudaEventRecord(group->end.get(), group->stream.get()));
    return cuda::seconds_between(group->begin.get(), group->end.get());
  };
}

class NcclLibrary : public Nccl {
 public:
  std::string version() const override { return nccl_version(); }

  void set_up(const NcclSetUp& set_up) override {
    if (set_up.algorithm != NcclAlgorithm::automatic) {
      setenv("NCCL_ALGO", to_string(set_up.algorithm), 1);
    }
    if (set_up.keep_log && std::getenv("NCCL_DEBUG") == nullptr) keep_log();
  }

  std::string log() override {
    std::string text;
    char piece[4096];
    for (ssize_t got = 0; (got = pread(log_, piece, sizeof(piece), std::ssize(text))) > 0;) {
      text.append(piece, got);
    }
    return text;
  }

  std::string new_group() override {
    ncclUniqueId id{};
    NM_CALL(ncclGetUniqueId(&id));
    return {id.internal, sizeof(id.internal)};
  }

  std::vector<Probe> probes(const std::string& name, int rank, int ranks, int gpu) override {
    const auto group = std::make_shared<Group>(name, rank, ranks, gpu);
    std::vector<Probe> probes;
    for (const Kind& kind : kinds(ranks)) {
      for (const int64_t bytes : exchanged_bytes) {
        probes.push_back({.name = exchange_probe_name("nccl", kind.name, bytes),
                          .work = kind.work,
                          .bytes = static_cast<double>(bytes),
                          .bus_factor = kind.bus_factor,
                          .runs_at_once = 20,
                          .start = [=] { return started(group, kind, bytes); }});
      }
    }
    return probes;
  }

 private:
  // Into memory. NCCL would write to stdout if it could not open what is named here.
  void keep_log() {
    log_ = memfd_create("nccl-log", MFD_CLOEXEC);
    const std::string path = "/proc/self/fd/" + std::to_string(log_);
    if (log_ < 0 || access(path.c_str(), W_OK) != 0) return;
    setenv("NCCL_DEBUG_FILE", path.c_str(), 1);
    setenv("NCCL_DEBUG_SUBSYS", "INIT,GRAPH,TUNING", 1);
    setenv("NCCL_DEBUG", "INFO", 1);
  }

  int log_ = -1;
};

}  // namespace

void cuda::require_ok(ncclResult_t status, const char* call, const char* file, int line) {
  if (status == ncclSuccess) return;
  fail_call(std::string("NCCL: ") + ncclGetErrorString(status) + " " + ncclGetLastError(nullptr),
            call, file, line);
}

std::string nccl_version() {
  int version = 0;
  NM_CALL(ncclGetVersion(&version));
  return "nccl " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
         "." + std::to_string(version % 100);
}

ncclDataType_t nccl_type(Precision type) {
  if (type == Precision::fp16) return ncclFloat16;
  return type == Precision::bf16 ? ncclBfloat16 : ncclFloat32;
}

Communicator join_group(const std::string& group, int rank, int ranks) {
  ncclUniqueId id{};
  if (group.size() != sizeof(id)) throw std::invalid_argument("this names no group of NCCL");
  std::memcpy(&id, group.data(), sizeof(id));
  ncclComm_t communicator = nullptr;
  NM_CALL(ncclCommInitRank(&communicator, ranks, id, rank));
  return Communicator(communicator);
}

}  // namespace nearmetal

NM_EXPORT nearmetal::Nccl* nearmetal_nccl() {
  static nearmetal::NcclLibrary library;
  return &library;
}
