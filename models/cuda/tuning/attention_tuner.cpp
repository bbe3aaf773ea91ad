// The choice among cuDNN's plans of attention.
#include <algorithm>
#include <stdexcept>

#include "base/errors.h"
#include "models/cuda/compiler/lowering.h"
#include "models/cuda/tuning/checks.h"
#include "models/cuda/tuning/tuner.h"

namespace nearmetal::cuda {

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
