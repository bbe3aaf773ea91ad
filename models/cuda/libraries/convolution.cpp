#include "models/cuda/libraries/convolution.h"

#include <sstream>

#include "base/names.h"

namespace nearmetal::cuda {
namespace {

// Unique ids of the tensors of a convolution's graph.
enum TensorId : int64_t {
  x_id = 1,
  weights_id,
  y_id,
  sum_id,
  square_sum_id,
  bias_id,
  residual_id,
  // Never in memory:
  product_id,
  summed_id,
  biased_id
};

// cuDNN counts dimensions as N, C, H, W; the strides say that memory is NHWC.
Descriptor tensor(TensorId id, cudnnDataType_t type, int64_t n, int64_t c, int64_t h, int64_t w) {
  Descriptor descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
      .set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 16)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, {n, c, h, w})
      .set(CUDNN_ATTR_TENSOR_STRIDES, {c * h * w, 1, c * w, c});
  const bool is_virtual = id >= product_id;
  descriptor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual).finalize();
  return descriptor;
}

Descriptor convolution(const ConvolutionShape& shape) {
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  Descriptor descriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2)
      .set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode)
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, {shape.padding_before, shape.padding_before})
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, {shape.padding_after, shape.padding_after})
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, {1, 1})
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {shape.stride, shape.stride})
      .finalize();
  return descriptor;
}

struct OperationNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t x, weights, y, convolution, alpha, beta;
};

#define NM_OPERATION_NAMES(type, pass, x, weights, y)        \
  OperationNames {                                           \
    CUDNN_BACKEND_OPERATION_CONVOLUTION_##type##_DESCRIPTOR, \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##pass##_##x,       \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##pass##_##weights, \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##pass##_##y,       \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##pass##_CONV_DESC, \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##pass##_ALPHA,     \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##pass##_BETA       \
  }

OperationNames operation_names(ConvolutionOp op) {
  switch (op) {
    case ConvolutionOp::backward_data:
      return NM_OPERATION_NAMES(BACKWARD_DATA, BWD_DATA, DX, W, DY);
    case ConvolutionOp::backward_weights:
      return NM_OPERATION_NAMES(BACKWARD_FILTER, BWD_FILTER, X, DW, DY);
    default:
      return NM_OPERATION_NAMES(FORWARD, FORWARD, X, W, Y);
  }
}

Descriptor statistics_operation(const Descriptor& y, const ConvolutionShape& shape) {
  const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
  const int64_t channels = shape.output_channels;
  Descriptor operation(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
  operation
      .set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode)
      // The type of the tensors would lose the sums' precision, and fails for bf16.
      .set(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, y)
      .set(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC,
           tensor(sum_id, CUDNN_DATA_FLOAT, 1, channels, 1, 1))
      .set(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC,
           tensor(square_sum_id, CUDNN_DATA_FLOAT, 1, channels, 1, 1))
      .finalize();
  return operation;
}

Descriptor output_tensor(TensorId id, cudnnDataType_t type, const ConvolutionShape& shape) {
  return tensor(id, type, shape.batch, shape.output_channels, shape.output_height,
                shape.output_width);
}

// cuDNN's ReLU makes 0 of NaN unless told otherwise. The attribute is marked as deprecated, with
// none in its place; a slope for what is below 0 keeps NaN, too, at 16 to 23 % less throughput.
void keep_nan(Descriptor& relu) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  const cudnnNanPropagation_t keep = CUDNN_PROPAGATE_NAN;
  relu.set(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, &keep);
#pragma GCC diagnostic pop
}

Descriptor pointwise(cudnnPointwiseMode_t mode, const Descriptor& x, const Descriptor& y,
                     const Descriptor* b) {
  Descriptor descriptor(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  if (mode == CUDNN_POINTWISE_RELU_FWD) keep_nan(descriptor);
  descriptor.finalize();
  Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, descriptor)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  if (b != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
  operation.finalize();
  return operation;
}

// Appends what follows the product, in the order for which cuDNN has engines.
void append_epilogue(std::vector<Descriptor>& operations, Descriptor product, const Descriptor& y,
                     cudnnDataType_t type, const ConvolutionProblem& problem) {
  const ConvolutionShape& shape = problem.shape;
  if (problem.op == ConvolutionOp::forward_residual) {
    const Descriptor residual = output_tensor(residual_id, type, shape);
    const Descriptor summed = output_tensor(summed_id, CUDNN_DATA_FLOAT, shape);
    operations.push_back(pointwise(CUDNN_POINTWISE_ADD, product, summed, &residual));
    product = summed;
  }
  const Descriptor bias = tensor(bias_id, type, 1, shape.output_channels, 1, 1);
  const bool activates = problem.op != ConvolutionOp::forward_bias;
  const Descriptor biased = activates ? output_tensor(biased_id, CUDNN_DATA_FLOAT, shape) : y;
  operations.push_back(pointwise(CUDNN_POINTWISE_ADD, product, biased, &bias));
  if (activates) operations.push_back(pointwise(CUDNN_POINTWISE_RELU_FWD, biased, y, nullptr));
}

Descriptor operation_graph(const PlanDevice& device, const ConvolutionProblem& problem) {
  const ConvolutionShape& shape = problem.shape;
  const cudnnDataType_t type = cudnn_type(problem.precision);
  const bool goes_on = adds_bias(problem.op);
  const Descriptor y = output_tensor(y_id, type, shape);
  const Descriptor product = goes_on ? output_tensor(product_id, CUDNN_DATA_FLOAT, shape) : y;
  const OperationNames names = operation_names(problem.op);
  const float alpha = 1, beta = 0;
  std::vector<Descriptor> operations;
  operations.emplace_back(names.type)
      .set(names.x, tensor(x_id, type, shape.batch, shape.input_channels, shape.input_height,
                           shape.input_width))
      .set(names.weights, tensor(weights_id, type, shape.output_channels, shape.input_channels,
                                 shape.kernel, shape.kernel))
      .set(names.y, product)
      .set(names.convolution, convolution(shape))
      .set(names.alpha, CUDNN_TYPE_FLOAT, 1, &alpha)
      .set(names.beta, CUDNN_TYPE_FLOAT, 1, &beta)
      .finalize();
  if (problem.op == ConvolutionOp::forward_statistics) {
    operations.push_back(statistics_operation(y, shape));
  }
  if (goes_on) append_epilogue(operations, product, y, type, problem);
  return operation_graph(device, operations);
}

}  // namespace

std::string ConvolutionProblem::key() const {
  static constexpr const char* names[] = {
      "forward",          "forward_statistics", "forward_bias",    "forward_activation",
      "forward_residual", "backward_data",      "backward_weights"};
  std::ostringstream text;
  text << "conv " << names[static_cast<int>(op)] << ' ' << to_string(precision) << " x"
       << shape.batch << 'x' << shape.input_height << 'x' << shape.input_width << 'x'
       << shape.input_channels << " w" << shape.output_channels << 'x' << shape.kernel << 'x'
       << shape.kernel << " s" << shape.stride << " p" << shape.padding_before << '-'
       << shape.padding_after;
  return text.str();
}

Descriptor ConvolutionPlan::bind(const ConvolutionOperands& operands, void* workspace) const {
  std::vector<Binding> bindings{
      {x_id, operands.x}, {weights_id, operands.weights}, {y_id, operands.y}};
  for (const Binding& optional :
       {Binding{sum_id, operands.sum}, Binding{square_sum_id, operands.square_sum},
        Binding{bias_id, operands.bias}, Binding{residual_id, operands.residual}}) {
    if (optional.address != nullptr) bindings.push_back(optional);
  }
  return Plan::bind(bindings, workspace);
}

std::vector<ConvolutionPlan> offered_plans(const PlanDevice& device,
                                           const ConvolutionProblem& problem,
                                           int64_t workspace_limit, int limit) {
  const std::vector<Plan> plans =
      offered_plans(device, operation_graph(device, problem),
                    {.workspace_limit = workspace_limit,
                     .limit = limit,
                     .strict_fp32 = problem.precision == Precision::fp32});
  return {plans.begin(), plans.end()};
}

ConvolutionPlan named_plan(const PlanDevice& device, const ConvolutionProblem& problem,
                           const std::string& name) {
  return ConvolutionPlan(named_plan(device, operation_graph(device, problem), name));
}

}  // namespace nearmetal::cuda
