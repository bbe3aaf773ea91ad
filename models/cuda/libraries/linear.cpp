#include "models/cuda/libraries/linear.h"

#include <stdexcept>

namespace nearmetal::cuda {
namespace {

cudaDataType_t cublas_type(Precision precision) {
  switch (precision) {
    case Precision::fp16:
      return CUDA_R_16F;
    case Precision::bf16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

cublasLtMatrixLayout_t make_layout(cudaDataType_t type, int64_t rows, int64_t columns,
                                   int64_t stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  NM_CALL(cublasLtMatrixLayoutCreate(&layout, type, rows, columns, stride));
  const cublasLtOrder_t order = CUBLASLT_ORDER_ROW;
  NM_CALL(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &order,
                                           sizeof(order)));
  return layout;
}

cublasLtMatmulDesc_t make_operation(Precision precision, const ProductShape& shape) {
  const cublasComputeType_t compute =
      precision == Precision::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  cublasLtMatmulDesc_t operation = nullptr;
  NM_CALL(cublasLtMatmulDescCreate(&operation, compute, CUDA_R_32F));
  const auto transpose = [&](cublasLtMatmulDescAttributes_t name, bool transposed) {
    const cublasOperation_t value = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    NM_CALL(cublasLtMatmulDescSetAttribute(operation, name, &value, sizeof(value)));
  };
  transpose(CUBLASLT_MATMUL_DESC_TRANSA, shape.a_transposed);
  transpose(CUBLASLT_MATMUL_DESC_TRANSB, shape.b_transposed);
  return operation;
}

}  // namespace

Product::Product(cublasLtHandle_t handle, Precision precision, const ProductShape& shape,
                 int64_t workspace_bytes)
    : handle_(handle),
      operation_(make_operation(precision, shape)),
      a_(make_layout(cublas_type(precision), shape.a_transposed ? shape.inner : shape.rows,
                     shape.a_transposed ? shape.rows : shape.inner, shape.a_stride)),
      b_(make_layout(cublas_type(precision), shape.b_transposed ? shape.columns : shape.inner,
                     shape.b_transposed ? shape.inner : shape.columns, shape.b_stride)),
      d_(make_layout(shape.fp32_result ? CUDA_R_32F : cublas_type(precision), shape.rows,
                     shape.columns, shape.d_stride)),
      workspace_bytes_(workspace_bytes) {
  cublasLtMatmulPreference_t raw = nullptr;
  NM_CALL(cublasLtMatmulPreferenceCreate(&raw));
  const Handle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference(raw);
  const auto limit = static_cast<uint64_t>(workspace_bytes);
  NM_CALL(cublasLtMatmulPreferenceSetAttribute(raw, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &limit, sizeof(limit)));
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  NM_CALL(cublasLtMatmulAlgoGetHeuristic(handle_, operation_.get(), a_.get(), b_.get(), d_.get(),
                                         d_.get(), raw, 1, &best, &found));
  if (found == 0) throw std::runtime_error("cuBLASLt offers no algorithm for a linear layer");
  algorithm_ = best.algo;
}

void Product::launch(const void* a, const void* b, void* d, void* workspace,
                     cudaStream_t stream) const {
  const float alpha = 1, beta = 0;
  NM_CALL(cublasLtMatmul(handle_, operation_.get(), &alpha, a, a_.get(), b, b_.get(), &beta, d,
                         d_.get(), d, d_.get(), &algorithm_, workspace, workspace_bytes_, stream));
}

ProductShape forward_product(const LinearShape& linear, bool fp32_result) {
  const auto& [samples, inputs, outputs, row_elements] = linear;
  return {samples, outputs, inputs, false, true, inputs, inputs, row_elements, fp32_result};
}

ProductShape weight_gradient_product(const LinearShape& linear) {
  const auto& [samples, inputs, outputs, row_elements] = linear;
  return {outputs, inputs, samples, true, false, row_elements, inputs, inputs, false};
}

ProductShape input_gradient_product(const LinearShape& linear) {
  const auto& [samples, inputs, outputs, row_elements] = linear;
  return {samples, inputs, outputs, false, false, row_elements, inputs, inputs, false};
}

}  // namespace nearmetal::cuda
