#include "models/cuda/libraries/linear.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "base/names.h"
#include "base/text.h"

namespace nearmetal::cuda {
namespace {

cudaDataType_t cublas_type(Precision precision) {
  if (precision == Precision::fp16) return CUDA_R_16F;
  return precision == Precision::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

// The layout of a matrix in rows of `stride` elements, which is its transpose in columns: cuBLASLt
// adds a bias to each row of a result in columns.
cublasLtMatrixLayout_t make_layout(cudaDataType_t type, int64_t rows, int64_t columns,
                                   bool transposed, int64_t stride, int64_t count, int64_t step) {
  cublasLtMatrixLayout_t layout = nullptr;
  if (transposed) std::swap(rows, columns);
  NM_CALL(cublasLtMatrixLayoutCreate(&layout, type, columns, rows, stride));
  if (count == 1) return layout;
  const auto set = [&](cublasLtMatrixLayoutAttribute_t name, auto value) {
    NM_CALL(cublasLtMatrixLayoutSetAttribute(layout, name, &value, sizeof(value)));
  };
  set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(count));
  set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, step);
  return layout;
}

// d' = b' a', so that b is the first operand.
cublasLtMatmulDesc_t make_operation(Precision precision, const ProductShape& shape,
                                    const void* bias) {
  const cublasComputeType_t compute =
      precision == Precision::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  cublasLtMatmulDesc_t operation = nullptr;
  NM_CALL(cublasLtMatmulDescCreate(&operation, compute, CUDA_R_32F));
  const auto set = [&](cublasLtMatmulDescAttributes_t name, auto value) {
    NM_CALL(cublasLtMatmulDescSetAttribute(operation, name, &value, sizeof(value)));
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, shape.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, shape.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (bias == nullptr) return operation;
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, cublas_type(precision));
  return operation;
}

cublasLtMatmulPreference_t make_preference(const ProductShape& shape, int64_t workspace_bytes) {
  cublasLtMatmulPreference_t preference = nullptr;
  NM_CALL(cublasLtMatmulPreferenceCreate(&preference));
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, auto value) {
    NM_CALL(cublasLtMatmulPreferenceSetAttribute(preference, name, &value, sizeof(value)));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace_bytes));
  for (const auto matrix :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    set(matrix, static_cast<uint32_t>(shape.alignment_bytes));
  }
  return preference;
}

// Algorithms may be kept as they are, for the same version of the library (cuBLAS documentation,
// cublasLtMatmulAlgo_t): its words in hexadecimal, without zeros at the end.
std::string name_of(const cublasLtMatmulAlgo_t& algorithm) {
  const std::span words(algorithm.data);
  const auto last = std::find_if(words.rbegin(), words.rend(), [](auto word) { return word != 0; });
  std::ostringstream name;
  name << "lt" << std::hex;
  for (auto word = words.begin(); word != last.base(); ++word) name << '_' << *word;
  return name.str();
}

std::optional<cublasLtMatmulAlgo_t> named_algorithm(const std::string& name) {
  cublasLtMatmulAlgo_t algorithm{};
  std::istringstream text(name);
  std::string word;
  if (!std::getline(text, word, '_') || word != "lt") return std::nullopt;
  size_t count = 0;
  for (; std::getline(text, word, '_'); ++count) {
    const char* const end = word.data() + word.size();
    if (count == std::size(algorithm.data)) return std::nullopt;
    const auto [read, error] = std::from_chars(word.data(), end, algorithm.data[count], 16);
    if (error != std::errc() || read != end) return std::nullopt;
  }
  return count == 0 ? std::nullopt : std::optional(algorithm);
}

// Larger clusters are replaced by these.
constexpr cublasLtClusterShape_t two_blocks[] = {CUBLASLT_CLUSTER_SHAPE_2x1x1,
                                                 CUBLASLT_CLUSTER_SHAPE_1x2x1};

// Kernels without clusters leave the shape to the library (AUTO).
bool is_small_cluster(const cublasLtMatmulAlgo_t& algorithm) {
  uint16_t shape = 0;
  size_t written = 0;
  NM_CALL(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID,
                                               &shape, sizeof(shape), &written));
  return shape == CUBLASLT_CLUSTER_SHAPE_AUTO || shape == CUBLASLT_CLUSTER_SHAPE_1x1x1 ||
         std::ranges::find(two_blocks, shape) != std::end(two_blocks);
}

// The constructor takes the first of these that has, or takes, a small cluster.
constexpr int most_first_algorithms = 8;

}  // namespace

bool has_small_clusters(const std::string& algorithm) {
  const auto named = named_algorithm(algorithm);
  return named && is_small_cluster(*named);
}

Product::Product(cublasLtHandle_t handle, Precision precision, const ProductShape& shape,
                 const void* bias, int64_t workspace_bytes)
    : handle_(handle),
      operation_(make_operation(precision, shape, bias)),
      a_(make_layout(cublas_type(precision), shape.rows, shape.inner, shape.a_transposed,
                     shape.a_stride, shape.count, shape.a_step)),
      b_(make_layout(cublas_type(precision), shape.inner, shape.columns, shape.b_transposed,
                     shape.b_stride, shape.count, shape.b_step)),
      d_(make_layout(shape.fp32_result ? CUDA_R_32F : cublas_type(precision), shape.rows,
                     shape.columns, false, shape.d_stride, shape.count, shape.d_step)),
      preference_(make_preference(shape, workspace_bytes)),
      workspace_bytes_(workspace_bytes) {
  const std::vector<cublasLtMatmulAlgo_t> found = heuristic(most_first_algorithms);
  if (found.empty()) throw std::runtime_error("cuBLASLt offers no algorithm for a product");
  algorithm_ = found.front();
}

std::vector<cublasLtMatmulAlgo_t> Product::heuristic(int most) const {
  std::vector<cublasLtMatmulHeuristicResult_t> results(most);
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_, operation_.get(), b_.get(), a_.get(), d_.get(),
                                     d_.get(), preference_.get(), most, results.data(), &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  NM_CALL(status);
  std::vector<cublasLtMatmulAlgo_t> found;
  for (int i = 0; i < count; ++i) {
    if (results[i].state != CUBLAS_STATUS_SUCCESS) continue;
    append(found, in_small_clusters(results[i].algo));
  }
  return found;
}

std::vector<cublasLtMatmulAlgo_t> Product::in_small_clusters(
    const cublasLtMatmulAlgo_t& algorithm) const {
  if (is_small_cluster(algorithm)) return {algorithm};
  std::vector<cublasLtMatmulAlgo_t> found;
  for (const uint16_t shape : two_blocks) {
    cublasLtMatmulAlgo_t smaller = algorithm;
    NM_CALL(cublasLtMatmulAlgoConfigSetAttribute(&smaller, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID,
                                                 &shape, sizeof(shape)));
    if (takes(smaller)) found.push_back(smaller);
  }
  return found;
}

std::vector<std::string> Product::offered(int most) const {
  std::vector<std::string> names;
  for (const cublasLtMatmulAlgo_t& algorithm : heuristic(most)) add_new(names, name_of(algorithm));
  return names;
}

bool Product::takes(const cublasLtMatmulAlgo_t& algorithm) const {
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(
      handle_, operation_.get(), b_.get(), a_.get(), d_.get(), d_.get(), &algorithm, &result);
  return status == CUBLAS_STATUS_SUCCESS &&
         static_cast<int64_t>(result.workspaceSize) <= workspace_bytes_;
}

bool Product::use(const std::string& algorithm) {
  const auto named = named_algorithm(algorithm);
  if (!named || !takes(*named)) return false;
  algorithm_ = *named;
  return true;
}

void Product::launch(const ProductOperands& operands, void* workspace, cudaStream_t stream) const {
  NM_CALL(try_launch(operands, workspace, stream));
}

cublasStatus_t Product::try_launch(const ProductOperands& operands, void* workspace,
                                   cudaStream_t stream) const {
  const auto& [a, b, d, bias, residual] = operands;
  const float alpha = 1, beta = residual == nullptr ? 0 : 1;
  return cublasLtMatmul(handle_, operation_.get(), &alpha, b, b_.get(), a, a_.get(), &beta,
                        residual == nullptr ? d : residual, d_.get(), d, d_.get(), &algorithm_,
                        workspace, workspace_bytes_, stream);
}

std::string LinearProblem::key() const {
  static constexpr const char* names[] = {"forward", "weight_gradient", "input_gradient"};
  std::ostringstream text;
  text << "product " << names[static_cast<int>(op)] << ' ' << to_string(precision) << ' '
       << shape.samples << 'x' << shape.inputs << " w" << shape.outputs;
  if (shape.row_elements != shape.outputs) text << " of " << shape.row_elements;
  if (adds_bias) text << " bias";
  if (adds_residual) text << " residual";
  return text.str();
}

ProductShape LinearProblem::product(bool fp32_result) const {
  const auto& [samples, inputs, outputs, row_elements] = shape;
  switch (op) {
    case LinearOp::forward:
      return {samples, outputs, inputs, false, true, inputs, inputs, row_elements, fp32_result};
    case LinearOp::weight_gradient:
      return {outputs, inputs, samples, true, false, row_elements, inputs, inputs, fp32_result};
    case LinearOp::input_gradient:
      return {samples, inputs, outputs, false, false, row_elements, inputs, inputs, fp32_result};
  }
  throw std::logic_error("unknown LinearOp");
}

}  // namespace nearmetal::cuda
