#include "models/step_order.h"

#include <deque>
#include <stdexcept>

namespace nearmetal {
namespace {

// Gradients that may be on their way while the next one is computed.
constexpr size_t gradients_underway = 2;

using Kind = StepEventKind;

class StepOrder {
 public:
  explicit StepOrder(const StepFacts& facts)
      : place_(facts.pipeline),
        micro_batches_(facts.micro_batches),
        forward_only_(facts.forward_only),
        tasks_(stage_tasks(place_.schedule, place_.stages, static_cast<int>(micro_batches_),
                           place_.stage)) {
    if (place_.is_pipelined() && forward_only_) {
      throw std::invalid_argument("a stage of a pipeline has a backward pass");
    }
    add(Kind::input);
    if (place_.is_pipelined()) add(Kind::begin_pipeline);
    for (size_t i = 0; i < tasks_.size(); ++i) add_task(i);
    if (facts.trainable) finish();
  }

  std::vector<StepEvent> take() { return std::move(events_); }

 private:
  void add(Kind kind, int64_t micro_batch = 0) {
    events_.push_back({.kind = kind, .micro_batch = micro_batch});
  }
  void add(Kind kind, Transfer transfer, int64_t micro_batch) {
    events_.push_back({.kind = kind, .micro_batch = micro_batch, .transfer = transfer});
  }
  void mark(Kind kind, size_t task) {
    if (place_.is_pipelined()) events_.push_back({.kind = kind, .task = task});
  }

  bool has_previous() const { return place_.stage > 0; }
  bool has_next() const { return place_.stage + 1 < place_.stages; }
  bool receives_ahead(size_t index) const {
    return may_receive_ahead(place_.schedule, place_.stages, static_cast<int>(micro_batches_),
                             place_.stage, index);
  }

  void add_task(size_t index) {
    const auto [pass, micro_batch] = tasks_[index];
    if (pass == Pass::backward && forward_only_) return;
    receive(index);
    mark(Kind::begin_task, index);
    if (pass == Pass::forward) {
      add(Kind::forward, micro_batch);
      if (has_next()) add(Kind::start_transfer, Transfer::send_value, micro_batch);
    } else {
      add_backward(micro_batch);
    }
    mark(Kind::end_task, index);
    finish_sent_gradients(index + 1 == tasks_.size() ? 0 : gradients_underway);
  }

  void add_backward(int64_t micro_batch) {
    add(Kind::backward, micro_batch);
    if (has_previous()) {
      add(Kind::start_transfer, Transfer::send_gradient, micro_batch);
      sent_gradients_.push_back(micro_batch);
    }
    add(Kind::end_backward, micro_batch);
    if (micro_batches_ == 1) return;
    const MicroBatch part = micro_batch == 0                    ? MicroBatch::first
                            : micro_batch == micro_batches_ - 1 ? MicroBatch::last
                                                                : MicroBatch::middle;
    events_.push_back({.kind = Kind::add_gradients, .micro_batch = micro_batch, .part = part});
  }

  // What the task reads, and the start of the transfer of what the next one reads.
  void receive(size_t index) {
    const auto [pass, micro_batch] = tasks_[index];
    if (index == 0 || !receives_ahead(index - 1)) start_receive(index);
    if (pass == Pass::forward && has_previous()) {
      add(Kind::finish_transfer, Transfer::receive_value, micro_batch);
    }
    if (pass == Pass::backward && has_next()) {
      add(Kind::finish_transfer, Transfer::receive_gradient, micro_batch);
      // It has arrived, as its gradient has come back.
      add(Kind::finish_transfer, Transfer::send_value, micro_batch);
    }
    if (index + 1 < tasks_.size() && receives_ahead(index)) start_receive(index + 1);
  }

  // Nothing for a task that reads what the stage itself leaves.
  void start_receive(size_t index) {
    const auto [pass, micro_batch] = tasks_[index];
    if (pass == Pass::forward && has_previous()) {
      add(Kind::start_transfer, Transfer::receive_value, micro_batch);
    }
    if (pass == Pass::backward && has_next()) {
      add(Kind::start_transfer, Transfer::receive_gradient, micro_batch);
    }
  }

  void finish_sent_gradients(size_t left) {
    for (; sent_gradients_.size() > left; sent_gradients_.pop_front()) {
      add(Kind::finish_transfer, Transfer::send_gradient, sent_gradients_.front());
    }
  }

  void finish() {
    add(Kind::finish_step);
    if (place_.is_pipelined()) {
      add(Kind::sum_over_stages);
      add(Kind::end_pipeline);
    }
    if (!forward_only_) add(Kind::update);
  }

  PipelinePlace place_;
  int64_t micro_batches_;
  bool forward_only_;
  std::vector<StageTask> tasks_;
  std::vector<StepEvent> events_;
  std::deque<int64_t> sent_gradients_;  // micro-batches whose gradients may still be on their way
};

}  // namespace

std::vector<StepEvent> step_order(const StepFacts& facts) { return StepOrder(facts).take(); }

std::vector<ExchangeEvent> exchange_order(std::span<const GradientSection> sections, bool is_mean,
                                          size_t update) {
  struct Bucket {
    size_t section, before;
  };
  std::vector<Bucket> buckets;
  for (size_t s = 0; s < sections.size(); ++s) {
    for (const BucketRange& range : sections[s].buckets) {
      buckets.push_back({s, range.complete_after + 1});
    }
  }
  std::vector<ExchangeEvent> events;
  size_t first = 0;  // of those that are not started
  for (size_t last = 0; last < buckets.size(); ++last) {
    const auto [section, before] = buckets[last];
    if (last + 1 < buckets.size() && buckets[last + 1].section != section) continue;
    for (size_t i = first; i <= last; ++i) {
      const size_t own = buckets[i].section;
      if (is_mean) events.push_back({ExchangeEventKind::mean, before, i, 1, own});
      if (!sections[own].is_converted) continue;
      events.push_back({ExchangeEventKind::convert, before, i, 1, own});
    }
    events.push_back(
        {ExchangeEventKind::start, before, first, last + 1 - first, buckets[first].section});
    first = last + 1;
  }
  events.push_back({.kind = ExchangeEventKind::finish, .before = update});
  for (size_t s = 0; s < sections.size(); ++s) {
    if (!sections[s].is_converted) continue;
    events.push_back({.kind = ExchangeEventKind::convert_back, .before = update, .section = s});
  }
  return events;
}

}  // namespace nearmetal
