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

}  // namespace nearmetal::cuda
