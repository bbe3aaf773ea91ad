// The order in which the stages of a pipeline compute their micro-batches, and the time of each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace nearmetal {

/// gpipe: all forward passes, then all backward passes (arXiv 1811.06965). 1f1b: a backward pass as
/// soon as there is one, so that a stage holds no more micro-batches than there are stages from it
/// to the end (arXiv 2006.09503, with a flush). Both do the same arithmetic in the same order of
/// micro-batches.
enum class Schedule { one_forward_one_backward, gpipe };
constexpr auto names_of(Schedule) { return std::array{"1f1b", "gpipe"}; }

enum class Pass { forward, backward };
constexpr auto names_of(Pass) { return std::array{"forward", "backward"}; }

/// The unit of a stage's work: one pass of one micro-batch.
struct StageTask {
  Pass pass = Pass::forward;
  int64_t micro_batch = 0;

  bool operator==(const StageTask&) const = default;
};

/// The tasks of one step of a stage in its order: a forward and a backward pass for each of
/// `micro_batches`. One stage does each micro-batch to its end, by either schedule. Throws
/// std::invalid_argument for a stage that is not among the stages, and for no micro-batch.
std::vector<StageTask> stage_tasks(Schedule schedule, int stages, int micro_batches, int stage);

/// The most micro-batches that a stage holds at once, between their two passes. Micro-batch i may
/// take what i - most_in_flight() left.
int64_t most_in_flight(Schedule schedule, int stages, int micro_batches, int stage);

/// Whether a stage may start to receive what its task `index` + 1 reads before it does task
/// `index`: the neighbour that sends it needs nothing for it that this stage leaves then or later.
/// One that spins for such a value could keep this stage from what the value depends on.
bool may_receive_ahead(Schedule schedule, int stages, int micro_batches, int stage, size_t index);

/// Seconds of one micro-batch in a stage, and on its way to the stage behind, or back from there.
struct StageTimes {
  double forward_seconds = 0;
  double backward_seconds = 0;
  double transfer_seconds = 0;
  std::vector<double> task_seconds{};  // of each task in the stage's order; empty: as above
};

/// When a task was computed, by whatever clock.
struct TaskMark {
  StageTask task;
  double begin_seconds = 0;
  double end_seconds = 0;

  bool operator==(const TaskMark&) const = default;
};

/// Where the time of a step went in a stage of a pipeline, by the device's clock; 0 without one.
struct PipelineSeconds {
  double span = 0;      // from the first wait for a value until all stages are through, without
                        // exposed_communication_seconds; what is none of the following is launches
  double forward = 0;   // computing, all micro-batches
  double backward = 0;  // likewise
  double waiting = 0;   // for what another stage had not yet computed or sent
  double sending = 0;   // held up by what was still on its way to another stage

  double busy() const { return forward + backward; }
  double rest() const { return span - busy() - waiting - sending; }
  bool operator==(const PipelineSeconds&) const = default;
};

/// When each stage computes each task if stages take these times and every task starts as soon as
/// it can; by stage, from 0 on. Transfers delay no kernel but those that read what they bring; of
/// two between the same stages in the same direction the second waits for the first.
std::vector<std::vector<TaskMark>> simulate_pipeline(Schedule schedule,
                                                     std::span<const StageTimes> stages,
                                                     int micro_batches);

/// The share of the stages' time, from the first begin to the last end of any, in which they
/// compute nothing; 0 without marks. Clocks must agree.
double bubble_of(std::span<const std::vector<TaskMark>> stages);

/// The bubble of equal stages without transfers, by either schedule: (P - 1) / (M + P - 1).
double ideal_bubble(int stages, int micro_batches);

/// Moves the marks of each stage onto the clock of the first, and that to begin at 0. Of two clocks
/// the difference is taken which makes the fastest value between the two stages travel as long as
/// the fastest gradient back, as NTP does. Each stage must have the marks of the same
/// micro-batches.
void align_clocks(std::vector<std::vector<TaskMark>>& stages);

}  // namespace nearmetal
