#include "models/cuda/tuning/tuner.h"

#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "models/cuda/kernels/images.h"
#include "models/cuda/tuning/checks.h"

namespace nearmetal::cuda {
namespace {

constexpr double retimed_within = 1.15;  // of the first look's best
constexpr double hopeless_beyond = 2;    // times the best, in the first call, that also loads it:
constexpr double loading_milliseconds = 5;

// 3 to 5 calls, fewer where one takes long.
int timed_calls(double milliseconds) {
  return static_cast<int>(std::clamp(20 / milliseconds, 3.0, 5.0));
}

// Runs the plan once onto NaN (bytes of 0xff are NaN in every type that we use) and compares.
CheckResult check_plan(cudnnHandle_t handle, const ConvolutionPlan& plan,
                       const ConvolutionProblem& problem, const ConvolutionOperands& operands,
                       void* result, void* workspace, cudaStream_t stream) {
  NM_CALL(cudaMemsetAsync(result, 0xff,
                          problem.result_elements() * element_bytes(problem.precision), stream));
  const Descriptor bound = plan.bind(operands, workspace);
  try {
    // As in a step: a plan that cannot be captured is of no use.
    const GraphExecHandle graph =
        captured(stream, [&] { NM_CALL(plan.try_execute(handle, bound)); });
    NM_CALL(cudaGraphLaunch(graph.get(), stream));
  } catch (const CaptureRefused&) {
    return {.not_finite = 1};
  }
  return check_convolution(problem, operands, samples_to_check(problem), stream);
}

constexpr double slow_beyond = 1.5;  // times the best so far

// A linear layer is a convolution of images of one pixel each.
ConvolutionProblem as_convolution(const LinearProblem& problem) {
  const LinearShape& linear = problem.shape;
  ConvolutionShape shape;
  shape.batch = linear.samples;
  shape.input_channels = linear.inputs;
  shape.output_channels = linear.outputs;
  const ConvolutionOp op = problem.op == LinearOp::forward ? ConvolutionOp::forward
                           : problem.op == LinearOp::weight_gradient
                               ? ConvolutionOp::backward_weights
                               : ConvolutionOp::backward_data;
  return {op, shape, problem.precision};
}

// Bias and residual are zeros, so that the result is that of the convolution.
ProductOperands operands_of(const LinearProblem& problem, const TuningBuffers& buffers) {
  const ConvolutionOperands all = buffers.operands(as_convolution(problem));
  switch (problem.op) {
    case LinearOp::forward:
      return {all.x, all.weights, buffers.result(),
              problem.adds_bias ? buffers.second_y() : nullptr,
              problem.adds_residual ? buffers.second_y() : nullptr};
    case LinearOp::weight_gradient:
      return {all.y, all.x, buffers.result(), nullptr, nullptr};
    case LinearOp::input_gradient:
      return {all.y, all.weights, buffers.result(), nullptr, nullptr};
  }
  throw std::logic_error("unknown LinearOp");
}

Product product_of(cublasLtHandle_t cublas, const LinearProblem& problem, const void* bias) {
  return {cublas, problem.precision, problem.product(), bias, product_workspace};
}

// Milliseconds of one call, which gives a library's status; `never` where that is a refusal.
template <class Call>
double time_of(Call call, Calls calls, cudaStream_t stream) {
  static_assert(CUDNN_STATUS_SUCCESS == 0 && CUBLAS_STATUS_SUCCESS == 0);
  decltype(call()) status{};
  const auto call_unless_refused = [&] {
    if (status == 0) status = call();
  };
  const double milliseconds = milliseconds_of(call_unless_refused, calls, stream);
  return status == 0 ? milliseconds : never;
}

}  // namespace

DeviceMemory random_values(Precision precision, int64_t elements, uint64_t seed,
                           cudaStream_t stream) {
  const int line = 1024;
  const ImageLayout layout{(elements + line - 1) / line, 1, 1, line, 1, 1};
  DeviceMemory memory = allocate_device(layout.stored_elements() * element_bytes(precision));
  launch_synthetic_images(precision, layout, seed, memory.get(), stream);
  return memory;
}

TuningBuffers::TuningBuffers(const std::vector<ConvolutionProblem>& problems, cudaStream_t stream) {
  int64_t x_size = 1, weight_size = 1, y_size = 1, channels = 1;
  for (const ConvolutionProblem& problem : problems) {
    const ConvolutionShape& shape = problem.shape;
    x_size = std::max(x_size, shape.input_elements());
    weight_size = std::max(weight_size, shape.weight_elements());
    y_size = std::max(y_size, shape.output_elements());
    channels = std::max(channels, shape.output_channels);
  }
  const Precision precision = problems.front().precision;
  x_ = random_values(precision, x_size, 1, stream);
  weights_ = random_values(precision, weight_size, 2, stream);
  y_ = random_values(precision, y_size, 3, stream);
  second_y_ = random_values(precision, y_size, 5, stream);
  result_ = allocate_device(std::max({x_size, weight_size, y_size}) * element_bytes(precision));
  sums_ = allocate_device(2 * channels * static_cast<int64_t>(sizeof(float)));
  workspace_ = allocate_device(workspace_limit(precision));
}

ConvolutionOperands TuningBuffers::operands(const ConvolutionProblem& problem) const {
  ConvolutionOperands operands{x_.get(), weights_.get(), y_.get(), nullptr, nullptr};
  switch (problem.op) {
    case ConvolutionOp::backward_data:
      operands.x = result_.get();
      break;
    case ConvolutionOp::backward_weights:
      operands.weights = result_.get();
      break;
    case ConvolutionOp::forward_statistics:
      operands.sum = sums_.get();
      operands.square_sum = static_cast<float*>(sums_.get()) + problem.shape.output_channels;
      [[fallthrough]];
    case ConvolutionOp::forward:
      operands.y = result_.get();
      break;
    case ConvolutionOp::forward_residual:
      operands.residual = y_.get();
      [[fallthrough]];
    case ConvolutionOp::forward_bias:
    case ConvolutionOp::forward_activation:
      operands.y = result_.get();
      operands.bias = second_y_.get();
      break;
  }
  return operands;
}

KernelChoice none_for(const std::string& key) {
  return {key, no_implementation, 0, Unknown{"there is no result"}};
}

KernelChoice refused(const std::string& key, double relative_error) {
  if (std::isfinite(relative_error)) return {key, refused_implementation, 0, relative_error};
  return {key, refused_implementation, 0, Unknown{"it is not finite, or the reference is 0"}};
}

Tuner::Tuner(const TuningDevice& device, const std::vector<KernelChoice>& known, bool pinned)
    : device_(device), pinned_(pinned) {
  for (const KernelChoice& plan : known) known_[plan.key] = plan;
}

const KernelChoice* Tuner::known_choice(const std::string& key) const {
  const auto found = known_.find(key);
  if (found != known_.end()) return &found->second;
  if (pinned_) throw std::runtime_error("the pinned plans have none for '" + key + "'");
  return nullptr;
}

const KernelChoice* Tuner::decision(const std::string& key,
                                    const std::vector<std::string>& implementations) {
  if (const auto made = used_.find(key); made != used_.end()) return &made->second;
  const KernelChoice* choice = known_choice(key);
  if (choice == nullptr) return nullptr;
  if (std::ranges::find(implementations, choice->implementation) == implementations.end()) {
    if (!pinned_) return nullptr;
    throw std::runtime_error("the pinned plan " + choice->implementation + " for '" + key +
                             "' is unknown here");
  }
  return &(used_[key] = *choice);
}

void Tuner::choose(const std::vector<ConvolutionProblem>& problems) {
  std::vector<ConvolutionProblem> unknown;
  for (const ConvolutionProblem& problem : problems) {
    if (!adopt(plans_, problem)) unknown.push_back(problem);
  }
  if (unknown.empty()) return;
  const TuningBuffers buffers(unknown, device_.stream);
  for (const ConvolutionProblem& problem : unknown) tune(problem, buffers);
}

double Tuner::milliseconds(const ConvolutionPlan& plan, const ConvolutionProblem& problem,
                           const TuningBuffers& buffers, Calls calls) const {
  throw_if_stopped(*device_.stop);
  const Descriptor bound = plan.bind(buffers.operands(problem), buffers.workspace());
  try {
    return time_of([&] { return plan.try_execute(device_.handle, bound); }, calls, device_.stream);
  } catch (const std::runtime_error& error) {
    // After a fault on the device the process can do no more than to say whose it was.
    throw std::runtime_error("cuDNN's plan " + plan.name() + " for '" + problem.key() +
                             "' failed: " + error.what());
  }
}

// The fastest first; those far behind are left out.
std::vector<Tuner::Candidate> Tuner::fastest_of(const std::vector<const ConvolutionPlan*>& plans,
                                                const ConvolutionProblem& problem,
                                                const TuningBuffers& buffers) const {
  const auto time = [&](const ConvolutionPlan& plan, Calls calls) {
    return milliseconds(plan, problem, buffers, calls);
  };
  std::vector<Candidate> candidates;
  double best = never;
  for (const ConvolutionPlan* plan : plans) {
    const double first = time(*plan, {.apart = 0, .timed = 1});
    if (first == never || first > best * hopeless_beyond + loading_milliseconds) continue;
    candidates.push_back({plan, time(*plan, {.apart = 1, .timed = 1})});
    best = std::min(best, candidates.back().milliseconds);
  }
  std::erase_if(candidates, [&](const Candidate& candidate) {
    return !(candidate.milliseconds <= best * retimed_within);
  });
  for (Candidate& candidate : candidates) {
    candidate.milliseconds = time(*candidate.plan, {.apart = 1, .timed = timed_calls(best)});
  }
  std::ranges::stable_sort(candidates, {}, &Candidate::milliseconds);
  return candidates;
}

void Tuner::tune(const ConvolutionProblem& problem, const TuningBuffers& buffers) {
  const std::vector<ConvolutionPlan> offered =
      offered_plans(device_.handle, problem, workspace_limit(problem.precision), most_candidates);
  std::vector<const ConvolutionPlan*> left;
  for (const ConvolutionPlan& plan : offered) left.push_back(&plan);
  const std::string key = problem.key();
  // An engine that leaves its work undone is faster than all that do it: once more without those.
  for (bool any = true; any;) {
    any = false;
    for (const Candidate& candidate : fastest_of(left, problem, buffers)) {
      const CheckResult check =
          check_plan(device_.handle, *candidate.plan, problem, buffers.operands(problem),
                     buffers.result(), buffers.workspace(), device_.stream);
      if (check.passes(problem)) {
        plans_.emplace(key, *candidate.plan);
        used_[key] = {key, candidate.plan->name(), candidate.milliseconds * 1e-3,
                      check.relative_error};
        return;
      }
      std::erase(left, candidate.plan);
      any = true;
    }
  }
  const bool has_rival = problem.op == ConvolutionOp::forward_statistics || adds_bias(problem.op);
  if (!has_rival) {
    throw std::runtime_error("none of the " + std::to_string(offered.size()) +
                             " plans that cuDNN offers for '" + key + "' computes it correctly");
  }
  used_[key] = none_for(key);
}

const ConvolutionPlan* Tuner::plan(const ConvolutionProblem& problem) const {
  const auto found = plans_.find(problem.key());
  return found == plans_.end() ? nullptr : &found->second;
}

std::vector<KernelChoice> Tuner::used() const {
  std::vector<KernelChoice> plans;
  for (const auto& [key, plan] : used_) plans.push_back(plan);
  return plans;
}

int64_t Tuner::largest_workspace() const {
  int64_t largest = 0;
  for (const auto& [key, plan] : plans_) largest = std::max(largest, plan.workspace_bytes());
  for (const auto& [key, plan] : attention_plans_) {
    largest = std::max(largest, plan.workspace_bytes());
  }
  return largest;
}

bool Tuner::adopt(const LinearProblem& problem) {
  const std::string key = problem.key();
  if (used_.contains(key)) return true;
  const KernelChoice* choice = known_choice(key);
  if (choice == nullptr) return false;
  const std::string& algorithm = choice->implementation;
  if (!pinned_ && !has_small_clusters(algorithm)) return false;
  // Any address will do as that of a bias.
  if (!product_of(device_.cublas, problem, problem.adds_bias ? this : nullptr).use(algorithm)) {
    if (!pinned_) return false;
    throw std::runtime_error("the pinned plan " + algorithm + " for '" + key +
                             "' does not load here");
  }
  used_[key] = *choice;
  return true;
}

void Tuner::choose(const std::vector<LinearProblem>& problems) {
  std::vector<LinearProblem> unknown;
  std::vector<ConvolutionProblem> sizes;
  for (const LinearProblem& problem : problems) {
    if (adopt(problem)) continue;
    unknown.push_back(problem);
    sizes.push_back(as_convolution(problem));
  }
  if (unknown.empty()) return;
  const TuningBuffers buffers(sizes, device_.stream);
  int64_t zeros = 0;
  for (const ConvolutionProblem& size : sizes) {
    zeros = std::max(zeros, size.shape.output_elements() * element_bytes(size.precision));
  }
  NM_CALL(cudaMemsetAsync(buffers.second_y(), 0, zeros, device_.stream));
  for (const LinearProblem& problem : unknown) tune(problem, buffers);
}

void Tuner::tune(const LinearProblem& problem, const TuningBuffers& buffers) {
  const ProductOperands operands = operands_of(problem, buffers);
  Product product = product_of(device_.cublas, problem, operands.bias);
  const auto time = [&](Calls calls) {
    const auto launch = [&] {
      return product.try_launch(operands, buffers.workspace(), device_.stream);
    };
    return time_of(launch, calls, device_.stream);
  };
  std::vector<std::pair<double, std::string>> candidates;
  double best = never;
  for (const std::string& algorithm : product.offered(most_algorithms)) {
    if (!product.use(algorithm)) continue;
    double milliseconds = time({.apart = 1, .timed = 1});
    if (milliseconds == never || milliseconds > slow_beyond * best) continue;
    milliseconds = time({.apart = 1, .timed = 5});
    best = std::min(best, milliseconds);
    candidates.emplace_back(milliseconds, algorithm);
  }
  std::ranges::stable_sort(candidates, {}, &std::pair<double, std::string>::first);
  const ConvolutionProblem checked = as_convolution(problem);
  for (const auto& [milliseconds, algorithm] : candidates) {
    if (!product.use(algorithm)) continue;
    NM_CALL(cudaMemsetAsync(buffers.result(), 0xff,
                            checked.result_elements() * element_bytes(problem.precision),
                            device_.stream));
    product.launch(operands, buffers.workspace(), device_.stream);
    const CheckResult check = check_convolution(checked, buffers.operands(checked),
                                                samples_to_check(checked), device_.stream);
    if (!check.passes(checked)) continue;
    used_[problem.key()] = {problem.key(), algorithm, milliseconds * 1e-3, check.relative_error};
    return;
  }
  throw std::runtime_error("of the algorithms that cuBLASLt offers for '" + problem.key() +
                           "' none computes it rightly");
}

// Operands of one problem, filled with random values, and of a second run, whose result lies apart.
struct Tuner::AttentionBuffers {
  AttentionBuffers(const AttentionProblem& problem, cudaStream_t stream) {
    const AttentionExtent& extent = problem.extent;
    const bool backward = problem.op == AttentionOp::backward;
    const int64_t elements = extent.batch * extent.tokens * extent.features();
    const int64_t bytes = elements * element_bytes(problem.precision);
    result_bytes = (backward ? 3 : 1) * bytes;
    const auto keep = [this](DeviceMemory taken) {
      return memory.emplace_back(std::move(taken)).get();
    };
    const auto floats_of_rows = [&] {
      return static_cast<float*>(keep(allocate_device(extent.rows() * 4)));
    };
    operands.packed = keep(random_values(problem.precision, 3 * elements, 1, stream));
    operands.y = keep(allocate_device(bytes));
    operands.log_sums = floats_of_rows();
    operands.token_counts = static_cast<const int32_t*>(keep(make_token_counts(extent)));
    if (backward) {
      operands.dy = keep(random_values(problem.precision, elements, 2, stream));
      operands.dots = floats_of_rows();
      operands.packed_gradient = keep(allocate_device(result_bytes));
    }
    again = operands;
    (backward ? again.packed_gradient : again.y) = keep(allocate_device(result_bytes));
    workspace = keep(allocate_device(workspace_limit(problem)));
  }

  static void* result_of(const AttentionOperands& run) {
    return run.packed_gradient == nullptr ? run.y : run.packed_gradient;
  }
  // Bytes of 0xff are NaN in every type that we use.
  void fill_results_with_nan(cudaStream_t stream) const {
    for (const AttentionOperands* run : {&operands, &again}) {
      NM_CALL(cudaMemsetAsync(result_of(*run), 0xff, result_bytes, stream));
    }
  }
  bool are_results_equal(cudaStream_t stream) const {
    return have_equal_bits(result_of(operands), result_of(again), result_bytes, stream);
  }

  AttentionOperands operands, again;
  int64_t result_bytes = 0;
  void* workspace = nullptr;
  std::vector<DeviceMemory> memory;  // of all these
};

void Tuner::choose(const std::vector<AttentionProblem>& problems) {
  for (const AttentionProblem& problem : problems) {
    const std::string key = problem.key();
    // Reports of 1.x may have pinned a kernel that this program no longer has.
    const auto own = known_.find("own " + key);
    if (pinned_ && own != known_.end() && own->second.implementation == own_implementation) {
      const KernelChoice* plan = known_choice(key);
      if (!is_usable(*plan) || own->second.seconds <= plan->seconds) {
        throw std::runtime_error("the pinned plan own for '" + own->first + "' is unknown here");
      }
    }
    if (!adopt(attention_plans_, problem)) tune(problem);
    // The backward pass reads what cuDNN's forward pass leaves, and products read other things.
    if (problem.op == AttentionOp::forward || plan(problem) != nullptr) continue;
    attention_plans_.erase(problem.with(AttentionOp::forward).key());
  }
}

// Milliseconds as part of a step, which is a graph: without what the host takes to launch a short
// kernel.
double Tuner::milliseconds(const AttentionPlan& plan, const std::string& key,
                           const Descriptor& bound) const {
  constexpr int calls = 5;
  throw_if_stopped(*device_.stop);
  try {
    // Loads the kernel, if it does not refuse.
    if (plan.try_execute(device_.handle, bound) != CUDNN_STATUS_SUCCESS) return never;
    const GraphExecHandle graph = captured(device_.stream, [&] {
      for (int i = 0; i < calls; ++i) NM_CALL(plan.try_execute(device_.handle, bound));
    });
    const auto run = [&] { NM_CALL(cudaGraphLaunch(graph.get(), device_.stream)); };
    return milliseconds_of(run, {.apart = 1, .timed = 1}, device_.stream) / calls;
  } catch (const CaptureRefused&) {
    return never;
  } catch (const std::runtime_error& error) {
    // After a fault on the device the process can do no more than to say whose it was.
    throw std::runtime_error("the attention " + plan.name() + " for '" + key +
                             "' failed: " + error.what());
  }
}

// The fastest plan whose results are right, and the same in two runs. Where there are plans and
// none is, that is told as a refusal, since products are several times slower.
void Tuner::tune(const AttentionProblem& problem) {
  const std::string key = problem.key();
  used_[key] = none_for(key);
  const AttentionBuffers buffers(problem, device_.stream);
  const auto run = [&](const AttentionPlan& plan, const AttentionOperands& operands) {
    NM_CALL(plan.try_execute(device_.handle, plan.bind(operands, buffers.workspace)));
  };
  if (problem.op == AttentionOp::backward) {
    const AttentionPlan* forward = plan(problem.with(AttentionOp::forward));
    if (forward == nullptr) return;
    run(*forward, buffers.operands);
  }
  std::vector<std::pair<double, AttentionPlan>> candidates;
  for (AttentionPlan& plan :
       offered_plans(device_.handle, problem, workspace_limit(problem), most_candidates)) {
    const double time = milliseconds(plan, key, plan.bind(buffers.operands, buffers.workspace));
    if (time != never) candidates.emplace_back(time, std::move(plan));
  }
  std::ranges::stable_sort(candidates, {}, &std::pair<double, AttentionPlan>::first);
  for (const auto& [time, plan] : candidates) {
    buffers.fill_results_with_nan(device_.stream);
    run(plan, buffers.operands);
    run(plan, buffers.again);
    const AttentionError error = check_attention(problem, buffers.operands, device_.stream);
    // Steps repeat bit by bit, and replicas stay equal.
    const bool right = error.passes && buffers.are_results_equal(device_.stream);
    used_[key] = right ? KernelChoice{key, plan.name(), time * 1e-3, error.worst.relative_error}
                       : refused(key, error.worst.relative_error);
    if (!right) continue;
    attention_plans_.emplace(key, plan);
    return;
  }
}

const AttentionPlan* Tuner::plan(const AttentionProblem& problem) const {
  const auto found = attention_plans_.find(problem.key());
  return found == attention_plans_.end() ? nullptr : &found->second;
}

}  // namespace nearmetal::cuda
