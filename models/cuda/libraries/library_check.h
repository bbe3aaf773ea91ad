// Status checks and owning handles of cuDNN and cuBLASLt.
#pragma once

#include <cublasLt.h>
#include <cudnn_graph.h>

#include "models/cuda/device/check.h"

namespace nearmetal::cuda {

void require_ok(cudnnStatus_t status, const char* call, const char* file, int line);
void require_ok(cublasStatus_t status, const char* call, const char* file, int line);

using CudnnHandle = Handle<cudnnHandle_t, cudnnDestroy>;
using CublasLtHandle = Handle<cublasLtHandle_t, cublasLtDestroy>;
CublasLtHandle make_cublas();

}  // namespace nearmetal::cuda
