// The state of lower() while it walks the graph; its methods are in lowering*.cpp.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/cuda/compiler/attention_products.h"
#include "models/cuda/compiler/lowering.h"
#include "models/cuda/compiler/patterns.h"
#include "models/cuda/kernels/activation.h"
#include "models/cuda/kernels/head.h"
#include "models/cuda/kernels/norm_pool.h"
#include "models/cuda/kernels/pointwise/backward.h"
#include "models/cuda/kernels/pointwise/second_moments.h"
#include "models/cuda/kernels/stem.h"
#include "models/cuda/kernels/tokens.h"
#include "models/cuda/libraries/layers.h"
#include "models/cuda/libraries/linear.h"
#include "models/graph.h"

namespace nearmetal::cuda {

[[noreturn]] void unsupported(const Node& node, const std::string& reason);

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
  // A row for each sample, or for each token of a span.
  LogitsShape logits_shape(int linear) const;
  // The output of a linear layer that a loss alone reads, and its gradient, which the loss leaves.
  struct Logits {
    LogitsShape shape;
    const Tensor* values;
    const Tensor* gradient;  // null: forward_only
    int64_t bias;            // its place among the parameters
  };
  Logits logits_of(int loss, OpKind layer);
  LinearShape linear_shape(int linear) const;
  PoolShape pool_shape(int pool) const;
  ConvolutionProblem problem(ConvolutionOp op, int conv) const;

  // Append a kernel. Absent operands may be null.
  Kernel& emit(const std::string& name, Phase phase, const std::string& implementation,
               std::vector<const Tensor*> operands, Launch launch);
  // `third`: the sums of forward_statistics, or the residual of forward_residual.
  ConvolutionCall& emit_convolution(int conv, ConvolutionOp op, Phase phase, const Tensor* x,
                                    const Tensor* y, const Tensor* third = nullptr);
  // A product is made at its first launch, which is not in a captured graph: it needs the handle.
  // `bias`: the parameter that is added to each row, whose address every launch gets; -1: none.
  Kernel& emit_product(
      const std::string& name, Phase phase, const ProductShape& shape,
      std::vector<const Tensor*> operands,
      const std::function<void(const Product&, const void* bias, cudaStream_t)>& launch,
      int bias = -1, const std::shared_ptr<const std::string>& algorithm = nullptr);
  // One of the three products of a linear layer; the tuner chooses for those of tokens.
  Kernel& emit_linear(
      int linear, const std::string& name, Phase phase, const LinearProblem& problem,
      std::vector<const Tensor*> operands,
      const std::function<void(const Product&, const void* bias, cudaStream_t)>& launch,
      int bias = -1);
  void count_product(Kernel& kernel, const Node& linear) const;
  static void require_packs(const Node& linear, const LinearShape& shape);

  void labels_and_samples();
  void lower_task(const std::vector<StageTask>& tasks, size_t index);
  // Takes up, or puts away, what kernels of this micro-batch leave by node.
  void swap_micro_batch();
  // Sets the images that this micro-batch reads.
  void take_images();
  // Adds its gradients to those of the micro-batches before it.
  void end_micro_batch();
  // Where the states of its batch norms are.
  int64_t norm_slot() const { return micro_batch_ % norm_slots(options_); }

  // lowering_stage.cpp
  Kernel& emit_transfer(Transfer transfer, const char* what, const Tensor* data, Launch launch);
  void start(Transfer transfer, int64_t micro_batch, const Tensor* data);
  void finish(Transfer transfer, int64_t micro_batch);
  void start_receive(const StageTask& task);
  bool receives_ahead(size_t index) const;
  void begin_stage_task(const std::vector<StageTask>& tasks, size_t index);
  void start_send(const StageTask& task);
  void end_stage_task(const std::vector<StageTask>& tasks, size_t index);
  void finish_sent_gradients(size_t left);
  void emit_mark(const char* name, int mark);
  void emit_sum_over_stages();
  const Tensor*& boundary(Transfer transfer, int64_t micro_batch) {
    return boundary_[micro_batch][static_cast<size_t>(transfer)];
  }
  void backward_boundary(int i);
  // The tensor with a node's value; throws std::logic_error where no kernel leaves one.
  const Tensor* value(int node) const;
  void forward(int i);
  void forward_convolution(int i);
  void forward_stem(int i);
  // The average pooling that the sweep at the end of the last block does, too; -1: none.
  int mean_behind(const NormPattern& pattern) const;
  void forward_norm(const NormPattern& pattern);

  // lowering_moments.cpp: batch norm by second moments of the convolution's input.
  bool by_moments(const NormPattern& pattern) const;
  // The pattern that normalises this convolution so; null if none does.
  const NormPattern* moments_pattern(int conv) const;
  MomentsShape moments_shape(int conv) const;
  // The batch norm with ReLU, and nothing else, whose output this convolution alone reads, or null.
  const NormPattern* sole_input_norm(int conv) const;
  // The convolution of which by_moments() holds that reads this pattern's output; -1: none. Its
  // backward pass leaves the gradient there masked by the ReLU, and the pattern's sums.
  int moments_behind(const NormPattern& pattern) const;
  // The sweep that normalises the input of such a convolution, with its moments.
  void forward_norm_with_moments(const NormPattern& pattern, int conv);
  void statistics_by_moments(const NormPattern& pattern);
  void forward_norm_by_moments(const NormPattern& pattern);
  void backward_norm_by_moments(const NormPattern& pattern);
  void backward_convolution_by_moments(int i, const NormPattern& pattern);
  // The batch norm of the block end by moments before this convolution whose mask and sums its
  // fused backward kernel takes on: it adds the gradient of the only other consumer. -1: none.
  int joined_end(int conv) const;
  // The sums sweep of a normalised residual alone.
  void sums_of_residual(const NormPattern& pattern, const Tensor* dz);
  // t = dz (a W) and dz' z by our kernel for both.
  void backward_both_products(int i, const Tensor* z, const Tensor* dz,
                              const Tensor* scaled_weights, const Tensor* dx);
  void forward_norm_pool(const NormPattern& pattern);
  void forward_average_pool(int i);
  void forward_linear(int i);
  // The sum that a product of tokens takes as its own, whose other summand is there; -1: none.
  int sum_behind(int linear) const;
  void forward_token_linear(int i);
  void forward_layer_norm(int i);
  void forward_gelu(const ActivationPattern& pattern);
  void forward_attention(int i);
  AttentionExtent attention_extent(int attention) const;
  AttentionKernel attention_kernel(const AttentionProblem& problem) const;
  void forward_attention_products(int i);
  void backward_attention_products(int i);
  // One of the products of attention, for all heads of all samples.
  void emit_attention_product(int attention, Phase phase, const AttentionProduct& product);
  void forward_class_token(int i);
  void forward_positions(int i);
  void forward_select_token(int i);
  void require_packs(int node) const;
  TokenExtent token_extent(int node) const;
  void forward_loss(int i);

  // lowering_sequences.cpp
  void draw_tokens();
  // The token ids of the micro-batch that is lowered.
  std::function<const int32_t*()> token_ids() const;
  void forward_embedding(int i);
  void backward_embedding(int i);
  void backward_words(int embedding, const Tensor* dy);
  void forward_span_loss(int i);
  void forward_output(int i);
  // The batch norm whose sums a kernel of ours takes behind this convolution; -1: none.
  int summed_norm(int conv) const { return by_cudnn() ? -1 : graph_.norm_behind(conv); }
  void forward_statistics(int norm);
  void forward_plain_norm(int i);
  void forward_add(int i);
  void forward_activation(const ActivationPattern& pattern);
  // The pattern that begins with this convolution's bias, and the operation that does both.
  struct Epilogue {
    const ActivationPattern* pattern;
    ConvolutionOp op;
  };
  std::optional<Epilogue> epilogue(int conv) const;
  std::function<Activation()> activation(const ActivationPattern& pattern) const;
  // How a kernel gets the coefficients of the batch norm behind this convolution.
  std::function<NormInput()> norm_input(int conv, int norm) const;

  void backward(int i);
  void backward_linear(int i);
  // The linear layer whose bias has as its gradient the sum over tokens of what this layer norm
  // leaves as the gradient of its input; -1: none.
  int bias_before(int norm) const;
  void backward_layer_norm(int i);
  // Adds what the blocks of all layer norms of a backward pass have summed up.
  void sum_layer_norms();
  void backward_gelu(const ActivationPattern& pattern);
  void backward_attention(int i);
  void backward_class_token(int i);
  void backward_positions(int i);
  void backward_select_token(int i);
  void backward_plain_norm(int i);
  void backward_add(int i);
  void backward_activation(const ActivationPattern& pattern);
  void backward_activation_pool(const ActivationPattern& pattern);
  void backward_average_pool(int i);
  // What the backward sweeps of a batch norm take; all but `dy` may be absent.
  struct NormTensors {
    Incoming incoming;
    const Tensor *dy, *dy_second;
    const Tensor *x = nullptr, *dz = nullptr;  // the sums store `dz`, the gradient before the ReLU
  };
  NormTensors incoming_gradient(const NormPattern& pattern);
  std::function<NormBackwardOperands()> norm_backward_operands(const NormPattern& pattern,
                                                               const NormTensors& tensors);
  void emit_norm_sums(const NormPattern& pattern, const NormTensors& tensors);
  void backward_norm(const NormPattern& pattern);
  void backward_norm_pool(const NormPattern& pattern);
  // The gradient at the input of a 1x1 convolution of stride 2 is zero but at even pixels. A block
  // end takes those alone from one of its consumers.
  bool leaves_even_pixels(int conv) const;
  ImageSize image_size(int node) const;
  bool fuses_backward(const NormPattern& pattern) const;
  bool fuses_backward(int conv) const;
  PointwiseShape pointwise_shape(int conv) const;
  void backward_convolution(int i);
  void backward_pointwise(int i);
  void backward_stem(int i);
  void mask_stem_gradient(const Node& conv);
  // The gradients that consumers leave: at most two, of which the second may be absent, or one sum.
  std::pair<const Tensor*, const Tensor*> gradients_of(int node) { return gradients_of(node, 2); }
  const Tensor* gradient_of(int node) { return gradients_of(node, 1).first; }
  std::pair<const Tensor*, const Tensor*> gradients_of(int node, size_t most);

  // lowering_cudnn.cpp. The first two say whether they took the node.
  bool by_cudnn() const { return options_.kernels == Kernels::cudnn; }
  bool forward_by_cudnn(int i);
  bool backward_by_cudnn(int i);
  LayerShape layer_shape(int node) const;
  template <class Make, class Run>
  Kernel& emit_layer(const std::string& name, Phase phase,
                     const std::vector<const Tensor*>& operands, Make make, Run run);
  const Tensor* cudnn_sum(const std::string& name, Phase phase, const Tensor* left,
                          const Tensor* right, const LayerShape& shape);
  // A batch norm, alone or with what cuDNN computes in the same kernel. Nodes by index; -1: none.
  struct CudnnNorm {
    int norm, input, residual;
    NormFusion fusion;
  };
  CudnnNorm cudnn_norm(int output) const;
  int64_t norm_reserve_bytes(int output) const;
  std::function<NormLayer(cudnnHandle_t)> norm_maker(int output) const;
  std::string norm_name(int output) const;
  void forward_cudnn_norm(int output);
  void backward_cudnn_norm(int output);
  std::function<PoolLayer(cudnnHandle_t)> pool_maker(int pool) const;
  void forward_cudnn_pool(int pool);
  void backward_cudnn_pool(int pool);
  void add_bias_by_cudnn(int product, const Tensor* y);
  void forward_cudnn_activation(const ActivationPattern& pattern);
  void backward_cudnn_activation(const ActivationPattern& pattern);

  void finish();
  // Lifetimes follow from the order of the kernels; the images stay from step to step.
  void place();

  const Graph& graph_;
  const ProgramOptions& options_;
  const LoweringChoices& choices_;
  const FlatLayout& layout_;
  const StepResources& resources_;
  const Patterns patterns_;
  LoweredStep step_;
  int64_t micro_batch_ = 0;
  // The tensors of this micro-batch, all by node.
  std::vector<const Tensor*> values_;
  std::vector<const Tensor*> sums_;      // of a convolution's output, if it leaves them, or what a
                                         // layer norm or attention keeps of its rows
  std::vector<const Tensor*> masks_;     // of a ReLU, the winners of pooling, or cuDNN's reserve
  std::vector<const Tensor*> winner_x_;  // of pooling
  // A convolution's, where its batch norm is computed by second moments.
  struct Moments {
    const Tensor *mean = nullptr, *central = nullptr, *product = nullptr, *scaled_weights = nullptr;
  };
  std::vector<Moments> moments_;
  std::vector<std::vector<const Tensor*>> gradients_;  // one from each consumer, but for ...
  std::vector<const Tensor*> even_pixel_gradients_;    // ... one that has the even pixels alone
  // The same of the others, between their passes.
  struct NodeTensors {
    std::vector<const Tensor*> values, sums, masks, winner_x;
    std::vector<Moments> moments;
    std::vector<std::vector<const Tensor*>> gradients;
  };
  std::vector<NodeTensors> kept_;
  // The boundary tensors of a stage, by micro-batch: received and sent.
  std::vector<std::array<const Tensor*, transfer_count>> boundary_;
  std::deque<int64_t> sent_gradients_;  // micro-batches whose gradients may still be on their way
  // By convolution, where its own backward kernel forms the gradient at its output.
  struct PendingGradient {
    int norm;
    const Tensor* dz;  // behind the batch norm
    bool relu;         // ... and its ReLU
  };
  std::map<int, PendingGradient> pending_;
  std::set<int> joined_;  // block ends whose gradient is already that before their ReLU, and summed
  // The same for the stem: the pooling behind it, and the gradient behind its ReLU.
  std::optional<std::pair<int, const Tensor*>> pending_stem_;
  struct NormSums {
    const Tensor* partial_sums;
    Extent extent;
    int scale, bias, bias_before;  // parameters; the last is that of a linear layer, or -1
  };
  std::vector<NormSums> norm_sums_;  // of layer norms whose sums are not complete yet
  std::set<int> summed_biases_;  // linear layers whose bias has its gradient from another kernel
};

}  // namespace nearmetal::cuda
