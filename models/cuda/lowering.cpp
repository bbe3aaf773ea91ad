#include "models/cuda/lowering.h"

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>

#include "models/cuda/classifier.h"
#include "models/cuda/head.h"
#include "models/cuda/norm_pool.h"
#include "models/synthetic.h"

namespace nearmetal {
namespace {

// A batch norm with what its kernels do besides: ReLU, residual add, pooling.
struct NormPattern {
  int conv = -1;  // whose output is normalised
  int norm = -1;
  int output = -1;         // node whose value the kernel writes
  int pool = -1;           // max pooling instead of a stored output
  int residual = -1;       // node of the added tensor, or
  int residual_conv = -1;  // convolution whose normalised output is added
  int residual_norm = -1;
};

// Addresses in the flat buffers, of a matrix in the type of the activations and of its gradient.
const void* matrix_address(const FlatParameters& flat, int64_t offset, int64_t element_size) {
  if (flat.matrix_copies == nullptr) return flat.values + offset;
  return static_cast<const char*>(flat.matrix_copies) + offset * element_size;
}
void* gradient_address(const FlatParameters& flat, int64_t offset, int64_t element_size) {
  return static_cast<char*>(flat.matrix_gradients) + offset * element_size;
}

class Lowering {
 public:
  Lowering(const Graph& graph, const ProgramOptions& options, const LoweringChoices& choices,
           const FlatLayout& layout, const StepResources& resources)
      : graph_(graph),
        options_(options),
        choices_(choices),
        layout_(layout),
        resources_(resources),
        values_(graph.nodes().size()),
        sums_(graph.nodes().size()),
        masks_(graph.nodes().size()),
        winner_x_(graph.nodes().size()),
        gradients_(graph.nodes().size()),
        consumers_(graph.nodes().size()) {
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      for (const int input : graph.node(static_cast<int>(i)).inputs) {
        consumers_[input].push_back(static_cast<int>(i));
      }
    }
  }

  LoweredStep run() {
    labels_and_images();
    const int count = static_cast<int>(graph_.nodes().size());
    for (int i = 0; i < count; ++i) forward(i);
    if (!options_.forward_only) {
      for (int i = count - 1; i >= 0; --i) backward(i);
    }
    finish();
    place();
    return std::move(step_);
  }

 private:
  // --- building blocks -------------------------------------------------------------------------

  Tensor* tensor(int64_t bytes) { return &step_.tensors.emplace_back(Tensor{bytes, nullptr}); }
  int64_t element_size() const { return element_bytes(options_.precision); }
  int64_t value_bytes(int node) const {
    return options_.batch_size * graph_.node(node).shape.elements() * element_size();
  }
  Extent extent(int node) const {
    const Shape& shape = graph_.node(node).shape;
    return {options_.batch_size * shape.height * shape.width, static_cast<int>(shape.channels)};
  }
  LogitsShape logits_shape() const {
    const int64_t classes = graph_.classes();
    return {options_.batch_size, static_cast<int>(classes),
            static_cast<int>((classes + 7) / 8 * 8)};
  }
  int sole_consumer(int node) const {
    return consumers_[node].size() == 1 ? consumers_[node][0] : -1;
  }
  bool is(int node, OpKind op) const { return node >= 0 && graph_.node(node).op == op; }

  Kernel& emit(const std::string& name, const char* phase, const std::string& implementation,
               std::vector<const Tensor*> operands, std::function<void(cudaStream_t)> launch) {
    std::erase(operands, nullptr);
    Kernel kernel{name, phase, implementation, 0, 0, std::move(operands), {}, std::move(launch)};
    for (const Tensor* operand : kernel.operands) {
      kernel.bytes += static_cast<double>(operand->bytes);
    }
    return step_.kernels.emplace_back(std::move(kernel));
  }

  [[noreturn]] void unsupported(int node) const {
    throw std::invalid_argument("the CUDA backend has no kernel for the pattern around " +
                                graph_.node(node).name);
  }

  // --- forward ---------------------------------------------------------------------------------

  void labels_and_images() {
    const int64_t batch = options_.batch_size, classes = graph_.classes();
    const uint64_t seed = label_seed(options_.data_seed);
    emit("labels", "input", "own", {}, [=, &r = resources_](cudaStream_t stream) {
      launch_draw_labels(seed, batch, classes, r.state, r.fixed_labels, r.use_fixed_labels,
                         r.labels, stream);
    });
    step_.image_layout = stem_image_layout(choices_.stem, graph_.image(), batch);
    Tensor* images = tensor(step_.image_layout.stored_elements() * element_size());
    step_.images = images;
    values_[0] = images;
  }

  void forward(int i) {
    switch (graph_.node(i).op) {
      case OpKind::input:
        if (i != 0) unsupported(i);
        return;
      case OpKind::conv:
        return forward_convolution(i);
      case OpKind::batch_norm:
      case OpKind::add:
        return;  // part of a pattern that ends in a ReLU
      case OpKind::relu:
        if (!is(sole_consumer(i), OpKind::max_pool)) forward_norm(match_norm(i));
        return;
      case OpKind::max_pool:
        return forward_norm_pool(i);
      case OpKind::global_average_pool:
        return forward_average_pool(i);
      case OpKind::linear:
        return;  // with the loss
      case OpKind::softmax_cross_entropy:
        return forward_classifier(i);
    }
  }

  ConvolutionProblem problem(ConvolutionOp op, int conv) const {
    const Node& node = graph_.node(conv);
    const Shape& input = graph_.input_shape(node);
    return {op,
            is(node.inputs[0], OpKind::input)
                ? stem_shape(choices_.stem, node, input, options_.batch_size)
                : convolution_shape(node, input, options_.batch_size),
            options_.precision};
  }

  void emit_convolution(int conv, ConvolutionOp op, const char* phase, const Tensor* x,
                        const Tensor* y, const Tensor* sums = nullptr) {
    const Node& node = graph_.node(conv);
    Kernel& kernel = emit(node.name, phase, "", {x, y, sums}, nullptr);
    kernel.convolution = {problem(op, conv), x, y, sums, node.parameters[0]};
    // By the graph's own arithmetic: padded channels are no work.
    kernel.flops = graph_.forward_flops(node) * static_cast<double>(options_.batch_size);
    kernel.bytes +=
        static_cast<double>(kernel.convolution->problem.shape.weight_elements() * element_size());
  }

  void forward_convolution(int i) {
    const int norm = sole_consumer(i);
    if (!is(norm, OpKind::batch_norm) || graph_.node(i).shape.channels % 8 != 0) unsupported(i);
    const Tensor* x = values_[graph_.node(i).inputs[0]];
    if (x == nullptr) unsupported(i);
    Tensor* y = tensor(value_bytes(i));
    values_[i] = y;
    const Extent extent = this->extent(i);
    const std::string& norm_name = graph_.node(norm).name;
    const auto& r = resources_;
    const bool fused = choices_.fused_statistics.contains(problem(ConvolutionOp::forward, i).key());
    if (!fused) {
      emit_convolution(i, ConvolutionOp::forward, "forward", x, y);
      emit(norm_name, "forward", "own statistics sweep", {y},
           [=, precision = options_.precision, &r](cudaStream_t stream) {
             launch_batch_statistics(precision, y->data, extent, r.norms[norm], r.reduction,
                                     stream);
           });
      return;
    }
    const Tensor* sums = tensor(2 * extent.channels * static_cast<int64_t>(sizeof(float)));
    emit_convolution(i, ConvolutionOp::forward_statistics, "forward", x, y, sums);
    sums_[i] = sums;
  }

  // How a kernel gets the coefficients of the batch norm behind this convolution.
  std::function<NormInput()> norm_input(int conv, int norm) const {
    return [extent = extent(conv), sums = sums_[conv], norm, &r = resources_] {
      NormInput input{r.norms[norm], nullptr, nullptr, static_cast<double>(extent.rows)};
      if (sums != nullptr) {
        input.sum = static_cast<const float*>(sums->data);
        input.square_sum = input.sum + extent.channels;
      }
      return input;
    };
  }

  // The pattern that ends in this ReLU: conv, norm, ReLU or conv, norm, add, ReLU.
  NormPattern match_norm(int relu) const {
    NormPattern pattern;
    pattern.output = relu;
    int before = graph_.node(relu).inputs[0];
    if (sole_consumer(before) != relu) unsupported(relu);
    if (is(before, OpKind::add)) {
      const std::vector<int>& added = graph_.node(before).inputs;
      before = added[0];
      const bool normalised = is(added[1], OpKind::batch_norm) && consumers_[added[1]].size() == 1;
      if (normalised) {
        pattern.residual_norm = added[1];
        pattern.residual_conv = graph_.node(added[1]).inputs[0];
      } else {
        pattern.residual = added[1];
        if (values_[added[1]] == nullptr) unsupported(relu);
      }
      if (consumers_[before].size() != 1) unsupported(relu);
    }
    if (!is(before, OpKind::batch_norm)) unsupported(relu);
    pattern.norm = before;
    pattern.conv = graph_.node(before).inputs[0];
    if (!is(pattern.conv, OpKind::conv)) unsupported(relu);
    return pattern;
  }

  std::string pattern_name(const NormPattern& pattern) const {
    std::string name = graph_.node(pattern.norm).name;
    if (pattern.residual_norm >= 0) name += " + " + graph_.node(pattern.residual_norm).name;
    name += " + " + graph_.node(pattern.output).name;
    if (pattern.pool >= 0) name += " + " + graph_.node(pattern.pool).name;
    return name;
  }

  void forward_norm(const NormPattern& pattern) {
    const Tensor* x = values_[pattern.conv];
    const bool added = pattern.residual >= 0 || pattern.residual_norm >= 0;
    const Tensor* residual = nullptr;
    if (added) residual = values_[pattern.residual >= 0 ? pattern.residual : pattern.residual_conv];
    Tensor* y = tensor(value_bytes(pattern.output));
    const Extent extent = this->extent(pattern.conv);
    const int width = static_cast<int>(16 / element_size());
    Tensor* mask = added && !options_.forward_only ? tensor(extent.elements() / width) : nullptr;
    values_[pattern.output] = y;
    masks_[pattern.output] = mask;
    const auto norm = norm_input(pattern.conv, pattern.norm);
    std::function<NormInput()> residual_norm;
    const Tensor* residual_sums = nullptr;
    if (pattern.residual_norm >= 0) {
      residual_norm = norm_input(pattern.residual_conv, pattern.residual_norm);
      residual_sums = sums_[pattern.residual_conv];
    }
    emit(pattern_name(pattern), "forward", "own sweep",
         {x, residual, y, mask, sums_[pattern.conv], residual_sums},
         [=, precision = options_.precision, &r = resources_](cudaStream_t stream) {
           NormaliseOperands operands;
           operands.x = x->data;
           operands.norm = norm();
           if (residual != nullptr) operands.residual = residual->data;
           const NormInput other = residual_norm ? residual_norm() : NormInput{};
           if (residual_norm) operands.residual_norm = &other;
           operands.relu = true;
           if (mask != nullptr) operands.mask = static_cast<uint8_t*>(mask->data);
           operands.y = y->data;
           launch_normalise(precision, operands, extent, r.reduction.multiprocessors, stream);
         });
  }

  PoolShape pool_shape(int pool) const {
    const Node& node = graph_.node(pool);
    const Shape& input = graph_.input_shape(node);
    return {options_.batch_size,
            static_cast<int>(input.channels),
            static_cast<int>(input.height),
            static_cast<int>(input.width),
            static_cast<int>(node.shape.height),
            static_cast<int>(node.shape.width)};
  }

  NormPattern match_norm_pool(int pool) const {
    const int relu = graph_.node(pool).inputs[0];
    if (!is(relu, OpKind::relu) || sole_consumer(relu) != pool) unsupported(pool);
    if (graph_.node(pool).window != stem_pool_window) unsupported(pool);
    NormPattern pattern = match_norm(relu);
    if (pattern.residual >= 0 || pattern.residual_norm >= 0) unsupported(pool);
    pattern.pool = pool;
    return pattern;
  }

  void forward_norm_pool(int pool) {
    const NormPattern pattern = match_norm_pool(pool);
    const Tensor* x = values_[pattern.conv];
    Tensor* y = tensor(value_bytes(pool));
    Tensor* winner = nullptr;
    Tensor* winner_x = nullptr;
    if (!options_.forward_only) {
      winner = tensor(value_bytes(pool) / element_size());
      winner_x = tensor(value_bytes(pool));
    }
    values_[pool] = y;
    masks_[pool] = winner;
    winner_x_[pool] = winner_x;
    emit(pattern_name(pattern), "forward", "own sweep",
         {x, y, winner, winner_x, sums_[pattern.conv]},
         [=, precision = options_.precision, shape = pool_shape(pool),
          norm = norm_input(pattern.conv, pattern.norm)](cudaStream_t stream) {
           NormPoolOperands operands{x->data, norm(), y->data, nullptr, nullptr};
           if (winner != nullptr) {
             operands.winner = static_cast<uint8_t*>(winner->data);
             operands.winner_x = winner_x->data;
           }
           launch_norm_pool(precision, shape, operands, stream);
         });
  }

  void forward_average_pool(int i) {
    const Node& node = graph_.node(i);
    const Shape& input = graph_.input_shape(node);
    const Tensor* x = values_[node.inputs[0]];
    if (x == nullptr) unsupported(i);
    Tensor* y = tensor(value_bytes(i));
    values_[i] = y;
    emit(node.name, "forward", "own", {x, y},
         [=, precision = options_.precision, batch = options_.batch_size](cudaStream_t stream) {
           launch_average_pool(precision, x->data, y->data, batch,
                               static_cast<int>(input.height * input.width),
                               static_cast<int>(input.channels), stream);
         });
  }

  // A product is made at its first launch, which is not in a captured graph: it needs the handle.
  Kernel& emit_product(const std::string& name, const char* phase, const ProductShape& shape,
                       std::vector<const Tensor*> operands,
                       std::function<void(const Product&, cudaStream_t)> launch) {
    const auto product = std::make_shared<std::unique_ptr<Product>>();
    const auto& r = resources_;
    Kernel& kernel = emit(name, phase, "cublasLt", std::move(operands),
                          [=, precision = options_.precision, &r](cudaStream_t stream) {
                            if (*product == nullptr) {
                              *product = std::make_unique<Product>(r.cublas, precision, shape,
                                                                   classifier_workspace);
                            }
                            launch(**product, stream);
                          });
    kernel.flops =
        2.0 * static_cast<double>(shape.rows * shape.columns) * static_cast<double>(shape.inner);
    kernel.bytes += static_cast<double>(graph_.classes() * features() * element_size());
    return kernel;
  }

  int64_t features() const { return graph_.input_shape(graph_.node(linear_)).channels; }
  void forward_classifier(int loss) {
    linear_ = graph_.node(loss).inputs[0];
    const Node& linear = graph_.node(linear_);
    if (linear.op != OpKind::linear || features() % 8 != 0) unsupported(loss);
    const Tensor* x = values_[linear.inputs[0]];
    if (x == nullptr) unsupported(loss);
    const LogitsShape shape = logits_shape();
    const int64_t elements = shape.images * shape.row_elements;
    Tensor* logits = tensor(elements * static_cast<int64_t>(sizeof(float)));
    const int64_t weight = layout_.slices[linear.parameters[0]].offset;
    emit_product(
        linear.name, "forward", logits_product(shape, features()), {x, logits},
        [=, size = element_size(), &r = resources_](const Product& product, cudaStream_t stream) {
          product.launch(x->data, matrix_address(r.parameters, weight, size), logits->data,
                         r.workspace, stream);
        });
    Tensor* gradient = options_.forward_only ? nullptr : tensor(elements * element_size());
    gradients_[linear_].push_back(gradient);
    const int64_t bias = layout_.offset(linear.parameters[1]);
    emit(graph_.node(loss).name, "forward", "own", {logits, gradient},
         [=, precision = options_.precision, &r = resources_](cudaStream_t stream) {
           launch_softmax_loss(precision, shape, static_cast<const float*>(logits->data),
                               r.parameters.values + bias, r.labels, &r.state->loss_scale, r.losses,
                               gradient == nullptr ? nullptr : gradient->data, stream);
         });
  }

  // --- backward --------------------------------------------------------------------------------

  void backward(int i) {
    switch (graph_.node(i).op) {
      case OpKind::linear:
        return backward_classifier(i);
      case OpKind::global_average_pool:
        return backward_average_pool(i);
      case OpKind::relu:
        if (!is(sole_consumer(i), OpKind::max_pool)) backward_norm(match_norm(i));
        return;
      case OpKind::max_pool:
        return backward_norm_pool(i);
      case OpKind::conv:
        return backward_convolution(i);
      default:
        return;
    }
  }

  // At most two consumers leave a gradient; the second may be absent.
  std::pair<const Tensor*, const Tensor*> gradients_of(int node) const {
    const auto& found = gradients_[node];
    if (found.empty() || found.size() > 2) unsupported(node);
    return {found[0], found.size() == 2 ? found[1] : nullptr};
  }

  void backward_classifier(int i) {
    const Node& linear = graph_.node(i);
    const int features_node = linear.inputs[0];
    const Tensor* dy = gradients_[i].at(0);
    const Tensor* x = values_[features_node];
    Tensor* dx = tensor(value_bytes(features_node));
    gradients_[features_node].push_back(dx);
    const LogitsShape shape = logits_shape();
    const int64_t size = element_size();
    const int64_t weight = layout_.slices[linear.parameters[0]].offset;
    const int64_t bias = layout_.slices[linear.parameters[1]].offset;
    const auto& r = resources_;
    emit(linear.name, "backward", "own", {dy},
         [=, precision = options_.precision, &r](cudaStream_t stream) {
           launch_bias_gradient(precision, shape, dy->data, r.parameters.vector_gradients + bias,
                                stream);
         });
    emit_product(linear.name, "backward", weight_gradient_product(shape, features()), {dy, x},
                 [=, &r](const Product& product, cudaStream_t stream) {
                   product.launch(dy->data, x->data, gradient_address(r.parameters, weight, size),
                                  r.workspace, stream);
                 });
    emit_product(linear.name, "backward", feature_gradient_product(shape, features()), {dy, dx},
                 [=, &r](const Product& product, cudaStream_t stream) {
                   product.launch(dy->data, matrix_address(r.parameters, weight, size), dx->data,
                                  r.workspace, stream);
                 });
  }

  void backward_average_pool(int i) {
    const Node& node = graph_.node(i);
    const Shape& input = graph_.input_shape(node);
    const Tensor* dy = gradients_of(i).first;
    Tensor* dx = tensor(value_bytes(node.inputs[0]));
    gradients_[node.inputs[0]].push_back(dx);
    emit(node.name, "backward", "own", {dy, dx},
         [=, precision = options_.precision, batch = options_.batch_size](cudaStream_t stream) {
           launch_average_pool_backward(precision, dy->data, dx->data, batch,
                                        static_cast<int>(input.height * input.width),
                                        static_cast<int>(input.channels), stream);
         });
  }

  void backward_norm(const NormPattern& pattern) {
    const auto [dy, dy_second] = gradients_of(pattern.output);
    const Tensor* x = values_[pattern.conv];
    const Tensor* mask = masks_[pattern.output];
    const bool dual = pattern.residual_norm >= 0;
    const Tensor* residual_x = dual ? values_[pattern.residual_conv] : nullptr;
    Tensor* dx = tensor(value_bytes(pattern.conv));
    Tensor* residual_dx = dual ? tensor(value_bytes(pattern.residual_conv)) : nullptr;
    Tensor* dz = pattern.residual >= 0 ? tensor(value_bytes(pattern.residual)) : nullptr;
    gradients_[pattern.conv].push_back(dx);
    if (dual) gradients_[pattern.residual_conv].push_back(residual_dx);
    if (dz != nullptr) gradients_[pattern.residual].push_back(dz);

    const auto& r = resources_;
    const auto data = [](const Tensor* tensor) {
      return tensor == nullptr ? nullptr : tensor->data;
    };
    const Extent extent = this->extent(pattern.conv);
    const auto operands = [=, dy = dy, dy_second = dy_second, &r] {
      NormBackwardOperands operands;
      operands.count = static_cast<double>(extent.rows);
      operands.dy = dy->data;
      operands.dy_second = data(dy_second);
      operands.relu = mask != nullptr ? ReluMask::stored : ReluMask::recomputed;
      operands.mask = static_cast<const uint8_t*>(data(mask));
      operands.x = x->data;
      operands.state = r.norms[pattern.norm];
      operands.dx = dx->data;
      operands.dz = data(dz);
      if (dual) {
        operands.residual_x = residual_x->data;
        operands.residual_state = r.norms[pattern.residual_norm];
        operands.residual_dx = residual_dx->data;
      }
      return operands;
    };
    const Precision precision = options_.precision;
    const std::string name = pattern_name(pattern);
    emit(name, "backward", "own sums sweep", {dy, dy_second, mask, x, residual_x, dz},
         [=, &r](cudaStream_t stream) {
           launch_norm_backward_sums(precision, operands(), extent, r.reduction, stream);
         });
    std::vector<const Tensor*> read{dy, dy_second, mask, x, residual_x, dx, residual_dx};
    if (dz != nullptr) read = {dz, x, dx};
    emit(name, "backward", "own apply sweep", read, [=, &r](cudaStream_t stream) {
      launch_norm_backward_apply(precision, operands(), extent, r.reduction.multiprocessors,
                                 stream);
    });
  }

  void backward_norm_pool(int pool) {
    const NormPattern pattern = match_norm_pool(pool);
    const auto [dy, dy_second] = gradients_of(pool);
    const Tensor* x = values_[pattern.conv];
    const Tensor* winner = masks_[pool];
    const Tensor* winner_x = winner_x_[pool];
    Tensor* dx = tensor(value_bytes(pattern.conv));
    gradients_[pattern.conv].push_back(dx);
    const auto& r = resources_;
    const PoolShape shape = pool_shape(pool);
    const Precision precision = options_.precision;
    const std::string name = pattern_name(pattern);
    emit(name, "backward", "own sums sweep", {dy, dy_second, winner_x},
         [=, dy = dy, dy_second = dy_second, &r](cudaStream_t stream) {
           NormBackwardOperands operands;
           operands.count = static_cast<double>(shape.input().rows);
           operands.dy = dy->data;
           if (dy_second != nullptr) operands.dy_second = dy_second->data;
           operands.relu = ReluMask::recomputed;
           operands.x = winner_x->data;
           operands.state = r.norms[pattern.norm];
           launch_norm_backward_sums(precision, operands, shape.output(), r.reduction, stream);
         });
    emit(name, "backward", "own apply sweep", {dy, dy_second, winner, x, dx},
         [=, dy = dy, dy_second = dy_second, &r](cudaStream_t stream) {
           PoolBackwardOperands operands;
           operands.dy = dy->data;
           if (dy_second != nullptr) operands.dy_second = dy_second->data;
           operands.winner = static_cast<const uint8_t*>(winner->data);
           operands.x = x->data;
           operands.state = r.norms[pattern.norm];
           operands.dx = dx->data;
           launch_pool_backward_apply(precision, shape, operands, stream);
         });
  }

  void backward_convolution(int i) {
    const Node& node = graph_.node(i);
    const int input = node.inputs[0];
    const Tensor* dy = gradients_of(i).first;
    emit_convolution(i, ConvolutionOp::backward_weights, "backward", values_[input], dy);
    if (is(input, OpKind::input)) return mask_stem_gradient(node);
    Tensor* dx = tensor(value_bytes(input));
    gradients_[input].push_back(dx);
    emit_convolution(i, ConvolutionOp::backward_data, "backward", dx, dy);
  }

  void mask_stem_gradient(const Node& conv) {
    const ParameterSlice& slice = layout_.slices[conv.parameters[0]];
    if (choices_.stem != StemForm::space_to_depth) return;  // padded channels are zero images
    emit(conv.name, "backward", "own mask", {},
         [=, precision = options_.precision, offset = slice.offset, elements = slice.elements,
          size = element_size(), &r = resources_](cudaStream_t stream) {
           launch_mask_gradient(precision, gradient_address(r.parameters, offset, size),
                                r.stem_mask, elements, stream);
         });
  }

  // --- update and memory -----------------------------------------------------------------------

  void finish() {
    const Precision precision = options_.precision;
    const auto& r = resources_;
    const double elements = static_cast<double>(layout_.elements());
    emit("gradient norm", "update", "own", {},
         [=, batch = options_.batch_size, dynamic = options_.loss_scale.dynamic,
          forward_only = options_.forward_only, &r](cudaStream_t stream) {
           launch_finish_step(precision,
                              {r.losses, batch, r.parameters, r.finish_sums, r.finish_arrivals,
                               r.state, r.ring, r.ring_size, dynamic, forward_only},
                              stream);
         })
        .bytes = options_.forward_only ? 0 : elements * static_cast<double>(element_size());
    if (options_.forward_only) return;
    const double copy = precision == Precision::fp16 || precision == Precision::bf16 ? 2 : 0;
    emit("sgd", "update", "own", {}, [=, sgd = options_.sgd, &r](cudaStream_t stream) {
      launch_sgd(precision, r.parameters, sgd, r.state, stream);
    }).bytes = elements * (4 * 4 + static_cast<double>(element_size()) + copy);
  }

  // Lifetimes follow from the order of the kernels; the images stay from step to step.
  void place() {
    std::map<const Tensor*, int> index;
    std::vector<BufferLife> lives;
    const int last = static_cast<int>(step_.kernels.size()) - 1;
    for (const Tensor& tensor : step_.tensors) {
      index[&tensor] = static_cast<int>(lives.size());
      lives.push_back({tensor.bytes, last, 0});
    }
    for (int k = 0; k <= last; ++k) {
      for (const Tensor* operand : step_.kernels[k].operands) {
        BufferLife& life = lives[index.at(operand)];
        life.first_use = std::min(life.first_use, k);
        life.last_use = std::max(life.last_use, k);
      }
    }
    lives[index.at(step_.images)] = {step_.images->bytes, 0, last};
    step_.memory = plan_memory(lives);
  }

  const Graph& graph_;
  const ProgramOptions& options_;
  const LoweringChoices& choices_;
  const FlatLayout& layout_;
  const StepResources& resources_;
  LoweredStep step_;
  std::vector<const Tensor*> values_;  // by node
  std::vector<const Tensor*> sums_;    // of a convolution's output, if it leaves them; by node
  std::vector<const Tensor*> masks_;   // of a ReLU, or the winners of pooling; by node
  std::vector<const Tensor*> winner_x_;
  std::vector<std::vector<const Tensor*>> gradients_;  // one from each consumer; by node
  std::vector<std::vector<int>> consumers_;
  int linear_ = -1;
};

}  // namespace

LoweredStep lower(const Graph& graph, const ProgramOptions& options, const LoweringChoices& choices,
                  const FlatLayout& layout, const StepResources& resources) {
  return Lowering(graph, options, choices, layout, resources).run();
}

std::vector<ConvolutionProblem> distinct_problems(const LoweredStep& step, bool with_statistics) {
  std::map<std::string, ConvolutionProblem> found;
  for (const Kernel& kernel : step.kernels) {
    if (!kernel.convolution) continue;
    ConvolutionProblem problem = kernel.convolution->problem;
    found.emplace(problem.key(), problem);
    if (with_statistics && problem.op == ConvolutionOp::forward) {
      problem.op = ConvolutionOp::forward_statistics;
      found.emplace(problem.key(), problem);
    }
  }
  std::vector<ConvolutionProblem> problems;
  for (auto& [key, problem] : found) problems.push_back(problem);
  return problems;
}

}  // namespace nearmetal
