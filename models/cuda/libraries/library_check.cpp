#include "models/cuda/libraries/library_check.h"

#include <array>
#include <string>

namespace nearmetal::cuda {

void require_ok(cudnnStatus_t status, const char* call, const char* file, int line) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 512> detail{};
  cudnnGetLastErrorString(detail.data(), detail.size());
  fail_call(std::string("cuDNN: ") + cudnnGetErrorString(status) + " " + detail.data(), call, file,
            line);
}

void require_ok(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail_call(std::string("cuBLAS: ") + cublasLtGetStatusString(status), call, file, line);
}

CublasLtHandle make_cublas() {
  cublasLtHandle_t handle = nullptr;
  NM_CALL(cublasLtCreate(&handle));
  return CublasLtHandle(handle);
}

}  // namespace nearmetal::cuda
