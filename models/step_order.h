// The order of a training step, which all backends keep: passes, transfers between stages, sums of
// gradients and the update; and the order in which gradients are exchanged with the other ranks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "models/memory_plan.h"
#include "models/pipeline_schedule.h"
#include "models/training_options.h"

namespace nearmetal {

/// What takes place in a step. Marks are of the time.
enum class StepEventKind {
  input,            // labels and samples are drawn
  begin_pipeline,   // a mark
  start_transfer,   // the memory is the transfer's
  finish_transfer,  // ... until now
  begin_task,       // a mark: the task has what it reads
  forward,          // the pass
  backward,         // at least what the gradient of the values that were received depends on
  end_backward,     // the rest: gradients of parameters
  add_gradients,    // of the parameters, over the micro-batches
  end_task,         // a mark
  finish_step,      // loss and gradient norm; of a stage what they are the sum of
  sum_over_stages,  // of that
  end_pipeline,     // a mark; loss and gradient norm are there
  update,
};
constexpr auto names_of(StepEventKind) {
  return std::array{"input",
                    "begin of the pipeline",
                    "start",
                    "finish",
                    "begin",
                    "forward",
                    "backward",
                    "end of backward",
                    "add",
                    "end",
                    "finish step",
                    "sum over stages",
                    "end of the pipeline",
                    "update"};
}

struct StepEvent {
  StepEventKind kind{};
  int64_t micro_batch = 0;  // of passes, transfers and add_gradients
  Transfer transfer{};      // that is started or finished
  size_t task = 0;          // of its two marks: the index in stage_tasks()
  MicroBatch part{};        // of add_gradients

  bool operator==(const StepEvent&) const = default;
};

/// What the order of a step depends on.
struct StepFacts {
  PipelinePlace pipeline{};
  int64_t micro_batches = 1;
  bool trainable = true;      // as Graph::is_trainable(): there is a loss, here or in a later stage
  bool forward_only = false;  // no gradient and no update
};

/// All of a step in the order of the device's stream. Receives are started a task ahead where
/// may_receive_ahead() allows it, so that what comes travels while the stage computes. A gradient
/// is sent before those of the parameters are added up, so that the neighbour need not wait for
/// that; up to two are on their way while the next one is computed. Throws std::invalid_argument
/// for a stage that is forward_only, and as stage_tasks() does.
std::vector<StepEvent> step_order(const StepFacts& facts);

/// A section of the flat gradient: of one type, and sent in these buckets.
struct GradientSection {
  std::vector<BucketRange> buckets;
  bool is_converted = false;  // to another type before it is sent, and back
};

enum class ExchangeEventKind { mean, convert, start, finish, convert_back };
constexpr auto names_of(ExchangeEventKind) {
  return std::array{"mean", "convert", "start", "finish", "convert back"};
}

/// Takes place before kernel `before` of the step, and behind the events in front of it. Buckets
/// are counted through all sections.
struct ExchangeEvent {
  ExchangeEventKind kind{};
  size_t before = 0;
  size_t bucket = 0;   // of mean and convert; of start the first
  size_t count = 1;    // of buckets
  size_t section = 0;  // of mean, convert and convert_back

  bool operator==(const ExchangeEvent&) const = default;
};

/// A bucket becomes the mean over several micro-batches (`is_mean`), is converted and started
/// behind the kernel that completes it; the last one of a section waits to be started together with
/// the first of the next. All are finished, and then converted back, before kernel `update`, the
/// first of the update. Sections are complete one after another, and before the update.
std::vector<ExchangeEvent> exchange_order(std::span<const GradientSection> sections, bool is_mean,
                                          size_t update);

/// The kernels of a step with those of its exchange at their places. `make` gives the kernel of an
/// event.
template <class Kernel, class Make>
std::vector<Kernel> with_exchange(std::vector<Kernel> kernels,
                                  std::span<const ExchangeEvent> events, Make make) {
  std::vector<Kernel> all;
  auto next = events.begin();
  for (size_t k = 0; k < kernels.size(); ++k) {
    for (; next != events.end() && next->before == k; ++next) all.push_back(make(*next));
    all.push_back(std::move(kernels[k]));
  }
  for (; next != events.end(); ++next) all.push_back(make(*next));
  return all;
}

}  // namespace nearmetal
