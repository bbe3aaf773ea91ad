// NCCL as the program sees it (comm/join_all_reduce.h), and groups of ranks.
#include "comm/gpu/nccl_group.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <stdexcept>

#include "comm/join_all_reduce.h"
#include "models/load_module.h"

namespace nearmetal {
namespace {

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

  std::vector<Probe> probes(const std::string& group, int rank, int ranks, int gpu) override {
    return nccl_probes(group, rank, ranks, gpu);
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
  switch (type) {
    case Precision::fp16:
      return ncclFloat16;
    case Precision::bf16:
      return ncclBfloat16;
    default:
      return ncclFloat32;
  }
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
