// How the stages of a pipeline hand values on and gradients back.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "models/pipeline_schedule.h"

namespace nearmetal {

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
