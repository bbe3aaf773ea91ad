#include "models/step_order.h"

#include <algorithm>
#include <stdexcept>

namespace nearmetal {
namespace {

// Gradients that may be on their way while the next one is computed.
constexpr int64_t gradients_underway = 2;

using Kind = StepEventKind;

class StepOrder {
 public:
  explicit StepOrder(const StepFacts& facts)
      : facts_(facts),
        place_(facts.pipeline),
        count_(static_cast<int>(facts.micro_batches)),
        tasks_(stage_tasks(place_.schedule, place_.stages, count_, place_.stage)) {}

  std::vector<StepEvent> run() {
    add(Kind::input);
    if (place_.is_pipelined()) add(Kind::begin_pipeline);
    for (size_t i = 0; i < tasks_.size(); ++i) add_task(i);
    if (!facts_.trainable) return std::move(events_);
    add(Kind::finish_step);
    if (place_.is_pipelined()) {
      add(Kind::sum_over_stages);
      add(Kind::end_pipeline);
    }
    if (!facts_.forward_only) add(Kind::update);
    return std::move(events_);
  }

 private:
  void add(Kind kind, int64_t micro_batch = 0) {
    events_.push_back({.kind = kind, .micro_batch = micro_batch});
  }
  void mark(Kind kind, size_t task) {
    if (place_.is_pipelined()) events_.push_back({.kind = kind, .task = task});
  }
  // Nothing where there is no such neighbour.
  void transfer(Kind kind, Transfer transfer, int64_t micro_batch) {
    if (is_to_next(transfer) ? place_.stage + 1 == place_.stages : place_.stage == 0) return;
    events_.push_back({.kind = kind, .micro_batch = micro_batch, .transfer = transfer});
  }

  void add_task(size_t index) {
    const auto [pass, micro_batch] = tasks_[index];
    if (pass == Pass::backward && facts_.forward_only) return;
    receive(index);
    mark(Kind::begin_task, index);
    if (pass == Pass::forward) {
      add(Kind::forward, micro_batch);
      transfer(Kind::start_transfer, Transfer::send_value, micro_batch);
    } else {
      add(Kind::backward, micro_batch);
      transfer(Kind::start_transfer, Transfer::send_gradient, micro_batch);
      add(Kind::end_backward, micro_batch);
      if (count_ > 1) add_gradients(micro_batch);
    }
    mark(Kind::end_task, index);
    if (pass == Pass::backward) finish_sent_gradients(micro_batch);
  }

  // Finishes what the task reads, and starts what the next one does where it may.
  void receive(size_t index) {
    const auto [pass, micro_batch] = tasks_[index];
    if (index == 0 || !receives_ahead(index - 1)) {
      transfer(Kind::start_transfer, input_of(pass), micro_batch);
    }
    transfer(Kind::finish_transfer, input_of(pass), micro_batch);
    // The value has arrived, as its gradient has come back.
    if (pass == Pass::backward) transfer(Kind::finish_transfer, Transfer::send_value, micro_batch);
    if (index + 1 < tasks_.size() && receives_ahead(index)) {
      const StageTask& next = tasks_[index + 1];
      transfer(Kind::start_transfer, input_of(next.pass), next.micro_batch);
    }
  }

  static Transfer input_of(Pass pass) {
    return pass == Pass::forward ? Transfer::receive_value : Transfer::receive_gradient;
  }
  bool receives_ahead(size_t index) const {
    return may_receive_ahead(place_.schedule, place_.stages, count_, place_.stage, index);
  }

  void add_gradients(int64_t micro_batch) {
    const MicroBatch part = micro_batch == 0            ? MicroBatch::first
                            : micro_batch + 1 == count_ ? MicroBatch::last
                                                        : MicroBatch::middle;
    events_.push_back({.kind = Kind::add_gradients, .micro_batch = micro_batch, .part = part});
  }

  // Behind the backward pass of this micro-batch.
  void finish_sent_gradients(int64_t micro_batch) {
    const int64_t done = micro_batch - gradients_underway;
    const int64_t last = micro_batch + 1 == count_ ? micro_batch : done;
    for (int64_t i = std::max(done, int64_t{0}); i <= last; ++i) {
      transfer(Kind::finish_transfer, Transfer::send_gradient, i);
    }
  }

  const StepFacts& facts_;
  const PipelinePlace& place_;
  int count_;  // of micro-batches
  std::vector<StageTask> tasks_;
  std::vector<StepEvent> events_;
};

}  // namespace

std::vector<StepEvent> step_order(const StepFacts& facts) {
  if (facts.pipeline.is_pipelined() && facts.forward_only) {
    throw std::invalid_argument("a stage of a pipeline has a backward pass");
  }
  return StepOrder(facts).run();
}

std::vector<ExchangeEvent> exchange_order(std::span<const GradientSection> sections, bool is_mean,
                                          size_t update) {
  std::vector<ExchangeEvent> events;
  size_t bucket = 0, first = 0;  // first: that is not started
  for (size_t s = 0; s < sections.size(); ++s) {
    const std::vector<BucketRange>& buckets = sections[s].buckets;
    for (size_t i = 0; i < buckets.size(); ++i, ++bucket) {
      const bool waits = i + 1 == buckets.size() && s + 1 < sections.size();
      const BucketRange& last = waits ? sections[s + 1].buckets.front() : buckets[i];
      const auto add = [&](ExchangeEventKind kind, size_t from) {
        events.push_back({kind, last.complete_after + 1, from, bucket + 1 - from, s});
      };
      if (is_mean) add(ExchangeEventKind::mean, bucket);
      if (sections[s].is_converted) add(ExchangeEventKind::convert, bucket);
      if (waits) continue;
      add(ExchangeEventKind::start, first);
      first = bucket + 1;
    }
  }
  events.push_back({.kind = ExchangeEventKind::finish, .before = update});
  for (size_t s = 0; s < sections.size(); ++s) {
    if (!sections[s].is_converted) continue;
    events.push_back({.kind = ExchangeEventKind::convert_back, .before = update, .section = s});
  }
  return events;
}

}  // namespace nearmetal
