// Matrix products by cuBLASLt: the three of a linear layer, and those of attention.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <string>
#include <vector>

#include "models/cuda/libraries/handles.h"
#include "models/training_options.h"

namespace nearmetal::cuda {

/// Row-major matrices: d [rows, columns] = a * b, where a is [rows, inner] or stored transposed,
/// and b likewise. `*_stride`: elements from one row to the next, as stored.
struct ProductShape {
  int64_t rows = 0, columns = 0, inner = 0;
  bool a_transposed = false, b_transposed = false;
  int64_t a_stride = 0, b_stride = 0, d_stride = 0;
  bool fp32_result = false;  // else the type of the operands
  // So many products, whose matrices are so many elements apart.
  int64_t count = 1;
  int64_t a_step = 0, b_step = 0, d_step = 0;
  int64_t alignment_bytes = 256;  // of the first element of each matrix
};

/// Device addresses. What is added to the product may be absent (null): a value for each column, of
/// the type of the operands, and a matrix as d, which may be d itself.
struct ProductOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  const void* bias = nullptr;
  const void* residual = nullptr;
};

class Product {
 public:
  /// With the bias that every launch will have, and the first algorithm that is offered. Throws
  /// std::runtime_error if cuBLASLt has none within the workspace.
  Product(cublasLtHandle_t handle, Precision precision, const ProductShape& shape, const void* bias,
          int64_t workspace_bytes);
  void launch(const ProductOperands& operands, void* workspace, cudaStream_t stream) const;
  /// Fails where the algorithm does not take these operands after all.
  cublasStatus_t try_launch(const ProductOperands& operands, void* workspace,
                            cudaStream_t stream) const;

  /// Names of the `most` algorithms that cuBLASLt's heuristic puts first. One with a large cluster
  /// is offered in both shapes of two thread blocks instead, as far as it computes the product so.
  std::vector<std::string> offered(int most) const;
  /// Takes the algorithm of this name, of the same version of cuBLASLt, from now on; false if it
  /// does not compute this product here.
  bool use(const std::string& algorithm);

 private:
  using MatmulDescriptor = Handle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
  using MatrixLayout = Handle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
  using Preference = Handle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

  std::vector<cublasLtMatmulAlgo_t> heuristic(int most) const;
  std::vector<cublasLtMatmulAlgo_t> in_small_clusters(const cublasLtMatmulAlgo_t& algorithm) const;
  bool takes(const cublasLtMatmulAlgo_t& algorithm) const;

  cublasLtHandle_t handle_;
  MatmulDescriptor operation_;
  MatrixLayout a_, b_, d_;
  Preference preference_;
  cublasLtMatmulAlgo_t algorithm_;
  int64_t workspace_bytes_;
};

/// Whether the algorithm of this name has clusters of at most two thread blocks, or none. Kernels
/// with larger ones end with "unspecified launch failure" on a GPU whose time slices other
/// processes take (docs/notes/transformers.md), so that only a pinned plan has them.
bool has_small_clusters(const std::string& algorithm);

/// For each of `samples` rows: x [samples, inputs], weights [outputs, inputs], y [samples, outputs]
/// and its gradient in rows of `row_elements`.
struct LinearShape {
  int64_t samples = 0, inputs = 0, outputs = 0, row_elements = 0;
};

enum class LinearOp { forward, weight_gradient, input_gradient };

/// One of the three, as the tuner sees it.
struct LinearProblem {
  LinearOp op = LinearOp::forward;
  LinearShape shape;
  Precision precision = Precision::fp16;
  bool adds_bias = false, adds_residual = false;  // forward alone

  /// Names the work: two problems with the same key can run the same algorithm.
  std::string key() const;
  ProductShape product(bool fp32_result = false) const;
};

}  // namespace nearmetal::cuda
