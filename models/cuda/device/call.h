// Status checks of CUDA's calls: all that a file of kernels needs of the host.
#pragma once

#include <cuda_runtime.h>

namespace nearmetal::cuda {

/// Throws std::runtime_error with CUDA's own text unless the call succeeded.
void require_ok(cudaError_t status, const char* call, const char* file, int line);

#define NM_CALL(expression) \
  ::nearmetal::cuda::require_ok((expression), #expression, __FILE__, __LINE__)
// After a kernel launch, which has no status of its own.
#define NM_CHECK_LAUNCH() \
  ::nearmetal::cuda::require_ok(cudaGetLastError(), "kernel", __FILE__, __LINE__)

/// Throws std::logic_error: the caller asked for what there is no kernel for.
[[noreturn]] void no_kernel(const char* what);

}  // namespace nearmetal::cuda
