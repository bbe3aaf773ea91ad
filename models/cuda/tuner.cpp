#include "models/cuda/tuner.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "models/cuda/batch_norm.h"
#include "models/cuda/convolution_check.h"
#include "models/cuda/images.h"

namespace nearmetal {
namespace {

constexpr const char* no_plan = "none";
constexpr const char* own_sweep = "own";
constexpr int most_candidates = 64;
constexpr int timed_runs = 5;
constexpr double retimed_within = 1.15;  // of the first look's best

// Our sweep over the output of a convolution.
std::string sweep_key(const ConvolutionProblem& problem) {
  const ConvolutionShape& shape = problem.shape;
  return std::string("batch_statistics sweep ") + to_string(problem.precision) + " " +
         std::to_string(shape.output_elements() / shape.output_channels) + "x" +
         std::to_string(shape.output_channels);
}
ConvolutionProblem with_statistics(ConvolutionProblem problem) {
  problem.op = ConvolutionOp::forward_statistics;
  return problem;
}

Extent output_extent(const ConvolutionShape& shape) {
  return {shape.output_elements() / shape.output_channels, static_cast<int>(shape.output_channels)};
}

DeviceMemory random_values(Precision precision, int64_t elements, uint64_t seed,
                           cudaStream_t stream) {
  const int line = 1024;
  const ImageLayout layout{(elements + line - 1) / line, 1, 1, line, 1, 1};
  DeviceMemory memory = allocate_device(layout.stored_elements() * element_bytes(precision));
  launch_synthetic_images(precision, layout, seed, memory.get(), stream);
  return memory;
}

}  // namespace

/// Operands as large as the largest problem, filled with random values, and room for a result.
struct Tuner::Buffers {
  DeviceMemory x, weights, y, result, sums, workspace, reduction, norm;
  int multiprocessors;

  Buffers(const std::vector<ConvolutionProblem>& problems, int multiprocessors, cudaStream_t stream)
      : multiprocessors(multiprocessors) {
    int64_t x_size = 1, weight_size = 1, y_size = 1, channels = 1;
    for (const auto& [op, shape, precision] : problems) {
      x_size = std::max(x_size, shape.input_elements());
      weight_size = std::max(weight_size, shape.weight_elements());
      y_size = std::max(y_size, shape.output_elements());
      channels = std::max(channels, shape.output_channels);
    }
    const Precision precision = problems.front().precision;
    x = random_values(precision, x_size, 1, stream);
    weights = random_values(precision, weight_size, 2, stream);
    y = random_values(precision, y_size, 3, stream);
    result = allocate_device(std::max({x_size, weight_size, y_size}) * element_bytes(precision));
    sums = allocate_device(2 * channels * sizeof(float));
    workspace = allocate_device(workspace_limit(precision));
    const int64_t partial = ReductionScratch::partial_sums_bytes(multiprocessors);
    reduction = allocate_device(partial + ReductionScratch::arrivals_bytes());
    NM_CALL(
        cudaMemsetAsync(reduction.get(), 0, partial + ReductionScratch::arrivals_bytes(), stream));
    norm = random_values(Precision::fp32, norm_arrays * channels, 4, stream);
    norm_channels = channels;
  }

  ReductionScratch scratch() const {
    auto* partial = static_cast<char*>(reduction.get());
    return {reinterpret_cast<float*>(partial),
            reinterpret_cast<unsigned*>(partial +
                                        ReductionScratch::partial_sums_bytes(multiprocessors)),
            multiprocessors};
  }
  BatchNormState state() const {
    auto* first = static_cast<float*>(norm.get());
    const auto array = [&](int i) { return first + i * norm_channels; };
    BatchNormState state;
    state.scale = array(0);
    state.bias = array(1);
    state.running_mean = array(2);
    state.running_variance = array(3);
    state.mean = array(4);
    state.inverse_deviation = array(5);
    state.multiplier = array(6);
    state.shift = array(7);
    return state;
  }
  ConvolutionOperands operands(const ConvolutionProblem& problem) const {
    ConvolutionOperands operands{x.get(), weights.get(), y.get(), nullptr, nullptr};
    switch (problem.op) {
      case ConvolutionOp::backward_data:
        operands.x = result.get();
        break;
      case ConvolutionOp::backward_weights:
        operands.weights = result.get();
        break;
      case ConvolutionOp::forward_statistics:
        operands.sum = sums.get();
        operands.square_sum = static_cast<float*>(sums.get()) + problem.shape.output_channels;
        [[fallthrough]];
      case ConvolutionOp::forward:
        operands.y = result.get();
        break;
    }
    return operands;
  }

  static constexpr int norm_arrays = 8;
  int64_t norm_channels = 0;
};

namespace {

int64_t result_elements(const ConvolutionProblem& problem) {
  switch (problem.op) {
    case ConvolutionOp::backward_data:
      return problem.shape.input_elements();
    case ConvolutionOp::backward_weights:
      return problem.shape.weight_elements();
    default:
      return problem.shape.output_elements();
  }
}

// Runs the plan once onto NaN (bytes of 0xff are NaN in every type that we use) and compares.
CheckResult check_plan(cudnnHandle_t handle, const ConvolutionPlan& plan,
                       const ConvolutionProblem& problem, const ConvolutionOperands& operands,
                       void* result, void* workspace, cudaStream_t stream) {
  NM_CALL(cudaMemsetAsync(result, 0xff, result_elements(problem) * element_bytes(problem.precision),
                          stream));
  const Descriptor bound = plan.bind(operands, workspace);
  NM_CALL(plan.try_execute(handle, bound));
  const double terms = problem.op == ConvolutionOp::backward_weights
                           ? static_cast<double>(output_extent(problem.shape).rows)
                           : static_cast<double>(problem.shape.weight_elements());
  const int samples = static_cast<int>(std::clamp(1e9 / terms, 256.0, 2048.0));
  return check_convolution(problem, operands, samples, stream);
}

}  // namespace

Tuner::Tuner(cudnnHandle_t handle, cudaStream_t stream, const std::vector<Plan>& known, bool pinned)
    : handle_(handle), stream_(stream), pinned_(pinned) {
  for (const Plan& plan : known) known_[plan.key] = plan;
}

// Takes a known choice over; `problem` is null where the choice is not a convolution.
bool Tuner::adopt(const std::string& key, const ConvolutionProblem* problem) {
  if (used_.contains(key)) return true;
  const auto found = known_.find(key);
  if (found == known_.end()) {
    if (pinned_) throw std::runtime_error("the pinned plans have none for '" + key + "'");
    return false;
  }
  const Plan& plan = found->second;
  if (problem == nullptr && plan.implementation != own_sweep) {
    if (!pinned_) return false;
    throw std::runtime_error("the pinned plan " + plan.implementation + " for '" + key +
                             "' is unknown here");
  }
  if (problem != nullptr && plan.implementation != no_plan) {
    try {
      plans_.emplace(key, named_plan(handle_, *problem, plan.implementation));
    } catch (const std::runtime_error& error) {
      if (!pinned_) return false;
      throw std::runtime_error("the pinned plan " + plan.implementation + " for '" + key +
                               "' does not load here: " + error.what());
    }
  }
  used_[key] = plan;
  return true;
}

void Tuner::choose(const std::vector<ConvolutionProblem>& problems, int multiprocessors) {
  std::vector<ConvolutionProblem> unknown;
  for (const ConvolutionProblem& problem : problems) {
    bool complete = adopt(problem.key(), &problem);
    if (problem.op == ConvolutionOp::forward) {
      complete = adopt(sweep_key(problem), nullptr) && complete;
    }
    if (!complete) unknown.push_back(problem);
  }
  if (unknown.empty()) return;
  const Buffers buffers(unknown, multiprocessors, stream_);
  for (const ConvolutionProblem& problem : unknown) {
    if (!used_.contains(problem.key())) tune(problem, buffers);
    if (problem.op == ConvolutionOp::forward) time_statistics_sweep(problem, buffers);
  }
}

void Tuner::tune(const ConvolutionProblem& problem, const Buffers& buffers) {
  struct Candidate {
    const ConvolutionPlan* plan;
    double milliseconds;
  };
  const std::vector<ConvolutionPlan> offered =
      offered_plans(handle_, problem, workspace_limit(problem.precision), most_candidates);
  const ConvolutionOperands operands = buffers.operands(problem);
  const auto time = [&](const ConvolutionPlan& plan, int runs) {
    const Descriptor bound = plan.bind(operands, buffers.workspace.get());
    if (plan.try_execute(handle_, bound) != CUDNN_STATUS_SUCCESS) {
      return std::numeric_limits<double>::infinity();
    }
    try {
      return milliseconds_of([&] { NM_CALL(plan.try_execute(handle_, bound)); }, runs, stream_);
    } catch (const std::runtime_error& error) {
      // After a fault on the device the process can do no more than to say whose it was.
      throw std::runtime_error("cuDNN's plan " + plan.name() + " for '" + problem.key() +
                               "' failed: " + error.what());
    }
  };
  std::vector<Candidate> candidates;
  double best = std::numeric_limits<double>::infinity();
  for (const ConvolutionPlan& plan : offered) {
    candidates.push_back({&plan, time(plan, 1)});
    best = std::min(best, candidates.back().milliseconds);
  }
  std::erase_if(candidates, [&](const Candidate& candidate) {
    return !(candidate.milliseconds <= best * retimed_within);
  });
  for (Candidate& candidate : candidates) {
    candidate.milliseconds = time(*candidate.plan, timed_runs);
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.milliseconds < b.milliseconds; });
  const std::string key = problem.key();
  for (const Candidate& candidate : candidates) {
    const CheckResult check = check_plan(handle_, *candidate.plan, problem, operands,
                                         buffers.result.get(), buffers.workspace.get(), stream_);
    if (!check.passes(problem)) continue;
    plans_.emplace(key, *candidate.plan);
    used_[key] = {key, candidate.plan->name(), candidate.milliseconds * 1e-3, check.relative_error};
    return;
  }
  if (problem.op != ConvolutionOp::forward_statistics) {
    throw std::runtime_error("of the " + std::to_string(offered.size()) +
                             " plans that cuDNN offers for '" + key + "' none computes it rightly");
  }
  used_[key] = {key, no_plan, 0, 0};
}

void Tuner::time_statistics_sweep(const ConvolutionProblem& problem, const Buffers& buffers) {
  const std::string key = sweep_key(problem);
  if (used_.contains(key)) return;
  const double milliseconds = milliseconds_of(
      [&] {
        launch_batch_statistics(problem.precision, buffers.y.get(), output_extent(problem.shape),
                                buffers.state(), buffers.scratch(), stream_);
      },
      timed_runs, stream_);
  used_[key] = {key, own_sweep, milliseconds * 1e-3, 0};
}

const ConvolutionPlan* Tuner::plan(const ConvolutionProblem& problem) const {
  const auto found = plans_.find(problem.key());
  return found == plans_.end() ? nullptr : &found->second;
}

double Tuner::seconds_of(const std::string& key) const {
  const auto found = used_.find(key);
  if (found == used_.end() || found->second.implementation == no_plan) {
    return std::numeric_limits<double>::infinity();
  }
  return found->second.seconds;
}

double Tuner::seconds_of(const LoweredStep& step) const {
  double total = 0;
  for (const Kernel& kernel : step.kernels) {
    if (kernel.convolution) total += seconds_of(kernel.convolution->problem.key());
  }
  return total;
}

std::set<std::string> Tuner::faster_with_statistics(const LoweredStep& step) const {
  std::set<std::string> keys;
  for (const Kernel& kernel : step.kernels) {
    if (!kernel.convolution || kernel.convolution->problem.op != ConvolutionOp::forward) continue;
    const ConvolutionProblem& problem = kernel.convolution->problem;
    const double fused = seconds_of(with_statistics(problem).key());
    const double apart = seconds_of(problem.key()) + seconds_of(sweep_key(problem));
    if (fused < apart) keys.insert(problem.key());
  }
  return keys;
}

std::vector<Plan> Tuner::used() const {
  std::vector<Plan> plans;
  for (const auto& [key, plan] : used_) plans.push_back(plan);
  return plans;
}

int64_t Tuner::largest_workspace() const {
  int64_t largest = 0;
  for (const auto& [key, plan] : plans_) largest = std::max(largest, plan.workspace_bytes());
  return largest;
}

}  // namespace nearmetal
