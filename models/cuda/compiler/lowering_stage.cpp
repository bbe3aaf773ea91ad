// The parts that make a graph a stage: values that come and go, the step's waits for them, and time
// marks. Transfers are kernels of their own: the links have streams beside that of the step.
#include <stdexcept>

#include "models/cuda/compiler/lowering_state.h"

namespace nearmetal::cuda {
namespace {

// Gradients that may be on their way while the next one is computed.
constexpr size_t gradients_underway = 2;

StageLinks& links_of(const StepResources& resources) {
  if (resources.links == nullptr) throw std::logic_error("the stage has no neighbours");
  return *resources.links;
}

}  // namespace

Kernel& Lowering::emit_transfer(Transfer transfer, const char* what, const Tensor* data,
                                Launch launch) {
  const bool value = transfer == Transfer::receive_value || transfer == Transfer::send_value;
  return emit(std::string(what) + " " + to_string(transfer),
              value ? Phase::forward : Phase::backward, "transfer", {data}, std::move(launch));
}

void Lowering::start(Transfer transfer, int64_t micro_batch, const Tensor* data) {
  boundary(transfer, micro_batch) = data;
  emit_transfer(transfer, "start", data, [=, &r = resources_](cudaStream_t stream) {
    links_of(r).start(transfer, static_cast<int>(micro_batch), data->data, data->bytes, stream);
  });
}

void Lowering::finish(Transfer transfer, int64_t micro_batch) {
  emit_transfer(transfer, "finish", boundary(transfer, micro_batch),
                [=, &r = resources_](cudaStream_t stream) {
                  links_of(r).finish(transfer, static_cast<int>(micro_batch), stream);
                });
}

// Does nothing for a task that reads what the stage itself leaves.
void Lowering::start_receive(const StageTask& task) {
  const int last = static_cast<int>(graph_.nodes().size()) - 1;
  if (task.pass == Pass::forward && graph_.receives()) {
    start(Transfer::receive_value, task.micro_batch, tensor(value_bytes(0)));
  } else if (task.pass == Pass::backward && graph_.sends()) {
    start(Transfer::receive_gradient, task.micro_batch, tensor(value_bytes(last)));
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
  const auto [pass, micro_batch] = tasks[index];
  if (index == 0) {
    emit_mark("begin of the pipeline", marks_of_step(options_) - 2);
  }
  if (index == 0 || !receives_ahead(index - 1)) start_receive(tasks[index]);
  if (pass == Pass::forward && graph_.receives()) {
    finish(Transfer::receive_value, micro_batch);
    values_[0] = boundary(Transfer::receive_value, micro_batch);
  }
  if (pass == Pass::backward && graph_.sends()) {
    finish(Transfer::receive_gradient, micro_batch);
    finish(Transfer::send_value, micro_batch);  // has arrived, as its gradient has come back
  }
  if (index + 1 < tasks.size() && receives_ahead(index)) start_receive(tasks[index + 1]);
  emit_mark("begin", static_cast<int>(2 * index));
}

// Before the gradients of the parameters are summed, so that the neighbour need not wait for that.
void Lowering::start_send(const StageTask& task) {
  if (task.pass == Pass::forward && graph_.sends()) {
    start(Transfer::send_value, task.micro_batch, values_.back());
  }
  if (task.pass == Pass::backward && graph_.receives()) {
    start(Transfer::send_gradient, task.micro_batch, gradients_.front().front());
    sent_gradients_.push_back(task.micro_batch);
  }
}

void Lowering::end_stage_task(const std::vector<StageTask>& tasks, size_t index) {
  emit_mark("end", static_cast<int>(2 * index + 1));
  const bool last = index + 1 == tasks.size();
  finish_sent_gradients(last ? 0 : gradients_underway);
}

void Lowering::finish_sent_gradients(size_t left) {
  for (; sent_gradients_.size() > left; sent_gradients_.pop_front()) {
    finish(Transfer::send_gradient, sent_gradients_.front());
  }
}

void Lowering::emit_mark(const char* name, int mark) {
  emit(name, Phase::forward, "mark", {}, [=, &r = resources_](cudaStream_t stream) {
    launch_mark({r.state, r.mark_ring, r.ring_size, r.mark_count}, mark, stream);
  });
}

// So that all stages agree on the norm, the loss and whether there is an update.
void Lowering::emit_sum_over_stages() {
  emit("sum over stages", Phase::update, "transfer", {},
       [&r = resources_](cudaStream_t stream) { links_of(r).sum(r.stage_sums, 2, stream); });
  emit("end of the pipeline", Phase::update, "own", {},
       [=, images = options_.step_images(), dynamic = options_.loss_scale.dynamic,
        mark = marks_of_step(options_) - 1, &r = resources_](cudaStream_t stream) {
         launch_mark({r.state, r.mark_ring, r.ring_size, r.mark_count}, mark, stream);
         launch_finish_stages(
             {r.losses, images, r.parameters, r.ranks, r.finish_sums, r.finish_arrivals, r.state,
              r.ring, r.ring_size, dynamic, false, r.stage_sums},
             stream);
       });
}

void Lowering::backward_boundary(int i) {
  if (i > 0) {
    gradients_[graph_.node(i).inputs[0]].push_back(
        boundary(Transfer::receive_gradient, micro_batch_));
  } else {
    gradients_[i] = {gradient_of(i)};
  }
}

}  // namespace nearmetal::cuda
