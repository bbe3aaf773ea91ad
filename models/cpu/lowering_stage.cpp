// The parts that make a graph a stage: values that come and go, the waits for them, and time marks.
#include <stdexcept>

#include "models/cpu/lowering.h"

namespace nearmetal::cpu {
namespace {

StageLinks& links_of(const StepState& state) {
  if (state.stage.links == nullptr) throw std::logic_error("the stage has no neighbours");
  return *state.stage.links;
}

// Adds the time of `run` to that which the stage spends on one thing.
std::function<void()> timed(StepState& state, double PipelineSeconds::*kind,
                            std::function<void()> run) {
  return [&state, kind, run = std::move(run)] {
    const double begin = steady_seconds();
    run();
    state.stage.seconds.*kind += steady_seconds() - begin;
  };
}

}  // namespace

// Row by row, as both sides understand it, whatever layouts their kernels take. What a linear layer
// leaves has two dimensions here.
Tensor* Lowering::boundary_tensor(int boundary) {
  int source = boundary;
  while (!graph_.node(source).inputs.empty() && !graph_.node(source).parameters.size() &&
         graph_.node(source).op != OpKind::max_pool &&
         graph_.node(source).op != OpKind::global_average_pool) {
    source = graph_.node(source).inputs[0];
  }
  if (!graph_.is(source, OpKind::linear)) {
    // Tokens as they lie: their features innermost.
    const bool tokens = graph_.node(boundary).shape.width == 1;
    return tensor({dims(boundary), type_,
                   tokens ? dnnl::memory::format_tag::nhwc : dnnl::memory::format_tag::nchw});
  }
  const Dims rows{options_.batch_size, graph_.node(boundary).shape.channels};
  return tensor({rows, type_, dnnl::memory::format_tag::nc});
}

Operation& Lowering::emit_transfer(Transfer transfer, const char* what, Tensor* data,
                                   std::function<void()> run) {
  const bool value = transfer == Transfer::receive_value || transfer == Transfer::send_value;
  double PipelineSeconds::*kind =
      is_receive(transfer) ? &PipelineSeconds::waiting : &PipelineSeconds::sending;
  return emit(std::string(what) + " " + to_string(transfer),
              value ? Phase::forward : Phase::backward, "transfer", {data},
              timed(state_, kind, std::move(run)));
}

void Lowering::start(Transfer transfer, int micro_batch, Tensor* data) {
  boundary_[micro_batch][static_cast<size_t>(transfer)] = data;
  emit_transfer(transfer, "start", data, [=, bytes = data->bytes(), &state = state_] {
    links_of(state).start(transfer, micro_batch, data->data(), bytes, nullptr);
  });
}

void Lowering::finish(Transfer transfer, int micro_batch, Tensor* data) {
  emit_transfer(transfer, "finish", data,
                [=, &state = state_] { links_of(state).finish(transfer, micro_batch, nullptr); });
}

// Does nothing for a task that reads what the stage itself leaves.
void Lowering::start_receive(const StageTask& task) {
  if (task.pass == Pass::forward && graph_.receives()) {
    start(Transfer::receive_value, task.micro_batch, boundary_tensor(0));
  } else if (task.pass == Pass::backward && graph_.sends()) {
    const int last = static_cast<int>(graph_.nodes().size()) - 1;
    start(Transfer::receive_gradient, task.micro_batch, boundary_tensor(last));
  }
}

bool Lowering::receives_ahead(size_t index) const {
  const PipelinePlace& place = options_.pipeline;
  return may_receive_ahead(place.schedule, place.stages, static_cast<int>(options_.micro_batches),
                           place.stage, index);
}

// Where nothing forbids it, receives are started a task ahead, so that what comes travels while the
// stage computes.
void Lowering::begin_stage_task(const std::vector<StageTask>& tasks, size_t index) {
  const StageTask& task = tasks[index];
  const int m = task.micro_batch;
  const bool forward = task.pass == Pass::forward;
  if (index == 0) {
    emit("begin of the pipeline", Phase::forward, "mark", {}, [&state = state_] {
      state.stage.seconds = {};
      state.stage.begin_seconds = steady_seconds();
    });
  }
  if (index == 0 || !receives_ahead(index - 1)) start_receive(task);
  const auto& at = boundary_[m];
  const Transfer input = forward ? Transfer::receive_value : Transfer::receive_gradient;
  if (Tensor* received = at[static_cast<size_t>(input)]) finish(input, m, received);
  if (!forward && graph_.sends()) {
    finish(Transfer::send_value, m, at[static_cast<size_t>(Transfer::send_value)]);
  }
  if (index + 1 < tasks.size() && receives_ahead(index)) start_receive(tasks[index + 1]);
  emit("begin", Phase::forward, "mark", {}, [index, task, &state = state_] {
    const double now = steady_seconds();
    state.stage.marks[index] = {task, now, now};
  });
}

void Lowering::end_stage_task(const std::vector<StageTask>& tasks, size_t index) {
  const StageTask& task = tasks[index];
  const bool forward = task.pass == Pass::forward;
  double PipelineSeconds::*kind = forward ? &PipelineSeconds::forward : &PipelineSeconds::backward;
  emit("end", Phase::forward, "mark", {}, [index, kind, &state = state_] {
    TaskMark& mark = state.stage.marks[index];
    mark.end_seconds = steady_seconds();
    state.stage.seconds.*kind += mark.end_seconds - mark.begin_seconds;
  });
  if (forward && graph_.sends()) {
    start(Transfer::send_value, task.micro_batch, tensors_.values.back());
  }
  if (!forward && graph_.receives()) {
    finish_sent_gradient();
    start(Transfer::send_gradient, task.micro_batch, tensors_.gradients.front().front());
    sent_gradient_ = task.micro_batch;
  }
  if (index + 1 == tasks.size()) finish_sent_gradient();
}

void Lowering::finish_sent_gradient() {
  if (sent_gradient_ < 0) return;
  finish(Transfer::send_gradient, sent_gradient_,
         boundary_[sent_gradient_][static_cast<size_t>(Transfer::send_gradient)]);
  sent_gradient_ = -1;
}

void Lowering::forward_boundary(int i) {
  const auto received = static_cast<size_t>(Transfer::receive_value);
  if (i == 0) {
    tensors_.values[i] = boundary_[micro_batch_][received];
    return;
  }
  tensors_.values[i] = reordered(graph_.node(i).name, Phase::forward,
                                 value(graph_.node(i).inputs[0]), boundary_tensor(i)->desc());
}

void Lowering::backward_boundary(int i) {
  if (i == 0) {
    gradient_of(i);  // their sum is what is sent
    return;
  }
  add_gradient(graph_.node(i).inputs[0],
               boundary_[micro_batch_][static_cast<size_t>(Transfer::receive_gradient)]);
}

}  // namespace nearmetal::cpu
