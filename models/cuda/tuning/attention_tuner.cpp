// The choice between cuDNN's attention and ours.
#include <algorithm>
#include <functional>
#include <stdexcept>

#include "models/cuda/compiler/lowering.h"
#include "models/cuda/tuning/attention_check.h"
#include "models/cuda/tuning/tuner.h"

namespace nearmetal::cuda {

// Operands of one problem, filled with random values, and room for the results of two runs.
class Tuner::AttentionBuffers {
 public:
  AttentionBuffers(const AttentionProblem& problem, cudaStream_t stream)
      : op_(problem.op),
        element_bytes_(element_bytes(problem.precision)),
        elements_(problem.extent.batch * problem.extent.tokens * problem.extent.features()),
        result_elements_(op_ == AttentionOp::forward ? elements_ : 3 * elements_),
        packed_(random_values(problem.precision, 3 * elements_, 1, stream)),
        y_(allocate_device(elements_ * element_bytes_)),
        log_sums_(allocate_device(problem.extent.rows() * 4)),
        again_(allocate_device(result_elements_ * element_bytes_)),
        workspace_(allocate_device(workspace_limit(problem.precision))),
        token_counts_(make_token_counts(problem.extent)) {
    if (op_ == AttentionOp::forward) return;
    dy_ = random_values(problem.precision, elements_, 2, stream);
    dots_ = allocate_device(problem.extent.rows() * 4);
    gradient_ = allocate_device(result_elements_ * element_bytes_);
  }

  AttentionOperands operands() const {
    return {packed_.get(),
            y_.get(),
            static_cast<float*>(log_sums_.get()),
            dy_.get(),
            static_cast<float*>(dots_.get()),
            gradient_.get(),
            static_cast<const int32_t*>(token_counts_.get())};
  }
  // Operands of the second run.
  AttentionOperands operands_again() const {
    AttentionOperands operands = this->operands();
    (op_ == AttentionOp::forward ? operands.y : operands.packed_gradient) = again_.get();
    return operands;
  }
  // Bytes of 0xff are NaN in every type that we use.
  void fill_results_with_nan(cudaStream_t stream) const {
    for (void* result : {this->result(), again_.get()}) {
      NM_CALL(cudaMemsetAsync(result, 0xff, result_elements_ * element_bytes_, stream));
    }
  }
  bool are_results_equal(cudaStream_t stream) const {
    return have_equal_bits(result(), again_.get(), result_elements_ * element_bytes_, stream);
  }
  void* workspace() const { return workspace_.get(); }

 private:
  void* result() const { return op_ == AttentionOp::forward ? y_.get() : gradient_.get(); }

  AttentionOp op_;
  int64_t element_bytes_, elements_, result_elements_;
  DeviceMemory packed_, y_, log_sums_, again_, workspace_, token_counts_;
  DeviceMemory dy_, dots_, gradient_;  // backward alone
};

// `plan` is null where the kernel is ours.
struct Tuner::AttentionCandidate {
  const AttentionPlan* plan;
  std::string name;
  double milliseconds = never;
};

namespace {

std::string own_attention_key(const AttentionProblem& problem) { return "own " + problem.key(); }

void launch_own(const AttentionProblem& problem, const AttentionOperands& operands,
                cudaStream_t stream) {
  if (problem.op == AttentionOp::forward) {
    launch_attention(problem.precision, problem.extent,
                     {operands.packed, operands.y, operands.log_sums}, stream);
  } else {
    launch_attention_backward(problem.precision, problem.extent,
                              {operands.packed, operands.y, operands.dy, operands.log_sums,
                               operands.dots, operands.packed_gradient},
                              stream);
  }
}

}  // namespace

bool Tuner::has_own(const AttentionProblem& problem) const {
  return kernels_ != Kernels::cudnn && device_.compute_capability_major >= 8 &&
         fits_attention_kernels(problem.precision, problem.extent);
}

bool Tuner::adopt(const AttentionProblem& problem) {
  const std::string key = problem.key();
  if (used_.contains(key)) return true;
  const KernelChoice* choice = known_choice(key);
  if (choice == nullptr) return false;
  const std::string& implementation = choice->implementation;
  const auto rival = known_.find(own_attention_key(problem));
  const bool is_slower = has_own(problem) && rival != known_.end() &&
                         rival->second.implementation == own_implementation &&
                         rival->second.seconds <= choice->seconds;
  if (implementation != no_implementation && !is_slower) {
    try {
      attention_plans_.emplace(key, named_plan(device_.handle, problem, implementation));
    } catch (const std::runtime_error& error) {
      if (!pinned_) return false;
      throw std::runtime_error("the pinned plan " + implementation + " for '" + key +
                               "' does not load here: " + error.what());
    }
  }
  used_[key] = *choice;
  return true;
}

void Tuner::choose(const std::vector<AttentionProblem>& problems) {
  for (const AttentionProblem& problem : problems) {
    bool complete = adopt(problem);
    if (has_own(problem)) complete = adopt_own(own_attention_key(problem)) && complete;
    if (!complete) tune(problem);
    AttentionKernel kernel = faster_attention(problem);
    if (problem.op == AttentionOp::backward) {
      // Products keep probabilities for their backward pass, which no other kernel leaves or reads.
      AttentionKernel& forward = attention_choices_.at(problem.with(AttentionOp::forward).key());
      if (forward == AttentionKernel::products) kernel = forward;
      if (kernel == AttentionKernel::products) forward = kernel;
    }
    attention_choices_[problem.key()] = kernel;
  }
  // The others need no workspace.
  std::erase_if(attention_plans_, [this](const auto& plan) {
    return attention_choices_.at(plan.first) != AttentionKernel::cudnn;
  });
}

AttentionKernel Tuner::faster_attention(const AttentionProblem& problem) const {
  const double by_cudnn = seconds_of(problem.key());
  const double by_own = has_own(problem) ? seconds_of(own_attention_key(problem)) : never;
  if (by_cudnn == never && by_own == never) return AttentionKernel::products;
  return by_own <= by_cudnn ? AttentionKernel::own : AttentionKernel::cudnn;
}

std::function<cudnnStatus_t()> Tuner::launcher(const AttentionPlan* plan,
                                               const AttentionProblem& problem,
                                               const AttentionOperands& operands,
                                               void* workspace) const {
  if (plan == nullptr) {
    return [=, this] {
      launch_own(problem, operands, device_.stream);
      return CUDNN_STATUS_SUCCESS;
    };
  }
  return [=, this, bound = plan->bind(operands, workspace)] {
    return plan->try_execute(device_.handle, bound);
  };
}

// As part of a step, which is a graph: without what the host takes to launch a short kernel.
double Tuner::milliseconds(const std::function<cudnnStatus_t()>& launch, const std::string& name,
                           const std::string& key) const {
  constexpr int calls = 5;
  try {
    if (launch() != CUDNN_STATUS_SUCCESS) return never;  // loads the kernel, if it does not refuse
    const GraphExecHandle graph = captured(device_.stream, [&] {
      for (int i = 0; i < calls; ++i) NM_CALL(launch());
    });
    const auto run = [&] { NM_CALL(cudaGraphLaunch(graph.get(), device_.stream)); };
    return milliseconds_of(run, {.apart = 1, .timed = 1}, device_.stream) / calls;
  } catch (const CaptureRefused&) {
    return never;
  } catch (const std::runtime_error& error) {
    // After a fault on the device the process can do no more than to say whose it was.
    throw std::runtime_error("the attention " + name + " for '" + key +
                             "' failed: " + error.what());
  }
}

// The fastest candidate whose results are right, and the same in two runs.
KernelChoice Tuner::best_of(std::vector<AttentionCandidate> candidates,
                            const AttentionProblem& problem, const std::string& key,
                            const AttentionBuffers& buffers) const {
  const auto launcher_of = [&](const AttentionPlan* plan, const AttentionOperands& operands) {
    return launcher(plan, problem, operands, buffers.workspace());
  };
  for (AttentionCandidate& candidate : candidates) {
    candidate.milliseconds =
        milliseconds(launcher_of(candidate.plan, buffers.operands()), candidate.name, key);
  }
  std::ranges::stable_sort(candidates, {}, &AttentionCandidate::milliseconds);
  for (const auto& [plan, name, milliseconds] : candidates) {
    if (milliseconds == never) break;
    buffers.fill_results_with_nan(device_.stream);
    NM_CALL(launcher_of(plan, buffers.operands())());
    NM_CALL(launcher_of(plan, buffers.operands_again())());
    const AttentionError error = check_attention(problem, buffers.operands(), device_.stream);
    // Steps repeat bit by bit, and replicas stay equal.
    if (!error.passes || !buffers.are_results_equal(device_.stream)) continue;
    return {key, name, milliseconds * 1e-3, error.worst.relative_error};
  }
  return none_for(key);
}

void Tuner::tune(const AttentionProblem& problem) {
  const std::string key = problem.key(), own_key = own_attention_key(problem);
  const AttentionBuffers buffers(problem, device_.stream);
  bool has_operands = true;
  if (problem.op == AttentionOp::backward) {
    const AttentionProblem forward = problem.with(AttentionOp::forward);
    const AttentionKernel kernel = attention_choices_.at(forward.key());
    has_operands = kernel != AttentionKernel::products;
    if (has_operands) {
      NM_CALL(launcher(kernel == AttentionKernel::own ? nullptr : plan(forward), forward,
                       buffers.operands(), buffers.workspace())());
    }
  }
  if (!used_.contains(key)) {
    std::vector<AttentionPlan> plans;
    if (has_operands) {
      plans = offered_plans(device_.handle, problem, workspace_limit(problem.precision),
                            most_candidates);
    }
    std::vector<AttentionCandidate> candidates;
    for (const AttentionPlan& plan : plans) candidates.push_back({&plan, plan.name()});
    used_[key] = best_of(candidates, problem, key, buffers);
    for (const AttentionPlan& plan : plans) {
      if (plan.name() == used_[key].implementation) attention_plans_.emplace(key, plan);
    }
  }
  if (!has_own(problem) || used_.contains(own_key)) return;
  std::vector<AttentionCandidate> candidates;
  if (has_operands) candidates.push_back({nullptr, own_implementation});
  KernelChoice own = best_of(candidates, problem, own_key, buffers);
  if (has_operands && !is_usable(own)) own.implementation = refused_implementation;
  used_[own_key] = own;
}

const AttentionPlan* Tuner::plan(const AttentionProblem& problem) const {
  const auto found = attention_plans_.find(problem.key());
  return found == attention_plans_.end() ? nullptr : &found->second;
}

}  // namespace nearmetal::cuda
