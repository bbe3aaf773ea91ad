// The order of a step's tasks, and what a program does as a stage of a pipeline.
#include <algorithm>
#include <utility>

#include "models/cpu/cpu_program.h"

namespace nearmetal::cpu {

void CpuProgram::put_tasks_in_order() {
  const std::vector<Operation> lowered = std::exchange(step_.operations, {});
  const PipelinePlace& place = options_.pipeline;
  const auto count = static_cast<int>(options_.micro_batches);
  const int own_operations = std::max(1, static_cast<int>(step_.micro_batches()));
  for (const StageTask& task : stage_tasks(place.schedule, place.stages, count, place.stage)) {
    const StageTask alike{task.pass, task.micro_batch % own_operations};
    const auto found = std::ranges::find(step_.tasks, alike, &LoweredTask::task);
    if (found == step_.tasks.end()) continue;  // without a backward pass
    if (found->images != nullptr && host_images_ != nullptr) {
      step_.operations.push_back(copy_of_images(*found, task.micro_batch));
    } else if (graph_.reads_tokens() && task.pass == Pass::forward && count > 1) {
      step_.operations.push_back(begin_of_micro_batch(*found, task.micro_batch));
    }
    step_.operations.insert(step_.operations.end(),
                            lowered.begin() + static_cast<ptrdiff_t>(found->begin),
                            lowered.begin() + static_cast<ptrdiff_t>(found->end));
    if (task.pass == Pass::backward && task.micro_batch + 1 < count) {
      step_.operations.push_back(sum_of_gradients(task.micro_batch));
    }
  }
}

// Sets which micro-batch is computed by operations that several of them share.
Operation CpuProgram::begin_of_micro_batch(const LoweredTask& task, int micro_batch) {
  return {.name = "begin of a micro-batch",
          .phase = Phase::input,
          .implementation = "own",
          .run = [this, first = (micro_batch - task.task.micro_batch) * options_.batch_size] {
            state_.first_image = first;
          }};
}

Operation CpuProgram::copy_of_images(const LoweredTask& task, int micro_batch) {
  const int64_t bytes = task.images->bytes();
  const Operation begin = begin_of_micro_batch(task, micro_batch);
  return {.name = "images",
          .phase = Phase::input,
          .implementation = "own copy",
          .bytes = 2.0 * static_cast<double>(bytes),
          .operands = {task.images},
          .run = [=, this, images = task.images] {
            begin.run();
            parallel_copy(images->data(), host_images_of(micro_batch), bytes);
          }};
}

Operation CpuProgram::sum_of_gradients(int micro_batch) {
  const bool first = micro_batch == 0;
  const int64_t elements = step_.bytes(Region::gradients) / 4;
  return {.name = "sum of micro-batches",
          .phase = Phase::backward,
          .implementation = first ? "own copy" : "own loop",
          .bytes = (first ? 2.0 : 3.0) * 4 * static_cast<double>(elements),
          .run = [first, elements, sum = static_cast<float*>(sum_before_.get()),
                  gradient = region(Region::gradients)] {
            if (first) return parallel_copy(sum, gradient, 4 * elements);
            add(Precision::fp32, sum, gradient, false, sum, elements);
          }};
}

// Sums over all stages, so that they agree on the norm and on whether there is an update. Until the
// last of them is through there is nothing to compute.
void CpuProgram::sum_over_stages(double& squares, double& loss) {
  StageState& stage = state_.stage;
  stage.sums = {squares, loss};
  const double begin = steady_seconds();
  stage.links->sum(stage.sums.data(), static_cast<int>(stage.sums.size()), nullptr);
  const double end = steady_seconds();
  squares = stage.sums[0];
  loss = stage.sums[1];
  stage.seconds.waiting += end - begin;
  stage.seconds.span = end - stage.begin_seconds - state_.exposed_communication_seconds;
  record_.pipeline = stage.seconds;
}

void CpuProgram::connect_stages(StageLinks& links) {
  if (!options_.pipeline.is_pipelined()) Program::connect_stages(links);
  links.bind(static_cast<int>(options_.micro_batches));
  state_.stage.links = &links;
}

}  // namespace nearmetal::cpu
