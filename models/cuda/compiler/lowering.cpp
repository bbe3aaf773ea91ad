#include "models/cuda/compiler/lowering.h"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "models/cuda/compiler/planner.h"
#include "models/cuda/kernels/update.h"
#include "models/step_order.h"
#include "models/synthetic.h"

namespace nearmetal::cuda {
namespace {

StageLinks& links_of(const StepResources& resources) {
  if (resources.links == nullptr) throw std::logic_error("the stage has no neighbours");
  return *resources.links;
}

// Realises the events of a step by the ops of its passes.
class Lowering {
 public:
  Lowering(const Graph& graph, const ProgramOptions& options, const LoweringChoices& choices,
           const FlatLayout& layout, const StepResources& resources)
      : graph_(graph),
        options_(options),
        layout_(layout),
        resources_(resources),
        ops_(plan_ops(graph, options, choices,
                      {resources.reduction.multiprocessors, resources.cudnn})),
        tensors_(options.micro_batches, std::vector<const Tensor*>(ops_.values.size())) {
    if (!has_stem(graph)) return;
    step_.image_layout = stem_image_layout(choices.stem, stem_convolution(graph), graph.image(),
                                           options.step_images());
  }

  LoweredStep run() {
    const StepFacts facts{options_.pipeline, options_.micro_batches, graph_.is_trainable(),
                          options_.forward_only};
    for (const StepEvent& event : step_order(facts)) realise(event);
    if (ops_.logits != no_value) step_.logits = tensors_.back()[ops_.logits];
    place();
    return std::move(step_);
  }

 private:
  void realise(const StepEvent& event);
  void draw_input();
  void mark(const char* name, size_t mark);
  void emit_pass(const std::vector<FusedOp>& ops, int64_t micro_batch);
  void transfer(const StepEvent& event);
  void add_gradients(MicroBatch part);
  void finish_step();
  void end_pipeline();
  void update();
  void place();

  // The tensor of a value, made where there is none yet.
  const Tensor* tensor(int64_t micro_batch, ValueId value);
  Kernel& add(const std::string& name, Phase phase, const std::string& implementation, double bytes,
              Launch launch);

  const Graph& graph_;
  const ProgramOptions& options_;
  const FlatLayout& layout_;
  const StepResources& resources_;
  const Ops ops_;
  std::vector<std::vector<const Tensor*>> tensors_;  // by micro-batch, then by value
  LoweredStep step_;
};

const Tensor* Lowering::tensor(int64_t micro_batch, ValueId value) {
  const Tensor*& found = tensors_[micro_batch][value];
  if (found != nullptr) return found;
  const int64_t bytes = ops_.values[value].bytes;
  const bool part_of_images = value == ops_.input && step_.images != nullptr;
  if (!part_of_images) return found = &step_.tensors.emplace_back(Tensor{bytes, nullptr});
  if (options_.micro_batches == 1) return found = step_.images;
  return found = &step_.tensors.emplace_back(
             Tensor{.bytes = bytes, .whole = step_.images, .offset_bytes = micro_batch * bytes});
}

Kernel& Lowering::add(const std::string& name, Phase phase, const std::string& implementation,
                      double bytes, Launch launch) {
  return step_.kernels.emplace_back(Kernel{.name = name,
                                           .phase = phase,
                                           .implementation = implementation,
                                           .bytes = bytes,
                                           .launch = std::move(launch)});
}

void Lowering::realise(const StepEvent& event) {
  switch (event.kind) {
    case StepEventKind::input:
      return draw_input();
    case StepEventKind::begin_pipeline:
      return mark("begin of the pipeline", marks_of_step(options_) - 2);
    case StepEventKind::start_transfer:
    case StepEventKind::finish_transfer:
      return transfer(event);
    case StepEventKind::begin_task:
      return mark("begin", 2 * event.task);
    case StepEventKind::forward:
      return emit_pass(ops_.forward, event.micro_batch);
    case StepEventKind::backward:
      return emit_pass(ops_.backward, event.micro_batch);
    case StepEventKind::end_backward:
      return emit_pass(ops_.ends, event.micro_batch);
    case StepEventKind::add_gradients:
      return add_gradients(event.part);
    case StepEventKind::end_task:
      return mark("end", 2 * event.task + 1);
    case StepEventKind::finish_step:
      return finish_step();
    case StepEventKind::sum_over_stages:
      add("sum over stages", Phase::update, "transfer", 0,
          [&r = resources_](cudaStream_t stream) { links_of(r).sum(r.stage_sums, 2, stream); });
      return;
    case StepEventKind::end_pipeline:
      return end_pipeline();
    case StepEventKind::update:
      return update();
  }
}

void Lowering::draw_input() {
  const Node& first = graph_.node(0);
  if (graph_.reads_tokens()) {
    if (options_.input != Input::device) {
      unsupported(first, "they are drawn on the device, not copied from the host");
    }
    add(first.name, Phase::input, "own", 0,
        [seed = image_seed(options_.data_seed), vocabulary = first.vocabulary,
         count = options_.step_images() * first.shape.tokens(),
         &r = resources_](cudaStream_t stream) {
          launch_draw_tokens({seed, count, r.state, r.fixed_tokens, r.use_fixed_samples, r.tokens},
                             vocabulary, stream);
        });
  }
  if (graph_.has_loss()) {
    add("labels", Phase::input, "own", 0,
        [seed = label_seed(options_.data_seed), classes = graph_.classes(),
         count = options_.step_images() * graph_.labels_per_sample(),
         &r = resources_](cudaStream_t stream) {
          launch_draw_labels({seed, count, r.state, r.fixed_labels, r.use_fixed_samples, r.labels},
                             classes, stream);
        });
  }
  if (!has_stem(graph_)) return;
  const int64_t bytes = step_.image_layout.stored_elements() * element_bytes(options_.precision);
  step_.images = &step_.tensors.emplace_back(Tensor{bytes, nullptr});
}

void Lowering::mark(const char* name, size_t mark) {
  add(name, Phase::forward, "mark", 0,
      [mark = static_cast<int>(mark), &r = resources_](cudaStream_t stream) {
        launch_mark({r.state, r.mark_ring, r.ring_size, r.mark_count}, mark, stream);
      });
}

void Lowering::emit_pass(const std::vector<FusedOp>& ops, int64_t micro_batch) {
  const Emission emission{{graph_, options_.batch_size, options_.precision},
                          layout_,
                          resources_,
                          micro_batch,
                          micro_batch % norm_slots(options_)};
  for (const FusedOp& op : ops) {
    for (const Operand& operand : op.operands) tensor(micro_batch, operand.value);
    step_.kernels.push_back(emit(op, emission, tensors_[micro_batch]));
    step_.kernels.back().op = text_of(op, ops_);
  }
}

// A kernel of its own: the links have streams beside that of the step.
void Lowering::transfer(const StepEvent& event) {
  const Transfer transfer = event.transfer;
  const ValueId value = transfer == Transfer::receive_value      ? ops_.input
                        : transfer == Transfer::receive_gradient ? ops_.received_gradient
                        : transfer == Transfer::send_value       ? ops_.output
                                                                 : ops_.input_gradient;
  const Tensor* data = tensor(event.micro_batch, value);
  const bool starts = event.kind == StepEventKind::start_transfer;
  const auto launch = [=, micro_batch = static_cast<int>(event.micro_batch),
                       &r = resources_](cudaStream_t stream) {
    if (starts) {
      links_of(r).start(transfer, micro_batch, data->data, data->bytes, stream);
    } else {
      links_of(r).finish(transfer, micro_batch, stream);
    }
  };
  const bool is_value = transfer == Transfer::receive_value || transfer == Transfer::send_value;
  add(std::string(starts ? "start " : "finish ") + to_string(transfer),
      is_value ? Phase::forward : Phase::backward, "transfer", static_cast<double>(data->bytes),
      launch)
      .operands = {data};
}

// The mean counts as exchange, as insert_exchange() takes it bucket by bucket instead.
void Lowering::add_gradients(MicroBatch part) {
  const int64_t count = options_.micro_batches;
  const bool last = part == MicroBatch::last;
  const std::string name =
      last ? "mean of " + std::to_string(count) + " micro-batches" : "sum of micro-batches";
  const auto gradients = static_cast<double>(
      layout_.matrix_elements * element_bytes(options_.precision) + layout_.vector_elements * 4);
  const auto sums = 4.0 * static_cast<double>(layout_.elements());
  add(name, last ? Phase::exchange : Phase::backward, "own",
      (last ? 2 : 1) * gradients + (part == MicroBatch::middle ? 2 : 1) * sums,
      [=, type = stored_type(options_.precision), &r = resources_](cudaStream_t stream) {
        const FlatParameters& flat = r.parameters;
        launch_add_micro_batch(part,
                               {type, flat.matrix_gradients, flat.sum_before, flat.matrix_elements},
                               count, stream);
        launch_add_micro_batch(part,
                               {Precision::fp32, flat.vector_gradients,
                                flat.sum_before + flat.matrix_elements, flat.vector_elements},
                               count, stream);
      });
}

void Lowering::finish_step() {
  const double bytes = static_cast<double>(layout_.elements() * element_bytes(options_.precision));
  add("gradient norm", Phase::update, "own", options_.forward_only ? 0 : bytes,
      [precision = options_.precision, images = options_.step_images(),
       dynamic = options_.loss_scale.dynamic, forward_only = options_.forward_only,
       staged = options_.pipeline.is_pipelined(), &r = resources_](cudaStream_t stream) {
        launch_finish_step(
            precision,
            {r.losses, images, r.parameters, r.ranks, r.finish_sums, r.finish_arrivals, r.state,
             r.ring, r.ring_size, dynamic, forward_only, staged ? r.stage_sums : nullptr},
            stream);
      });
}

// Once all stages agree on the norm, the loss and whether there is an update.
void Lowering::end_pipeline() {
  add("end of the pipeline", Phase::update, "own", 0,
      [images = options_.step_images(), dynamic = options_.loss_scale.dynamic,
       mark = marks_of_step(options_) - 1, &r = resources_](cudaStream_t stream) {
        launch_mark({r.state, r.mark_ring, r.ring_size, r.mark_count}, mark, stream);
        launch_finish_stages(
            {r.losses, images, r.parameters, r.ranks, r.finish_sums, r.finish_arrivals, r.state,
             r.ring, r.ring_size, dynamic, false, r.stage_sums},
            stream);
      });
}

void Lowering::update() {
  const Precision precision = options_.precision;
  const int64_t size = element_bytes(precision);
  const double copy = size == 2 ? 2 : 0;
  const bool adamw = is_adamw(options_);
  add(to_string(options_.optimizer.kind), Phase::update, "own",
      static_cast<double>(layout_.elements()) *
          ((adamw ? 6 : 4) * 4 + static_cast<double>(size) + copy),
      [=, options = options_.optimizer, &r = resources_](cudaStream_t stream) {
        if (adamw) {
          launch_adamw(precision, r.parameters, options.weight_decay, r.state, stream);
        } else {
          launch_sgd(precision, r.parameters, options.momentum, options.weight_decay, r.state,
                     stream);
        }
      });
}

// Lifetimes follow from the order of the kernels; the images stay from step to step.
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

}  // namespace

LoweredStep lower(const Graph& graph, const ProgramOptions& options, const LoweringChoices& choices,
                  const FlatLayout& layout, const StepResources& resources) {
  return Lowering(graph, options, choices, layout, resources).run();
}

std::vector<LinearProblem> distinct_products(const LoweredStep& step) {
  std::map<std::string, LinearProblem> found;
  for (const Kernel& kernel : step.kernels) {
    if (kernel.linear) found.emplace(kernel.linear->key(), *kernel.linear);
  }
  std::vector<LinearProblem> problems;
  for (const auto& [key, problem] : found) problems.push_back(problem);
  return problems;
}

std::vector<AttentionProblem> distinct_attention(const Graph& graph,
                                                 const ProgramOptions& options) {
  std::vector<AttentionProblem> problems;
  if (element_bytes(options.precision) != 2) return problems;  // products have no rival
  const NodeShapes shapes{graph, options.batch_size, options.precision};
  std::set<std::string> keys;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    if (graph.nodes()[i].op != OpKind::attention) continue;
    const AttentionProblem forward{AttentionOp::forward, shapes.attention(static_cast<int>(i)),
                                   options.precision};
    if (!keys.insert(forward.key()).second) continue;
    problems.push_back(forward);
    if (!options.forward_only) problems.push_back(forward.with(AttentionOp::backward));
  }
  return problems;
}

namespace {

// By the begin of each matrix, in elements, the last kernel that writes its gradient.
std::map<int64_t, size_t> completed_by(const LoweredStep& step, const FlatLayout& layout) {
  std::map<int64_t, size_t> last;
  for (size_t k = 0; k < step.kernels.size(); ++k) {
    if (const auto& matrix = step.kernels[k].gradient_of) last[layout.slices[*matrix].offset] = k;
  }
  return last;
}

// Where the backward pass leaves gradients, where the sum over the micro-batches before lies, null
// if there are none, and where they are summed: in the same memory unless they travel in another
// type.
struct Sent {
  GradientBucket computed;
  float* sum_before = nullptr;
  GradientBucket summed;

  bool is_converted() const { return summed.data != computed.data; }
  Sent part(int64_t begin, int64_t end) const {
    const auto cut = [&](const GradientBucket& whole) {
      return GradientBucket{static_cast<char*>(whole.data) + begin * element_bytes(whole.type),
                            end - begin, whole.type};
    };
    return {cut(computed), sum_before == nullptr ? nullptr : sum_before + begin, cut(summed)};
  }
};

Sent section(const GradientBucket& computed, float* sum_before, void* sent,
             const ProgramOptions& options) {
  if (sent == nullptr) return {computed, sum_before, computed};
  return {computed, sum_before, {sent, computed.elements, *options.gradient_type}};
}

Kernel exchange(const std::string& name, const std::string& implementation, int64_t bytes,
                std::function<void(cudaStream_t)> launch) {
  return {.name = name,
          .phase = Phase::exchange,
          .implementation = implementation,
          .bytes = static_cast<double>(bytes),
          .launch = std::move(launch)};
}

Kernel conversion(const std::string& name, const GradientBucket& from, const GradientBucket& to) {
  return exchange(name + " from " + to_string(from.type) + " to " + to_string(to.type),
                  "own convert", from.bytes() + to.bytes(), [from, to](cudaStream_t stream) {
                    launch_convert(from.type, from.data, to.type, to.data, to.elements, stream);
                  });
}

Kernel mean(const std::string& name, const Sent& part, int64_t micro_batches) {
  const MicroBatchGradient operands{part.computed.type, part.computed.data, part.sum_before,
                                    part.computed.elements};
  return exchange(name + ", mean of " + std::to_string(micro_batches) + " micro-batches", "own",
                  2 * part.computed.bytes() + 4 * part.computed.elements,
                  [operands, micro_batches](cudaStream_t stream) {
                    launch_add_micro_batch(MicroBatch::last, operands, micro_batches, stream);
                  });
}

// The sections of the flat gradient, in the order of GradientSection.
std::vector<Sent> sections_of(const FlatLayout& layout, const ProgramOptions& options,
                              const StepResources& resources) {
  const FlatParameters& flat = resources.parameters;
  float* vector_sums =
      flat.sum_before == nullptr ? nullptr : flat.sum_before + layout.matrix_elements;
  return {section({flat.matrix_gradients, layout.matrix_elements, stored_type(options.precision)},
                  flat.sum_before, resources.sent_matrices, options),
          section({flat.vector_gradients, layout.vector_elements, Precision::fp32}, vector_sums,
                  resources.sent_vectors, options)};
}

}  // namespace

void insert_exchange(LoweredStep& step, const FlatLayout& layout, const ProgramOptions& options,
                     const StepResources& resources, AllReduce& all_reduce, int64_t bucket_bytes) {
  std::erase_if(step.kernels, [](const Kernel& kernel) { return kernel.phase == Phase::exchange; });
  const auto first_update = std::ranges::find(step.kernels, Phase::update, &Kernel::phase);
  const auto update = static_cast<size_t>(first_update - step.kernels.begin());
  const std::vector<Sent> sent = sections_of(layout, options, resources);
  const std::vector<GradientSection> sections = {
      {cut_buckets(completed_by(step, layout), layout.matrix_elements,
                   bucket_bytes / element_bytes(sent[0].summed.type)),
       sent[0].is_converted()},
      // Vectors are small, and complete only at the end of the backward pass.
      {{{0, layout.vector_elements, update - 1}}, sent[1].is_converted()}};
  std::vector<Sent> buckets;
  std::vector<GradientBucket> summed;
  for (size_t s = 0; s < sections.size(); ++s) {
    for (const BucketRange& range : sections[s].buckets) {
      buckets.push_back(sent[s].part(range.begin, range.end));
      summed.push_back(buckets.back().summed);
    }
  }
  all_reduce.bind(std::move(summed));
  const auto make = [&](const ExchangeEvent& event) {
    const std::string name = "bucket " + std::to_string(event.bucket);
    const Sent& whole = sent[event.section];
    switch (event.kind) {
      case ExchangeEventKind::mean:
        return mean(name, buckets[event.bucket], options.micro_batches);
      case ExchangeEventKind::convert:
        return conversion(name, buckets[event.bucket].computed, buckets[event.bucket].summed);
      case ExchangeEventKind::start: {
        int64_t bytes = 0;
        for (size_t i = 0; i < event.count; ++i) bytes += buckets[event.bucket + i].summed.bytes();
        return exchange(name, all_reduce.library(), bytes,
                        [&all_reduce, first = static_cast<int>(event.bucket),
                         count = static_cast<int>(event.count)](cudaStream_t stream) {
                          all_reduce.start(first, count, stream);
                        });
      }
      case ExchangeEventKind::finish:
        return exchange("all buckets", all_reduce.library(), 0,
                        [&all_reduce, state = resources.state](cudaStream_t stream) {
                          launch_mark_backward_end(state, stream);
                          all_reduce.finish(stream);
                        });
      case ExchangeEventKind::convert_back:
        return conversion(event.section == 0 ? "matrices" : "vectors", whole.summed,
                          whole.computed);
    }
    throw std::logic_error("unnamed ExchangeEventKind");
  };
  const std::vector<ExchangeEvent> events =
      exchange_order(sections, options.micro_batches > 1, update);
  step.kernels = with_exchange(std::move(step.kernels), events, make);
}

}  // namespace nearmetal::cuda
