#include "models/pipeline_schedule.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace nearmetal {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

// The times at which each pass of each micro-batch can read its input; infinite: not known yet.
class Inputs {
 public:
  Inputs(std::span<const StageTimes> stages, int micro_batches)
      : stages_(stages),
        there_(stages.size(), {std::vector<double>(micro_batches, never),
                               std::vector<double>(micro_batches, never)}),
        last_arrival_(stages.size()) {
    if (!stages.empty()) std::ranges::fill(there_[0][index(Pass::forward)], 0.0);
  }

  double of(size_t stage, const StageTask& task) const {
    return there_[stage][index(task.pass)][task.micro_batch];
  }
  // Sends the result of a task, which ends at this time, to the stage that reads it.
  void leave(size_t stage, const StageTask& task, double end) {
    const bool forward = task.pass == Pass::forward;
    const auto bring = [&](size_t reader, Pass pass, double time) {
      there_[reader][index(pass)][task.micro_batch] = time;
    };
    if (forward && stage + 1 == stages_.size()) return bring(stage, Pass::backward, end);
    if (!forward && stage == 0) return;
    const size_t boundary = forward ? stage : stage - 1;
    double& last = last_arrival_[boundary][index(task.pass)];
    last = std::max(end, last) + stages_[boundary].transfer_seconds;
    bring(forward ? stage + 1 : stage - 1, task.pass, last);
  }

 private:
  static size_t index(Pass pass) { return static_cast<size_t>(pass); }

  std::span<const StageTimes> stages_;
  std::vector<std::array<std::vector<double>, 2>> there_;  // by stage, pass, micro-batch
  std::vector<std::array<double, 2>> last_arrival_;        // by boundary and pass
};

double seconds_of(const StageTimes& stage, const StageTask& task, size_t index) {
  if (!stage.task_seconds.empty()) return stage.task_seconds.at(index);
  return task.pass == Pass::forward ? stage.forward_seconds : stage.backward_seconds;
}

const TaskMark& mark_of(const std::vector<TaskMark>& marks, const StageTask& task) {
  const auto found = std::ranges::find(marks, task, &TaskMark::task);
  if (found == marks.end()) throw std::invalid_argument("a stage lacks the mark of a micro-batch");
  return *found;
}

// The least time that a value of any micro-batch takes from one stage to the other.
double least_delay(const std::vector<TaskMark>& from, const std::vector<TaskMark>& to, Pass pass) {
  double least = never;
  for (const TaskMark& mark : from) {
    if (mark.task.pass != pass) continue;
    least = std::min(least, mark_of(to, mark.task).begin_seconds - mark.end_seconds);
  }
  return least;
}

void move_by(double seconds, std::vector<TaskMark>& marks) {
  for (TaskMark& mark : marks) {
    mark.begin_seconds += seconds;
    mark.end_seconds += seconds;
  }
}

}  // namespace

std::vector<StageTask> stage_tasks(Schedule schedule, int stages, int micro_batches, int stage) {
  if (stage < 0 || stage >= stages) throw std::invalid_argument("there is no such stage");
  if (micro_batches < 1) {
    throw std::invalid_argument("the number of micro-batches must be at least 1");
  }
  const bool all_first = schedule == Schedule::gpipe && stages > 1;
  const int ahead = all_first ? micro_batches : std::min(stages - 1 - stage, micro_batches);
  std::vector<StageTask> tasks;
  for (int i = 0; i < micro_batches + ahead; ++i) {
    if (i < micro_batches) tasks.push_back({Pass::forward, i});
    if (i >= ahead) tasks.push_back({Pass::backward, i - ahead});
  }
  return tasks;
}

int64_t most_in_flight(Schedule schedule, int stages, int micro_batches, int stage) {
  int64_t in_flight = 0, most = 0;
  for (const StageTask& task : stage_tasks(schedule, stages, micro_batches, stage)) {
    in_flight += task.pass == Pass::forward ? 1 : -1;
    most = std::max(most, in_flight);
  }
  return most;
}

bool may_receive_ahead(Schedule schedule, int stages, int micro_batches, int stage, size_t index) {
  const auto tasks = stage_tasks(schedule, stages, micro_batches, stage);
  const StageTask& next = tasks.at(index + 1);
  const bool forward = next.pass == Pass::forward;
  const int neighbour = forward ? stage - 1 : stage + 1;
  if (neighbour < 0 || neighbour >= stages) return false;  // it receives nothing
  const auto others = stage_tasks(schedule, stages, micro_batches, neighbour);
  const auto sender = std::ranges::find(others, next);
  // Values go to the stage behind and gradients back: those of the other kind that the neighbour
  // has taken by then.
  const Pass from_here = forward ? Pass::backward : Pass::forward;
  const auto needed = std::count_if(others.begin(), sender,
                                    [&](const StageTask& task) { return task.pass == from_here; });
  const auto left = std::count_if(tasks.begin(), tasks.begin() + static_cast<ptrdiff_t>(index),
                                  [&](const StageTask& task) { return task.pass == from_here; });
  return needed <= left;
}

std::vector<std::vector<TaskMark>> simulate_pipeline(Schedule schedule,
                                                     std::span<const StageTimes> stages,
                                                     int micro_batches) {
  const auto count = static_cast<int>(stages.size());
  std::vector<std::vector<StageTask>> tasks;
  for (int s = 0; s < count; ++s) {
    tasks.push_back(stage_tasks(schedule, count, micro_batches, s));
  }
  Inputs inputs(stages, micro_batches);
  std::vector<std::vector<TaskMark>> marks(stages.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t s = 0; s < stages.size(); ++s) {
      while (marks[s].size() < tasks[s].size()) {
        const StageTask& task = tasks[s][marks[s].size()];
        const double input = inputs.of(s, task);
        if (input == never) break;
        const double begin =
            marks[s].empty() ? input : std::max(input, marks[s].back().end_seconds);
        const double seconds = seconds_of(stages[s], task, marks[s].size());
        marks[s].push_back({task, begin, begin + seconds});
        inputs.leave(s, task, begin + seconds);
        moved = true;
      }
    }
  }
  return marks;
}

double bubble_of(std::span<const std::vector<TaskMark>> stages) {
  double begin = never, end = -never, busy = 0;
  for (const std::vector<TaskMark>& marks : stages) {
    for (const TaskMark& mark : marks) {
      begin = std::min(begin, mark.begin_seconds);
      end = std::max(end, mark.end_seconds);
      busy += mark.end_seconds - mark.begin_seconds;
    }
  }
  return end > begin ? 1 - busy / (static_cast<double>(stages.size()) * (end - begin)) : 0;
}

double ideal_bubble(int stages, int micro_batches) {
  return static_cast<double>(stages - 1) / static_cast<double>(micro_batches + stages - 1);
}

void align_clocks(std::vector<std::vector<TaskMark>>& stages) {
  if (stages.empty() || stages[0].empty()) return;
  move_by(-stages[0][0].begin_seconds, stages[0]);
  for (size_t s = 1; s < stages.size(); ++s) {
    const double there = least_delay(stages[s - 1], stages[s], Pass::forward);
    const double back = least_delay(stages[s], stages[s - 1], Pass::backward);
    move_by((back - there) / 2, stages[s]);
  }
}

}  // namespace nearmetal
