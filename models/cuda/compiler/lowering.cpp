#include "models/cuda/compiler/lowering.h"

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>

#include "models/cuda/compiler/lowering_state.h"
#include "models/cuda/kernels/norm_pool.h"
#include "models/synthetic.h"

namespace nearmetal::cuda {
Lowering::Lowering(const Graph& graph, const ProgramOptions& options,
                   const LoweringChoices& choices, const FlatLayout& layout,
                   const StepResources& resources)
    : graph_(graph),
      options_(options),
      choices_(choices),
      layout_(layout),
      resources_(resources),
      patterns_(graph, options.kernels, options.precision) {}

LoweredStep Lowering::run() {
  labels_and_samples();
  const PipelinePlace& pipeline = options_.pipeline;
  kept_.resize(options_.micro_batches);
  boundary_.resize(options_.micro_batches);
  const std::vector<StageTask> tasks = stage_tasks(
      pipeline.schedule, pipeline.stages, static_cast<int>(options_.micro_batches), pipeline.stage);
  for (size_t i = 0; i < tasks.size(); ++i) lower_task(tasks, i);
  if (graph_.is_trainable()) finish();
  place();
  return std::move(step_);
}

Extent Lowering::extent(int node) const {
  const Shape& shape = graph_.node(node).shape;
  return {options_.batch_size * shape.height * shape.width, static_cast<int>(shape.channels)};
}

StemShape Lowering::stem_shape(int conv) const {
  const Node& node = graph_.node(conv);
  const Shape& input = graph_.input_shape(node);
  return {options_.batch_size, static_cast<int>(input.height), static_cast<int>(input.width),
          static_cast<int>(node.shape.height), static_cast<int>(node.shape.width)};
}

Kernel& Lowering::emit(const std::string& name, Phase phase, const std::string& implementation,
                       std::vector<const Tensor*> operands,
                       std::function<void(cudaStream_t)> launch) {
  std::erase(operands, nullptr);
  double bytes = 0;
  for (const Tensor* operand : operands) bytes += static_cast<double>(operand->bytes);
  return step_.kernels.emplace_back(Kernel{.name = name,
                                           .phase = phase,
                                           .implementation = implementation,
                                           .bytes = bytes,
                                           .operands = std::move(operands),
                                           .launch = std::move(launch)});
}

void Lowering::labels_and_samples() {
  if (graph_.reads_tokens()) draw_tokens();
  if (graph_.has_loss()) {
    emit("labels", Phase::input, "own", {},
         [seed = label_seed(options_.data_seed), classes = graph_.classes(),
          count = options_.step_images() * graph_.labels_per_sample(),
          &r = resources_](cudaStream_t stream) {
           launch_draw_labels({seed, count, r.state, r.fixed_labels, r.use_fixed_samples, r.labels},
                              classes, stream);
         });
  }
  if (graph_.receives() || graph_.reads_tokens()) return;
  step_.image_layout = stem_image_layout(choices_.stem, stem_convolution(graph_), graph_.image(),
                                         options_.step_images());
  step_.images = tensor(step_.image_layout.stored_elements() * element_size());
}

void Lowering::lower_task(const std::vector<StageTask>& tasks, size_t index) {
  const auto [pass, micro_batch] = tasks[index];
  if (pass == Pass::backward && options_.forward_only) return;
  micro_batch_ = micro_batch;
  swap_micro_batch();
  const size_t nodes = graph_.nodes().size();
  if (pass == Pass::forward) {
    for (auto* tensors : {&values_, &sums_, &masks_, &winner_x_}) tensors->assign(nodes, nullptr);
    moments_.assign(nodes, {});
    gradients_.assign(nodes, {});
    take_images();
  }
  even_pixel_gradients_.assign(nodes, nullptr);
  pending_.clear();
  joined_.clear();
  pending_stem_.reset();
  summed_biases_.clear();
  if (options_.pipeline.is_pipelined()) begin_stage_task(tasks, index);
  for (size_t i = 0; i < nodes; ++i) {
    if (pass == Pass::forward) forward(static_cast<int>(i));
    if (pass == Pass::backward) backward(static_cast<int>(nodes - 1 - i));
  }
  if (options_.pipeline.is_pipelined()) start_send(tasks[index]);
  sum_layer_norms();
  if (pass == Pass::backward) end_micro_batch();
  if (options_.pipeline.is_pipelined()) end_stage_task(tasks, index);
  swap_micro_batch();
}

void Lowering::swap_micro_batch() {
  NodeTensors& kept = kept_[micro_batch_];
  std::swap(values_, kept.values);
  std::swap(sums_, kept.sums);
  std::swap(masks_, kept.masks);
  std::swap(winner_x_, kept.winner_x);
  std::swap(moments_, kept.moments);
  std::swap(gradients_, kept.gradients);
}

void Lowering::take_images() {
  if (step_.images == nullptr) return;
  values_[0] = step_.images;
  if (options_.micro_batches == 1) return;
  const int64_t bytes = step_.images->bytes / options_.micro_batches;
  values_[0] = &step_.tensors.emplace_back(
      Tensor{.bytes = bytes, .whole = step_.images, .offset_bytes = micro_batch_ * bytes});
}

// The mean counts as exchange, as insert_exchange() takes it bucket by bucket instead.
void Lowering::end_micro_batch() {
  const int64_t count = options_.micro_batches;
  if (count == 1) return;
  const bool last = micro_batch_ == count - 1;
  const MicroBatch which = last                ? MicroBatch::last
                           : micro_batch_ == 0 ? MicroBatch::first
                                               : MicroBatch::middle;
  const std::string name =
      last ? "mean of " + std::to_string(count) + " micro-batches" : "sum of micro-batches";
  const auto gradients =
      static_cast<double>(layout_.matrix_elements * element_size() + layout_.vector_elements * 4);
  const auto sums = 4.0 * static_cast<double>(layout_.elements());
  emit(name, last ? Phase::exchange : Phase::backward, "own", {},
       [=, type = stored_type(options_.precision), &r = resources_](cudaStream_t stream) {
         const FlatParameters& flat = r.parameters;
         launch_add_micro_batch(
             which, {type, flat.matrix_gradients, flat.sum_before, flat.matrix_elements}, count,
             stream);
         launch_add_micro_batch(which,
                                {Precision::fp32, flat.vector_gradients,
                                 flat.sum_before + flat.matrix_elements, flat.vector_elements},
                                count, stream);
       })
      .bytes = (last ? 2 : 1) * gradients + (which == MicroBatch::middle ? 2 : 1) * sums;
}

ConvolutionProblem Lowering::problem(ConvolutionOp op, int conv) const {
  const Node& node = graph_.node(conv);
  const Shape& input = graph_.input_shape(node);
  if (is_stem(conv)) {
    return {op, cuda::stem_shape(choices_.stem, node, input, options_.batch_size),
            options_.precision};
  }
  ConvolutionShape shape = convolution_shape(node, input, options_.batch_size);
  if (op == ConvolutionOp::backward_data && leaves_even_pixels(conv)) {
    shape.stride = 1;
    shape.input_height = shape.output_height;
    shape.input_width = shape.output_width;
  }
  return {op, shape, options_.precision};
}

ConvolutionCall& Lowering::emit_convolution(int conv, ConvolutionOp op, Phase phase,
                                            const Tensor* x, const Tensor* y, const Tensor* third) {
  const Node& node = graph_.node(conv);
  Kernel& kernel = emit(node.name, phase, "", {x, y, third}, nullptr);
  ConvolutionCall& call = kernel.convolution.emplace();
  call.problem = problem(op, conv);
  call.x = x;
  call.y = y;
  (op == ConvolutionOp::forward_residual ? call.residual : call.sums) = third;
  call.weight_parameter = node.parameters[0];
  if (adds_bias(op)) call.bias_parameter = node.parameters[1];
  if (op == ConvolutionOp::forward) {
    if (summed_norm(conv) >= 0) call.with_sweep = ConvolutionOp::forward_statistics;
    if (const auto found = epilogue(conv)) call.with_sweep = found->op;
  }
  if (op == ConvolutionOp::backward_weights) kernel.gradient_of = node.parameters[0];
  // By the graph's own arithmetic: padded channels are no work.
  kernel.flops = graph_.forward_flops(node) * static_cast<double>(options_.batch_size);
  kernel.bytes += static_cast<double>(call.problem.shape.weight_elements() * element_size());
  return call;
}

bool Lowering::leaves_even_pixels(int conv) const {
  const Node& node = graph_.node(conv);
  const int input = node.inputs[0];
  const std::vector<int>& consumers = graph_.consumers(input);
  return !by_cudnn() && node.window == Window{1, 2, 0} && graph_.is(input, OpKind::relu) &&
         consumers.size() == 2 && consumers.back() == conv && patterns_.norm(input) != nullptr &&
         patterns_.norm(input)->residual >= 0;
}

ImageSize Lowering::image_size(int node) const {
  const Shape& shape = graph_.node(node).shape;
  return {static_cast<int>(shape.height), static_cast<int>(shape.width)};
}

PoolShape Lowering::pool_shape(int pool) const {
  const Node& node = graph_.node(pool);
  const Shape& input = graph_.input_shape(node);
  return {options_.batch_size,
          static_cast<int>(input.channels),
          static_cast<int>(input.height),
          static_cast<int>(input.width),
          static_cast<int>(node.shape.height),
          static_cast<int>(node.shape.width),
          node.window};
}

void Lowering::finish() {
  const Precision precision = options_.precision;
  const auto& r = resources_;
  const double elements = static_cast<double>(layout_.elements());
  const bool staged = options_.pipeline.is_pipelined();
  emit("gradient norm", Phase::update, "own", {},
       [=, images = options_.step_images(), dynamic = options_.loss_scale.dynamic,
        forward_only = options_.forward_only, &r](cudaStream_t stream) {
         launch_finish_step(
             precision,
             {r.losses, images, r.parameters, r.ranks, r.finish_sums, r.finish_arrivals, r.state,
              r.ring, r.ring_size, dynamic, forward_only, staged ? r.stage_sums : nullptr},
             stream);
       })
      .bytes = options_.forward_only ? 0 : elements * static_cast<double>(element_size());
  if (staged) emit_sum_over_stages();
  if (options_.forward_only) return;
  const double copy = precision == Precision::fp16 || precision == Precision::bf16 ? 2 : 0;
  const bool adamw = is_adamw(options_);
  emit(to_string(options_.optimizer.kind), Phase::update, "own", {},
       [=, options = options_.optimizer, &r](cudaStream_t stream) {
         if (adamw) {
           launch_adamw(precision, r.parameters, options.weight_decay, r.state, stream);
         } else {
           launch_sgd(precision, r.parameters, options.momentum, options.weight_decay, r.state,
                      stream);
         }
       })
      .bytes = elements * ((adamw ? 6 : 4) * 4 + static_cast<double>(element_size()) + copy);
}

void Lowering::place() {
  std::map<const Tensor*, int> index;
  std::vector<BufferLife> lives;
  const int last = static_cast<int>(step_.kernels.size()) - 1;
  for (const Tensor& tensor : step_.tensors) {
    const Tensor* whole = tensor.whole != nullptr ? tensor.whole : &tensor;
    index[&tensor] = whole == &tensor ? static_cast<int>(lives.size()) : index.at(whole);
    lives.push_back({whole == &tensor ? tensor.bytes : 0, last, 0});
  }
  for (int k = 0; k <= last; ++k) {
    for (const Tensor* operand : step_.kernels[k].operands) {
      BufferLife& life = lives[index.at(operand)];
      life.first_use = std::min(life.first_use, k);
      life.last_use = std::max(life.last_use, k);
    }
  }
  if (step_.images != nullptr) lives[index.at(step_.images)] = {step_.images->bytes, 0, last};
  step_.memory = plan_memory(lives);
}

LoweredStep lower(const Graph& graph, const ProgramOptions& options, const LoweringChoices& choices,
                  const FlatLayout& layout, const StepResources& resources) {
  return Lowering(graph, options, choices, layout, resources).run();
}

std::vector<ConvolutionProblem> distinct_problems(const LoweredStep& step, bool with_sweeps) {
  std::map<std::string, ConvolutionProblem> found;
  for (const Kernel& kernel : step.kernels) {
    if (!kernel.convolution) continue;
    const ConvolutionProblem& problem = kernel.convolution->problem;
    found.emplace(problem.key(), problem);
    if (with_sweeps && kernel.convolution->with_sweep) {
      const ConvolutionProblem swept = problem.with(*kernel.convolution->with_sweep);
      found.emplace(swept.key(), swept);
    }
  }
  std::vector<ConvolutionProblem> problems;
  for (auto& [key, problem] : found) problems.push_back(problem);
  return problems;
}

std::vector<LinearProblem> distinct_products(const LoweredStep& step) {
  std::map<std::string, LinearProblem> found;
  for (const Kernel& kernel : step.kernels) {
    if (kernel.linear) found.emplace(kernel.linear->problem.key(), kernel.linear->problem);
  }
  std::vector<LinearProblem> problems;
  for (const auto& [key, problem] : found) problems.push_back(problem);
  return problems;
}

void unsupported(const Node& node, const std::string& reason) {
  throw std::invalid_argument("the CUDA backend cannot compute " + node.name + ": " + reason);
}

}  // namespace nearmetal::cuda
