// A backend that computes nothing and follows a script, for tests of what drives a Program.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "models/program.h"

namespace nearmetal {

/// The script that the fake follows; the test sets it and looks at the counts afterwards.
struct Script {
  Script() {
    device.name = "Fake One";
    device.libraries = {{"fakelib", "1.2"}};
  }

  // The record of each step since the start or the last restart().
  std::function<StepRecord(int64_t step)> step = [](int64_t) {
    return StepRecord{.seconds = 0.010, .loss = 6.9f, .gradient_norm = 1.0f};
  };
  int max_in_flight = 1;
  std::vector<KernelChoice> kernel_choices;
  Profile profile;
  std::function<void()> on_prepare = [] {};  // may throw
  int64_t largest_batch = 64;
  DeviceInfo device;
  // With a batch of its own the loss of step n is this; the network "learns" by default.
  std::function<float(int64_t step)> fixed_batch_loss = [](int64_t step) {
    return 7.0f - 0.5f * static_cast<float>(step);
  };

  std::vector<float> logits = {0.1f, 0.2f};  // of a graph without a loss
  // After so many steps since the last restart().
  std::function<std::vector<float>(int64_t steps)> parameters = [](int64_t) {
    return std::vector<float>();
  };

  int64_t enqueued = 0;
  int64_t waited = 0;
  int most_queued = 0;
  int restarts = 0;
  int64_t fixed_batch_labels = 0;
  std::optional<double> learning_rate{};  // in place of that of the options
  ProgramOptions options;
};

class FakeProgram : public Program {
 public:
  explicit FakeProgram(Script& script) : script_(script) {}

  int max_steps_in_flight() const override { return script_.max_in_flight; }
  void enqueue_step() override {
    ++script_.enqueued;
    script_.most_queued = std::max(script_.most_queued, ++queued_);
    if (queued_ > script_.max_in_flight) throw std::logic_error("too many steps in flight");
  }
  StepRecord wait_step() override {
    if (queued_-- <= 0) throw std::logic_error("no step to wait for");
    ++script_.waited;
    const int64_t step = step_++;
    if (!fixed_batch_) return script_.step(step);
    return {.seconds = 0.01, .loss = script_.fixed_batch_loss(step), .gradient_norm = 1};
  }
  void exchange_gradients(AllReduce&, int64_t) override {}
  std::vector<GradientPlace> gradient_places() const override { return {}; }
  void use_learning_rate(double rate) override { script_.learning_rate = rate; }
  void restart(std::span<const float>) override {
    ++script_.restarts;
    step_ = 0;
  }
  std::vector<float> parameters() override { return script_.parameters(step_); }
  std::vector<float> momentum() override { return {}; }
  std::vector<float> second_moments() override { return {}; }
  std::vector<float> gradients() override { return {}; }
  std::vector<float> running_statistics() override { return {}; }
  std::vector<float> logits() override { return script_.logits; }
  void use_batch(std::span<const float>, std::span<const int32_t> labels) override {
    fixed_batch_ = true;
    script_.fixed_batch_labels = static_cast<int64_t>(labels.size());
  }
  void use_synthetic_batch() override { fixed_batch_ = false; }
  std::vector<KernelChoice> kernel_choices() const override { return script_.kernel_choices; }
  Profile profile(int, bool) override { return script_.profile; }
  std::vector<Probe> probes() override { return {}; }
  int64_t device_bytes() const override { return 12345; }
  int64_t device_bytes_by(Schedule) const override { return 12345; }

 private:
  Script& script_;
  int queued_ = 0;
  int64_t step_ = 0;
  bool fixed_batch_ = false;
};

class FakeBackend : public Backend {
 public:
  explicit FakeBackend(Script& script) : script_(script) {}

  DeviceInfo describe(int) override { return script_.device; }
  void take_share(int, const GpuShare&) override {}
  std::unique_ptr<Program> prepare(const Graph&, const ProgramOptions& options) override {
    script_.options = options;
    script_.on_prepare();
    return std::make_unique<FakeProgram>(script_);
  }
  int64_t bytes_needed(const Graph&, const ProgramOptions&) override { return 0; }
  int64_t largest_batch(const Graph&, const ProgramOptions&) override {
    return script_.largest_batch;
  }
  std::vector<Probe> probes(int) override { return {}; }

 private:
  Script& script_;
};

}  // namespace nearmetal
