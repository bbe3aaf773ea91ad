#include "models/cuda/libraries/handles.h"

#include <algorithm>
#include <array>
#include <string>

namespace nearmetal::cuda {

std::string explained(cudnnStatus_t status) {
  std::array<char, 512> detail{};
  cudnnGetLastErrorString(detail.data(), detail.size());
  return std::string(cudnnGetErrorString(status)) + " " + detail.data();
}

void require_ok(cudnnStatus_t status, const char* call, const char* file, int line) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  fail_call("cuDNN: " + explained(status), call, file, line);
}

void require_ok(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail_call(std::string("cuBLAS: ") + cublasLtGetStatusString(status), call, file, line);
}

CublasLtHandle make_cublas() { return NM_MAKE(CublasLtHandle, cublasLtCreate); }

std::vector<Descriptor> Descriptor::descriptors(cudnnBackendAttributeName_t name,
                                                cudnnBackendDescriptorType_t type,
                                                int64_t limit) const {
  std::vector<Descriptor> found;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < limit; ++i) raw.push_back(found.emplace_back(type).get());
  int64_t count = 0;
  NM_CALL(cudnnBackendGetAttribute(get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, limit, &count,
                                   raw.data()));
  found.erase(found.begin() + std::min(count, limit), found.end());
  return found;
}

}  // namespace nearmetal::cuda
