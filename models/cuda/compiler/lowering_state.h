// The state of lower() while it walks the graph; its methods are in lowering*.cpp.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "models/cuda/compiler/lowering.h"
#include "models/cuda/kernels/head.h"
#include "models/cuda/kernels/norm_pool.h"
#include "models/cuda/kernels/stem.h"
#include "models/cuda/libraries/classifier.h"
#include "models/graph.h"

namespace nearmetal::cuda {

/// Nodes by index; -1 where a pattern has no such node.
struct NormPattern {
  int conv = -1;    // whose output is normalised
  int norm = -1;    // the batch norm
  int output = -1;  // the ReLU whose value the sweep writes
  int pool = -1;    // max pooling, if its value is written instead
  // What is added before the ReLU: a stored tensor, or the normalised output of another
  // convolution.
  int residual = -1;
  int residual_conv = -1;
  int residual_norm = -1;

  bool adds() const { return residual >= 0 || residual_norm >= 0; }
};

/// conv, norm, ReLU or conv, norm, add, ReLU, by its last node. These throw std::invalid_argument
/// for anything else.
NormPattern ending_in_relu(const Graph& graph, int relu);
/// conv, norm, ReLU, 3x3 max pooling of stride 2.
NormPattern ending_in_pool(const Graph& graph, int pool);
[[noreturn]] void unsupported(const Graph& graph, int node);

/// "layer1.0.bn3 + layer1.0.relu"
std::string name_of(const Graph& graph, const NormPattern& pattern);

class Lowering {
 public:
  Lowering(const Graph& graph, const ProgramOptions& options, const LoweringChoices& choices,
           const FlatLayout& layout, const StepResources& resources);
  LoweredStep run();

 private:
  using Launch = std::function<void(cudaStream_t)>;

  Tensor* tensor(int64_t bytes) { return &step_.tensors.emplace_back(Tensor{bytes, nullptr}); }
  int64_t element_size() const { return element_bytes(options_.precision); }
  int64_t value_bytes(int node) const {
    return options_.batch_size * graph_.node(node).shape.elements() * element_size();
  }
  Extent extent(int node) const;
  StemShape stem_shape(int conv) const;
  bool is_stem(int conv) const { return graph_.is(graph_.node(conv).inputs[0], OpKind::input); }
  LogitsShape logits_shape() const;
  PoolShape pool_shape(int pool) const;
  int64_t features() const { return graph_.input_shape(graph_.node(linear_)).channels; }
  ConvolutionProblem problem(ConvolutionOp op, int conv) const;

  // Append a kernel. Absent operands may be null.
  Kernel& emit(const std::string& name, Phase phase, const std::string& implementation,
               std::vector<const Tensor*> operands, Launch launch);
  void emit_convolution(int conv, ConvolutionOp op, Phase phase, const Tensor* x, const Tensor* y,
                        const Tensor* sums = nullptr);
  // A product is made at its first launch, which is not in a captured graph: it needs the handle.
  Kernel& emit_product(const std::string& name, Phase phase, const ProductShape& shape,
                       std::vector<const Tensor*> operands,
                       const std::function<void(const Product&, cudaStream_t)>& launch);

  void labels_and_images();
  void forward(int i);
  void forward_convolution(int i);
  void forward_stem(int i);
  // The average pooling that the sweep at the end of the last block does, too; -1: none.
  int mean_behind(const NormPattern& pattern) const;
  void forward_norm(const NormPattern& pattern);
  void forward_norm_pool(int pool);
  void forward_average_pool(int i);
  void forward_classifier(int loss);
  // How a kernel gets the coefficients of the batch norm behind this convolution.
  std::function<NormInput()> norm_input(int conv, int norm) const;

  void backward(int i);
  void backward_classifier(int i);
  void backward_average_pool(int i);
  void backward_norm(const NormPattern& pattern);
  void backward_norm_pool(int pool);
  // The gradient at the input of a 1x1 convolution of stride 2 is zero but at even pixels. A block
  // end takes those alone from one of its consumers.
  bool leaves_even_pixels(int conv) const;
  ImageSize image_size(int node) const;
  bool fuses_backward(const NormPattern& pattern) const;
  bool fuses_backward(int conv) const;
  void backward_convolution(int i);
  void backward_pointwise(int i);
  void backward_stem(int i);
  void mask_stem_gradient(const Node& conv);
  // At most two consumers leave a gradient; the second may be absent.
  std::pair<const Tensor*, const Tensor*> gradients_of(int node) const;

  void finish();
  // Lifetimes follow from the order of the kernels; the images stay from step to step.
  void place();

  const Graph& graph_;
  const ProgramOptions& options_;
  const LoweringChoices& choices_;
  const FlatLayout& layout_;
  const StepResources& resources_;
  LoweredStep step_;
  // All by node.
  std::vector<const Tensor*> values_;
  std::vector<const Tensor*> sums_;      // of a convolution's output, if it leaves them
  std::vector<const Tensor*> masks_;     // of a ReLU, or the winners of pooling
  std::vector<const Tensor*> winner_x_;  // of pooling
  std::vector<std::vector<const Tensor*>> gradients_;  // one from each consumer, but for ...
  std::vector<const Tensor*> even_pixel_gradients_;    // ... one that has the even pixels alone
  // By convolution, where its own backward kernel forms the gradient at its output.
  struct PendingGradient {
    int norm;
    const Tensor* dz;  // behind the batch norm
    bool relu;         // ... and its ReLU
  };
  std::map<int, PendingGradient> pending_;
  // The same for the stem: the pooling behind it, and the gradient behind its ReLU.
  std::optional<std::pair<int, const Tensor*>> pending_stem_;
  int linear_ = -1;
};

}  // namespace nearmetal::cuda
