// The operations of a step in their order: those that were lowered, and what the program does
// itself.
#include <utility>

#include "models/cpu/cpu_program.h"
#include "models/cpu/host.h"

namespace nearmetal::cpu {

void CpuProgram::put_events_in_order() {
  const std::vector<Operation> lowered = std::exchange(step_.operations, {});
  for (const LoweredEvent& event : step_.events) {
    append_own_operations(event);
    step_.operations.insert(step_.operations.end(),
                            lowered.begin() + static_cast<ptrdiff_t>(event.begin),
                            lowered.begin() + static_cast<ptrdiff_t>(event.end));
  }
}

void CpuProgram::append_own_operations(const LoweredEvent& lowered) {
  switch (lowered.event.kind) {
    case StepEventKind::input:
      return append_input();
    case StepEventKind::forward:
      return append_begin_of_micro_batch(lowered);
    case StepEventKind::add_gradients:
      return append_sum_of_gradients(lowered.event.part);
    case StepEventKind::finish_step:
      return append("loss + gradient norm", Phase::update, "own loop",
                    step_.bytes(Region::gradients), [this] { finish_step(); });
    case StepEventKind::sum_over_stages:
      return append("sum over stages", Phase::update, "transfer", 0, [this] { sum_over_stages(); });
    case StepEventKind::end_pipeline:
      return append("end of the pipeline", Phase::update, "mark", 0, [this] { end_pipeline(); });
    case StepEventKind::update:
      // Reads and writes the values and each moment, and reads the gradient.
      return append(to_string(options_.optimizer.kind), Phase::update, "own loop",
                    (is_adamw(options_) ? 7 : 5) * step_.bytes(Region::gradients) +
                        step_.bytes(Region::copies),
                    [this] { update(); });
    default:  // it was lowered
      return;
  }
}

void CpuProgram::append_input() {
  if (graph_.reads_tokens()) {
    append("tokens", Phase::input, "own loop", 4 * std::ssize(state_.tokens),
           [this] { draw_tokens(); });
  }
  if (graph_.has_loss()) {
    append("labels", Phase::input, "own loop", 4 * std::ssize(state_.labels),
           [this] { draw_labels(); });
  }
}

void CpuProgram::append_begin_of_micro_batch(const LoweredEvent& forward) {
  const int64_t micro_batch = forward.event.micro_batch;
  const bool shares = options_.micro_batches > 1 && !options_.pipeline.is_pipelined();
  const int64_t first = shares ? micro_batch * options_.batch_size : 0;
  if (forward.images != nullptr && host_images_ != nullptr) {
    const int64_t bytes = forward.images->bytes();
    append("images", Phase::input, "own copy", 2 * bytes, [=, this, images = forward.images] {
      state_.first_image = first;
      parallel_copy(images->data(), host_images_of(micro_batch), bytes);
    });
  } else if (shares) {
    append("begin of a micro-batch", Phase::input, "own", 0,
           [this, first] { state_.first_image = first; });
  }
}

void CpuProgram::append_sum_of_gradients(MicroBatch part) {
  const int64_t bytes = step_.bytes(Region::gradients);
  if (part == MicroBatch::last) {
    step_.operations.push_back(mean_of_micro_batches("gradients", flat_gradient(), 0, bytes / 4));
    return;
  }
  const bool first = part == MicroBatch::first;
  append("sum of micro-batches", Phase::backward, first ? "own copy" : "own loop",
         (first ? 2 : 3) * bytes,
         [=, sum = static_cast<float*>(sum_before_.get()), gradient = region(Region::gradients)] {
           if (first) return parallel_copy(sum, gradient, bytes);
           add(Precision::fp32, sum, gradient, false, sum, bytes / 4);
         });
}

// So that all stages agree on the norm, the loss and whether there is an update. Until the last of
// them is through there is nothing to compute.
void CpuProgram::sum_over_stages() {
  StageState& stage = state_.stage;
  const double begin = steady_seconds();
  stage.links->sum(state_.sums.data(), static_cast<int>(state_.sums.size()), nullptr);
  stage.seconds.waiting += steady_seconds() - begin;
}

void CpuProgram::end_pipeline() {
  StageState& stage = state_.stage;
  stage.seconds.span =
      steady_seconds() - stage.begin_seconds - state_.exposed_communication_seconds;
  record_.pipeline = stage.seconds;
  take_sums();
}

void CpuProgram::connect_stages(StageLinks& links) {
  if (!options_.pipeline.is_pipelined()) Program::connect_stages(links);
  links.bind(static_cast<int>(options_.micro_batches));
  state_.stage.links = &links;
}

}  // namespace nearmetal::cpu
