// A CudaProgram as a stage of a pipeline.
#include "models/cuda/cuda_program.h"

namespace nearmetal::cuda {
namespace {

double seconds_from(uint64_t begin_nanoseconds, uint64_t end_nanoseconds) {
  return 1e-9 * static_cast<double>(end_nanoseconds - begin_nanoseconds);
}

}  // namespace

// Kernels that wait for a neighbour are launched here for the first time, by all stages.
void CudaProgram::connect_stages(StageLinks& links) {
  if (!options_.pipeline.is_pipelined()) Program::connect_stages(links);
  links.bind(static_cast<int>(options_.micro_batches));
  resources_.links = &links;
  settle_step();
}

int64_t CudaProgram::boundary_bytes() const { return bytes_of_boundaries(graph_, options_).sent; }

std::vector<TaskMark> CudaProgram::task_marks() {
  if (finished_ == 0) return {};
  const PipelinePlace& place = options_.pipeline;
  const std::vector<StageTask> tasks = stage_tasks(
      place.schedule, place.stages, static_cast<int>(options_.micro_batches), place.stage);
  const auto marks = persistent_->marks(finished_ - 1);
  std::vector<TaskMark> found;
  for (size_t i = 0; i < tasks.size(); ++i) {
    found.push_back(
        {tasks[i], seconds_from(marks[0], marks[2 * i]), seconds_from(marks[0], marks[2 * i + 1])});
  }
  return found;
}

// Between two tasks a stage waits for what it receives, where it receives anything; what holds a
// transfer up is not seen from here, as transfers have streams of their own.
PipelineSeconds CudaProgram::pipeline_seconds(int64_t step) const {
  const PipelinePlace& place = options_.pipeline;
  const auto marks = persistent_->marks(step);
  const size_t tasks = (marks.size() - 2) / 2;
  PipelineSeconds seconds;
  seconds.span = seconds_from(marks[2 * tasks], marks[2 * tasks + 1]);
  uint64_t before = marks[2 * tasks];
  for (size_t i = 0; i < tasks; ++i) {
    const bool forward = passes_[i] == Pass::forward;
    const uint64_t begin = marks[2 * i], end = marks[2 * i + 1];
    (forward ? seconds.forward : seconds.backward) += seconds_from(begin, end);
    const bool receives = forward ? place.stage > 0 : place.stage + 1 < place.stages;
    if (receives) seconds.waiting += seconds_from(before, begin);
    before = end;
  }
  seconds.waiting += seconds_from(before, marks[2 * tasks + 1]);
  return seconds;
}

}  // namespace nearmetal::cuda
