// The order in which the stages of a pipeline compute their micro-batches, the time of each, and
// how they hand values on and gradients back.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
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

/// The stage of a pipeline that a program is, and the order in which the stages compute.
struct PipelinePlace {
  int stages = 1;
  int stage = 0;
  Schedule schedule = Schedule::one_forward_one_backward;

  bool is_pipelined() const { return stages > 1; }
};

/// A transfer between a stage and its neighbour: values come from the stage before and go to the
/// one behind, gradients the other way.
enum class Transfer { receive_value, send_value, receive_gradient, send_gradient };
inline constexpr int transfer_count = 4;
constexpr auto names_of(Transfer) {
  return std::array{"receive value", "send value", "receive gradient", "send gradient"};
}

constexpr bool is_receive(Transfer transfer) {
  return transfer == Transfer::receive_value || transfer == Transfer::receive_gradient;
}
constexpr bool is_to_next(Transfer transfer) {
  return transfer == Transfer::send_value || transfer == Transfer::receive_gradient;
}

/// The result of a test that sent known values through the boundaries of a stage, with nothing else
/// going on.
struct BoundaryTest {
  int64_t bytes = 0;   // of one micro-batch, each way, with the stage behind; 0: there is none
  double seconds = 0;  // until they were there, of a value: the median
  bool exact = true;   // every byte that came is the one that was sent

  bool operator==(const BoundaryTest&) const = default;
};

/// Joins the stages of one replica of a network. `stream` is the cudaStream_t that the step is
/// recorded on, null on the CPU. Transfers of one kind take place in the order in which they are
/// started, and neither start() nor finish() of one waits for a transfer of another kind, so that
/// no order of tasks that a schedule gives can lock stages up. Errors throw std::runtime_error.
class StageLinks {
 public:
  virtual ~StageLinks() = default;
  /// The library that moves the data, and its version.
  virtual std::string library() const = 0;
  /// Makes room for the transfers of so many micro-batches at once; before the first start().
  virtual void bind(int micro_batches) = 0;
  /// Sends what the stream has computed so far, or makes `data` ready to receive. The memory is the
  /// transfer's until finish().
  virtual void start(Transfer transfer, int micro_batch, void* data, int64_t bytes,
                     void* stream) = 0;
  /// Lets later work on the stream use the memory: it was sent, or holds what came.
  virtual void finish(Transfer transfer, int micro_batch, void* stream) = 0;
  /// Each of `values`, on the program's device, becomes its sum over the stages.
  virtual void sum(double* values, int count, void* stream) = 0;
  /// Hands known values of `bytes_from_previous` and `bytes_to_next` through both boundaries, both
  /// ways, `repeats` times; every stage calls it between steps.
  virtual BoundaryTest test(int64_t bytes_from_previous, int64_t bytes_to_next, int repeats) = 0;
};

}  // namespace nearmetal
