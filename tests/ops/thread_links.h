// A pipeline within a process: each stage on a thread of its own, its memory that of a host.
#pragma once

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "models/pipeline_schedule.h"

namespace nearmetal {

/// The state that the threads share.
struct ThreadPipeline {
  explicit ThreadPipeline(int stage_count) : stages(stage_count), sums(stage_count) {}

  int stages;
  std::mutex mutex;
  std::condition_variable changed;
  // By the stage that sends and the transfer by which it does, in order.
  std::map<std::pair<int, Transfer>, std::deque<std::string>> on_their_way;
  std::vector<std::vector<double>> sums;  // of each stage
  int arrived = 0, sum_round = 0;
};

/// Sends copies, so that none waits for its receiver.
class ThreadLinks : public StageLinks {
 public:
  ThreadLinks(ThreadPipeline& shared, int stage) : shared_(shared), stage_(stage) {}

  std::string library() const override { return "threads"; }
  void bind(int micro_batches) override { received_.resize(micro_batches * transfer_count); }
  void start(Transfer transfer, int micro_batch, void* data, int64_t bytes, void*) override {
    if (is_receive(transfer)) {
      received_[place(transfer, micro_batch)] = {data, bytes};
      return;
    }
    const std::lock_guard lock(shared_.mutex);
    shared_.on_their_way[{stage_, transfer}].emplace_back(static_cast<const char*>(data), bytes);
    shared_.changed.notify_all();
  }
  void finish(Transfer transfer, int micro_batch, void*) override {
    if (!is_receive(transfer)) return;
    const bool value = transfer == Transfer::receive_value;
    std::unique_lock lock(shared_.mutex);
    auto& coming = shared_.on_their_way[{value ? stage_ - 1 : stage_ + 1,
                                         value ? Transfer::send_value : Transfer::send_gradient}];
    shared_.changed.wait(lock, [&] { return !coming.empty(); });
    const auto [data, bytes] = received_[place(transfer, micro_batch)];
    if (static_cast<int64_t>(coming.front().size()) != bytes) {
      throw std::runtime_error("the neighbour sends another size");
    }
    std::memcpy(data, coming.front().data(), bytes);
    coming.pop_front();
  }
  void sum(double* values, int count, void*) override {
    std::unique_lock lock(shared_.mutex);
    shared_.sums[stage_].assign(values, values + count);
    const int round = shared_.sum_round;
    if (++shared_.arrived == shared_.stages) {
      shared_.arrived = 0;
      ++shared_.sum_round;
      shared_.changed.notify_all();
    } else {
      shared_.changed.wait(lock, [&] { return shared_.sum_round != round; });
    }
    for (int i = 0; i < count; ++i) {
      values[i] = 0;
      for (const auto& of_stage : shared_.sums) values[i] += of_stage[i];
    }
    // None may bring its next values before all have read these.
    if (++shared_.arrived == shared_.stages) {
      shared_.arrived = 0;
      ++shared_.sum_round;
      shared_.changed.notify_all();
    } else {
      shared_.changed.wait(lock, [&] { return shared_.sum_round == round + 2; });
    }
  }
  BoundaryTest test(int64_t, int64_t, int) override { return {}; }

 private:
  static size_t place(Transfer transfer, int micro_batch) {
    return static_cast<size_t>(micro_batch) * transfer_count + static_cast<size_t>(transfer);
  }

  ThreadPipeline& shared_;
  int stage_;
  std::vector<std::pair<void*, int64_t>> received_;
};

}  // namespace nearmetal
