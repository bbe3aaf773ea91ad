#include "models/cuda/tuning/tuner.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "base/errors.h"
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

}  // namespace

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
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  const auto launch = [&] {
    if (status == CUDNN_STATUS_SUCCESS) status = plan.try_execute(device_.handle, bound);
  };
  try {
    const double milliseconds = milliseconds_of(launch, calls, device_.stream);
    return status == CUDNN_STATUS_SUCCESS ? milliseconds : never;
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

}  // namespace nearmetal::cuda
