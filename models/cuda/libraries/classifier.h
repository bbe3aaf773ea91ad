// The three matrix products of the classifier, by cuBLASLt.
#pragma once

#include <cublasLt.h>

#include <cstdint>

#include "models/cuda/kernels/head.h"
#include "models/cuda/libraries/handles.h"
#include "models/program.h"

namespace nearmetal::cuda {

/// Row-major matrices: d [rows, columns] = a * b, where a is [rows, inner] or stored transposed,
/// and b likewise. `*_stride`: elements from one row to the next, as stored.
struct ProductShape {
  int64_t rows = 0, columns = 0, inner = 0;
  bool a_transposed = false, b_transposed = false;
  int64_t a_stride = 0, b_stride = 0, d_stride = 0;
  bool fp32_result = false;  // else the type of the operands
};

class Product {
 public:
  /// Throws std::runtime_error if cuBLASLt offers nothing within the workspace.
  Product(cublasLtHandle_t handle, Precision precision, const ProductShape& shape,
          int64_t workspace_bytes);
  void launch(const void* a, const void* b, void* d, void* workspace, cudaStream_t stream) const;

 private:
  using MatmulDescriptor = Handle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
  using MatrixLayout = Handle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

  cublasLtHandle_t handle_;
  MatmulDescriptor operation_;
  MatrixLayout a_, b_, d_;
  cublasLtMatmulAlgo_t algorithm_;
  int64_t workspace_bytes_;
};

/// Features [images, inputs], weights [classes, inputs], logits and their gradients in the rows of
/// LogitsShape.
ProductShape logits_product(const LogitsShape& logits, int64_t inputs);
ProductShape weight_gradient_product(const LogitsShape& logits, int64_t inputs);
ProductShape feature_gradient_product(const LogitsShape& logits, int64_t inputs);

}  // namespace nearmetal::cuda
