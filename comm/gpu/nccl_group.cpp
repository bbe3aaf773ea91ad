#include "comm/gpu/nccl_group.h"

#include <cstring>
#include <stdexcept>

namespace nearmetal {

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
