#include "models/cuda/libraries/attention.h"

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "base/names.h"

namespace nearmetal::cuda {
namespace {

// Unique ids of the tensors of an attention's graph that have an address.
enum AttentionTensorId : int64_t {
  q_id = 1,
  k_id,
  v_id,
  attended_id,
  log_sums_id,
  attended_gradient_id,
  dots_id,
  q_gradient_id,
  k_gradient_id,
  v_gradient_id,
  query_counts_id,
  key_counts_id,
  // On the host:
  score_factor_id,
  one_id,
  minus_infinity_id,
  first_virtual_id  // of those without
};

// [batch, heads, rows, columns], and from one to the next, in elements.
struct HeadLayout {
  std::array<int64_t, 4> sizes, steps;

  HeadLayout transposed() const {
    HeadLayout other = *this;
    std::swap(other.sizes[2], other.sizes[3]);
    std::swap(other.steps[2], other.steps[3]);
    return other;
  }
};

HeadLayout dense(int64_t batch, int64_t heads, int64_t rows, int64_t columns) {
  return {{batch, heads, rows, columns}, {heads * rows * columns, rows * columns, columns, 1}};
}

enum class Where { device, host, nowhere };

Descriptor head_tensor(int64_t id, cudnnDataType_t type, const HeadLayout& layout, Where where) {
  const bool is_virtual = where == Where::nowhere, by_value = where == Where::host;
  Descriptor descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
      .set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 16)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, layout.sizes.data())
      .set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, layout.steps.data())
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual)
      .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value)
      .finalize();
  return descriptor;
}

// Appends operations and makes the tensors between them.
class AttentionGraph {
 public:
  explicit AttentionGraph(const AttentionProblem& problem)
      : extent_(problem.extent), type_(cudnn_type(problem.precision)) {
    if (!masks_tokens(extent_)) return;
    const HeadLayout counts = dense(extent_.batch, 1, 1, 1);
    query_counts_ = head_tensor(query_counts_id, CUDNN_DATA_INT32, counts, Where::device);
    key_counts_ = head_tensor(key_counts_id, CUDNN_DATA_INT32, counts, Where::device);
  }

  void forward() {
    const Descriptor q = stored(q_id, part_of_packed()), v = stored(v_id, part_of_packed());
    const Descriptor k = stored(k_id, part_of_packed().transposed());
    const Descriptor weighed = masked(factored(product(q, k)));
    const Descriptor largest = between(rows());
    reduce(CUDNN_REDUCE_TENSOR_MAX, weighed, largest);
    const Descriptor below = of_scores(CUDNN_POINTWISE_SUB, weighed, &largest);
    const Descriptor exponential = of_scores(CUDNN_POINTWISE_EXP, below, nullptr);
    const Descriptor sum = between(rows()), logarithm = between(rows());
    reduce(CUDNN_REDUCE_TENSOR_ADD, exponential, sum);
    apply(pointwise(CUDNN_POINTWISE_LOG), sum, nullptr, logarithm);
    apply(pointwise(CUDNN_POINTWISE_ADD), largest, &logarithm, stored_rows(log_sums_id));
    const Descriptor probabilities = between(scores(), type_);
    apply(pointwise(CUDNN_POINTWISE_DIV), exponential, &sum, probabilities);
    multiply(probabilities, v, stored(attended_id, of_tokens(extent_.features())), query_counts_,
             std::nullopt, key_counts_);
  }
  void backward() {
    const HeadLayout packed = part_of_packed(), tokens = of_tokens(extent_.features());
    const Descriptor q = stored(q_id, packed), k = stored(k_id, packed.transposed());
    const Descriptor v = stored(v_id, packed.transposed());
    const Descriptor y = stored(attended_id, tokens), dy = stored(attended_gradient_id, tokens);
    const Descriptor log_sums = stored_rows(log_sums_id), dots = stored_rows(dots_id);

    const Descriptor weighed_gradient =
        between(dense(extent_.batch, extent_.heads, extent_.tokens, extent_.head_features));
    const Descriptor sums = between(rows()), one = value(one_id);
    apply(pointwise(CUDNN_POINTWISE_MUL), dy, &y, weighed_gradient);
    reduce(CUDNN_REDUCE_TENSOR_ADD, weighed_gradient, sums);
    // Where others divide what dropout multiplied with; the engines ask for it.
    apply(pointwise(CUDNN_POINTWISE_MUL), sums, &one, dots);

    const Descriptor weighed = masked(factored(product(q, k)));
    const Descriptor below = of_scores(CUDNN_POINTWISE_SUB, weighed, &log_sums);
    const Descriptor probabilities = of_scores(CUDNN_POINTWISE_EXP, below, nullptr);
    multiply(transposed_scores(probabilities), dy, stored(v_gradient_id, packed), key_counts_,
             std::nullopt, query_counts_);

    const Descriptor to_mean = of_scores(CUDNN_POINTWISE_SUB, product(dy, v), &dots);
    const Descriptor score_gradient =
        factored(of_scores(CUDNN_POINTWISE_MUL, to_mean, &probabilities));
    multiply(transposed_scores(score_gradient), q, stored(k_gradient_id, packed), key_counts_,
             std::nullopt, query_counts_);

    const Descriptor keys = between(packed, type_);
    reshape(k, keys);
    multiply(score_gradient, keys, stored(q_gradient_id, packed), query_counts_, std::nullopt,
             key_counts_);
  }
  const std::vector<Descriptor>& operations() const { return operations_; }

 private:
  // Layouts.
  HeadLayout part_of_packed() const { return of_tokens(3 * extent_.features()); }
  HeadLayout of_tokens(int64_t step) const {
    const auto& [batch, tokens, heads, d] = extent_;
    return {{batch, heads, tokens, d}, {tokens * step, d, step, 1}};
  }
  HeadLayout scores() const {
    return dense(extent_.batch, extent_.heads, extent_.tokens, extent_.tokens);
  }
  HeadLayout rows() const { return dense(extent_.batch, extent_.heads, extent_.tokens, 1); }

  // Tensors.
  Descriptor stored(int64_t id, const HeadLayout& layout) const {
    return head_tensor(id, type_, layout, Where::device);
  }
  Descriptor stored_rows(int64_t id) const {
    return head_tensor(id, CUDNN_DATA_FLOAT, rows(), Where::device);
  }
  static Descriptor value(int64_t id) {
    return head_tensor(id, CUDNN_DATA_FLOAT, dense(1, 1, 1, 1), Where::host);
  }
  Descriptor between(const HeadLayout& layout, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return head_tensor(next_virtual_id_++, type, layout, Where::nowhere);
  }

  // Operations; those that return a tensor make it, which is in no memory.
  using Counts = std::optional<Descriptor>;
  // The counts say how much of each dimension is there, sample by sample.
  void multiply(const Descriptor& a, const Descriptor& b, const Descriptor& c, const Counts& rows,
                const Counts& columns, const Counts& inner) {
    Descriptor product(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    product.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT).finalize();
    Descriptor operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a)
        .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b)
        .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c)
        .set(CUDNN_ATTR_OPERATION_MATMUL_DESC, product);
    if (rows) operation.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, *rows);
    if (columns) operation.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, *columns);
    if (inner) operation.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, *inner);
    operations_.push_back(operation.finalize());
  }
  Descriptor product(const Descriptor& a, const Descriptor& b) {
    const Descriptor c = between(scores());
    multiply(a, b, c, query_counts_, key_counts_, std::nullopt);
    return c;
  }
  void apply(const Descriptor& pointwise, const Descriptor& x, const Descriptor* b,
             const Descriptor& y, const Descriptor* condition = nullptr) {
    Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise)
        .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
        .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    if (b != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
    if (condition != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *condition);
    operations_.push_back(operation.finalize());
  }
  static Descriptor pointwise(cudnnPointwiseMode_t mode,
                              cudnnDataType_t computed_in = CUDNN_DATA_FLOAT,
                              std::optional<int64_t> axis = std::nullopt) {
    Descriptor descriptor(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    descriptor.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode)
        .set(CUDNN_ATTR_POINTWISE_MATH_PREC, computed_in);
    if (axis) descriptor.set(CUDNN_ATTR_POINTWISE_AXIS, *axis);
    return descriptor.finalize();
  }
  Descriptor of_scores(cudnnPointwiseMode_t mode, const Descriptor& x, const Descriptor* b) {
    const Descriptor y = between(scores());
    apply(pointwise(mode), x, b, y);
    return y;
  }
  void reduce(cudnnReduceTensorOp_t how, const Descriptor& x, const Descriptor& y) {
    Descriptor descriptor(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    descriptor.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT)
        .set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &how)
        .finalize();
    Descriptor operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, descriptor)
        .set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x)
        .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    operations_.push_back(operation.finalize());
  }
  void reshape(const Descriptor& x, const Descriptor& y) {
    Descriptor operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x).set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    operations_.push_back(operation.finalize());
  }
  // For the next product: in 16 bits, the other way round.
  Descriptor transposed_scores(const Descriptor& x) {
    const Descriptor y = between(scores().transposed(), type_);
    reshape(x, y);
    return y;
  }
  Descriptor factored(const Descriptor& x) {
    return of_scores(CUDNN_POINTWISE_MUL, x, &score_factor_);
  }
  Descriptor index(const Descriptor& x, int64_t axis) {
    const Descriptor y = between(scores(), CUDNN_DATA_INT32);
    apply(pointwise(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, axis), x, nullptr, y);
    return y;
  }
  // Minus infinity where there is no query or no key.
  Descriptor masked(const Descriptor& x) {
    if (!query_counts_) return x;
    const auto truth = [this](cudnnPointwiseMode_t mode, const Descriptor& a, const Descriptor& b) {
      const Descriptor y = between(scores(), CUDNN_DATA_BOOLEAN);
      apply(pointwise(mode, CUDNN_DATA_BOOLEAN), a, &b, y);
      return y;
    };
    // The engines are found by the order: both indices, both comparisons, then what joins them.
    const Descriptor row = index(x, 2), column = index(x, 3);
    const Descriptor is_query = truth(CUDNN_POINTWISE_CMP_LT, row, *query_counts_);
    const Descriptor is_key = truth(CUDNN_POINTWISE_CMP_LT, column, *key_counts_);
    const Descriptor is_there = truth(CUDNN_POINTWISE_LOGICAL_AND, is_query, is_key);
    const Descriptor minus_infinity = value(minus_infinity_id), y = between(scores());
    apply(pointwise(CUDNN_POINTWISE_BINARY_SELECT), x, &minus_infinity, y, &is_there);
    return y;
  }

  const AttentionExtent extent_;
  const cudnnDataType_t type_;
  const Descriptor score_factor_ = value(score_factor_id);
  Counts query_counts_, key_counts_;
  int64_t next_virtual_id_ = first_virtual_id;
  std::vector<Descriptor> operations_;
};

Descriptor operation_graph(const PlanDevice& device, const AttentionProblem& problem) {
  AttentionGraph graph(problem);
  problem.op == AttentionOp::forward ? graph.forward() : graph.backward();
  return operation_graph(device, graph.operations());
}

}  // namespace

std::string AttentionProblem::key() const {
  std::ostringstream text;
  text << "attention " << (op == AttentionOp::forward ? "forward " : "backward ")
       << to_string(precision) << ' ' << extent.batch << 'x' << extent.tokens << 'x'
       << extent.features() << " heads " << extent.heads;
  return text.str();
}

DeviceMemory make_token_counts(const AttentionExtent& extent) {
  const std::vector<int32_t> counts(extent.batch, static_cast<int32_t>(extent.tokens));
  const auto bytes = static_cast<int64_t>(counts.size() * sizeof(int32_t));
  DeviceMemory memory = allocate_device(bytes);
  NM_CALL(cudaMemcpy(memory.get(), counts.data(), bytes, cudaMemcpyHostToDevice));
  NM_CALL(cudaDeviceSynchronize());  // the copy may return before it is done
  return memory;
}

AttentionPlan::AttentionPlan(Plan plan, const AttentionProblem& problem)
    : Plan(std::move(plan)),
      problem_(problem),
      values_(std::make_shared<const Values>(
          Values{1 / std::sqrt(static_cast<float>(problem.extent.head_features)), 1,
                 -std::numeric_limits<float>::infinity()})) {}

Descriptor AttentionPlan::bind(const AttentionOperands& operands, void* workspace) const {
  const int64_t part_bytes = problem_.extent.features() * element_bytes(problem_.precision);
  const auto part = [part_bytes](const void* packed, int index) {
    return static_cast<const char*>(packed) + index * part_bytes;
  };
  std::vector<Binding> bindings{
      {q_id, part(operands.packed, 0)}, {k_id, part(operands.packed, 1)},
      {v_id, part(operands.packed, 2)}, {attended_id, operands.y},
      {log_sums_id, operands.log_sums}, {score_factor_id, &values_->score_factor}};
  if (problem_.op == AttentionOp::backward) {
    bindings.insert(bindings.end(), {{attended_gradient_id, operands.dy},
                                     {dots_id, operands.dots},
                                     {q_gradient_id, part(operands.packed_gradient, 0)},
                                     {k_gradient_id, part(operands.packed_gradient, 1)},
                                     {v_gradient_id, part(operands.packed_gradient, 2)},
                                     {one_id, &values_->one}});
  }
  if (masks_tokens(problem_.extent)) {
    bindings.insert(bindings.end(), {{query_counts_id, operands.token_counts},
                                     {key_counts_id, operands.token_counts},
                                     {minus_infinity_id, &values_->minus_infinity}});
  }
  return Plan::bind(bindings, workspace);
}

std::vector<AttentionPlan> offered_plans(const PlanDevice& device, const AttentionProblem& problem,
                                         int64_t workspace_limit, int limit) {
  std::vector<AttentionPlan> plans;
  if (element_bytes(problem.precision) != 2) return plans;
  std::optional<Descriptor> graph;
  try {
    graph = operation_graph(device, problem);
  } catch (const std::runtime_error&) {
    return plans;  // this cuDNN does not know such a graph
  }
  const PlanRules rules{
      .workspace_limit = workspace_limit, .limit = limit, .run_time_compiled = true};
  for (const Plan& plan : offered_plans(device, *graph, rules)) plans.emplace_back(plan, problem);
  return plans;
}

AttentionPlan named_plan(const PlanDevice& device, const AttentionProblem& problem,
                         const std::string& name) {
  return {named_plan(device, operation_graph(device, problem), name), problem};
}

}  // namespace nearmetal::cuda
