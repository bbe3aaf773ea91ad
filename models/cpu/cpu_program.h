// A graph prepared for the processors of this machine.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "models/cpu/host.h"
#include "models/cpu/lowered_step.h"
#include "models/graph.h"
#include "models/program.h"

namespace nearmetal::cpu {

class CpuProgram : public Program {
 public:
  CpuProgram(const Graph& graph, const ProgramOptions& options);

  int max_steps_in_flight() const override { return 1; }
  void enqueue_step() override;
  StepRecord wait_step() override { return record_; }
  void exchange_gradients(AllReduce& all_reduce, int64_t bucket_bytes) override;
  std::vector<GradientPlace> gradient_places() const override;
  void connect_stages(StageLinks& links) override;
  std::vector<TaskMark> task_marks() override { return state_.stage.marks; }
  int64_t boundary_bytes() const override { return bytes_of_boundaries(graph_, options_).sent; }

  void use_learning_rate(double rate) override { options_.optimizer.learning_rate = rate; }
  void restart(std::span<const float> parameters) override;
  std::vector<float> parameters() override { return canonical(region(Region::values)); }
  std::vector<float> momentum() override;
  std::vector<float> second_moments() override;
  std::vector<float> gradients() override;
  std::vector<float> running_statistics() override;
  std::vector<float> logits() override;

  void use_batch(std::span<const float> images, std::span<const int32_t> labels) override;
  void use_sequences(std::span<const int32_t> tokens, std::span<const int32_t> labels) override;
  void use_synthetic_batch() override;

  std::vector<KernelChoice> kernel_choices() const override;
  Profile profile(int repeats, bool with_ceilings) override;
  std::vector<Probe> probes() override;
  int64_t device_bytes() const override;
  int64_t device_bytes_by(Schedule schedule) const override;

 private:
  void check_memory() const;
  void allocate();
  // cpu_program_step.cpp
  void put_events_in_order();
  template <class... Facts>
  void append(Facts... facts) {
    step_.operations.push_back(own_operation(facts...));
  }
  void append_own_operations(const LoweredEvent& lowered);
  void append_input();
  // Copies its images to where they are read, and sets which one operations shared by all compute.
  void append_begin_of_micro_batch(const LoweredEvent& forward);
  void append_sum_of_gradients(MicroBatch part);
  FlatGradient flat_gradient() const;
  char* host_images_of(int64_t micro_batch) const {
    return static_cast<char*>(host_images_.get()) + micro_batch * step_.images->bytes();
  }
  void check_pinned_plans() const;
  void use_threads() const;

  void draw_tokens();
  void draw_labels();
  void finish_step();
  void sum_over_stages();
  void end_pipeline();
  // Loss and gradient norm from the sums, over all stages where there are several.
  void take_sums();
  void update();
  float gradient_factor() const;
  void set_images(std::span<const float> images);

  float* region(Region region) const {
    return static_cast<float*>(regions_[static_cast<size_t>(region)].get());
  }
  // Parameters, their moments or gradients: `flat` has the order and layouts of the slices.
  std::vector<float> canonical(const float* flat) const;

  Graph graph_;
  ProgramOptions options_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  StepState state_;
  LoweredStep step_;
  std::array<HostMemory, region_count> regions_;
  HostMemory momentum_;
  HostMemory second_moments_;          // null with SGD
  HostMemory sent_gradients_;          // null where they travel as they are
  HostMemory host_images_;             // of all micro-batches; null where images stay in place
  HostMemory sum_before_;              // of gradients; null where a step is one micro-batch
  std::vector<int32_t> fixed_labels_;  // empty: drawn every step
  std::vector<int32_t> fixed_tokens_;  // likewise
  std::vector<double> partial_sums_;

  int64_t steps_ = 0;    // since restart()
  int64_t updates_ = 0;  // likewise, of those steps that were not skipped
  int32_t good_steps_ = 0;
  int ranks_ = 1;                           // whose gradients are summed
  float inverse_scale_ = 1;                 // of the last step
  std::optional<double> last_end_seconds_;  // of a step, since restart()
  StepRecord record_;
};

}  // namespace nearmetal::cpu
