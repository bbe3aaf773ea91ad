// The choice among cuDNN's plans of attention.
#include <algorithm>
#include <stdexcept>

#include "base/errors.h"
#include "models/cuda/compiler/lowering.h"
#include "models/cuda/tuning/checks.h"
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
        workspace_(allocate_device(workspace_limit(problem))),
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
    NM_CALL(plan.try_execute(device_.handle, plan.bind(operands, buffers.workspace())));
  };
  if (problem.op == AttentionOp::backward) {
    const AttentionPlan* forward = plan(problem.with(AttentionOp::forward));
    if (forward == nullptr) return;
    run(*forward, buffers.operands());
  }
  std::vector<std::pair<double, AttentionPlan>> candidates;
  for (AttentionPlan& plan :
       offered_plans(device_.handle, problem, workspace_limit(problem), most_candidates)) {
    const double time = milliseconds(plan, key, plan.bind(buffers.operands(), buffers.workspace()));
    if (time != never) candidates.emplace_back(time, std::move(plan));
  }
  std::ranges::stable_sort(candidates, {}, &std::pair<double, AttentionPlan>::first);
  for (const auto& [time, plan] : candidates) {
    buffers.fill_results_with_nan(device_.stream);
    run(plan, buffers.operands());
    run(plan, buffers.operands_again());
    const AttentionError error = check_attention(problem, buffers.operands(), device_.stream);
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
