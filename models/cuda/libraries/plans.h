// Plans of cuDNN: engines that its heuristics name for a graph of operations, built for a GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/cuda/libraries/handles.h"
#include "models/training_options.h"

namespace nearmetal::cuda {

cudnnDataType_t cudnn_type(Precision precision);

/// The GPU that plans are made for: that of a handle, or one that is not there but described, for
/// which plans can be built and not executed.
struct PlanDevice {
  PlanDevice(cudnnHandle_t handle) : handle(handle) {}
  /// By the properties that cuDNN gives for a device, as JSON. Throws std::runtime_error with
  /// cuDNN's reason if it does not take them.
  explicit PlanDevice(const std::string& properties_json);

  cudnnHandle_t handle = nullptr;
  std::optional<Descriptor> properties;  // where there is no handle
};

/// The graph of these operations, in an order for which cuDNN has engines.
Descriptor operation_graph(const PlanDevice& device, std::span<const Descriptor> operations);

/// A tensor of a graph, by its unique id, and its address in one execution: on the device, or on
/// the host for a value that is not in memory.
struct Binding {
  int64_t id;
  const void* address;
};

/// A finalised plan. Copies share it. Executing does not allocate.
class Plan {
 public:
  Plan(const PlanDevice& device, const Descriptor& graph, const Descriptor& config,
       std::string name);

  const std::string& name() const { return name_; }  // "eng62_k2=4_k13=0": engine and knobs
  int64_t workspace_bytes() const { return workspace_bytes_; }
  /// The arguments of execute(), made once.
  Descriptor bind(std::span<const Binding> bindings, void* workspace) const;
  cudnnStatus_t try_execute(cudnnHandle_t handle, const Descriptor& bound) const {
    return cudnnBackendExecute(handle, plan_.get(), bound.get());
  }

 private:
  Descriptor graph_;  // the plan may refer to it
  Descriptor plan_;
  std::string name_;
  int64_t workspace_bytes_ = 0;
};

/// What is asked of a plan.
struct PlanRules {
  int64_t workspace_limit = 0;
  int limit = 0;                   // of plans
  bool strict_fp32 = false;        // no tensor cores, no rounding of inputs
  bool run_time_compiled = false;  // may be
};

/// The plans that cuDNN's heuristics offer and that can be built, best guess first. Left out beside
/// what breaks the rules: nondeterministic ones as long as there are others, and those that sum in
/// less than fp32.
std::vector<Plan> offered_plans(const PlanDevice& device, const Descriptor& graph,
                                const PlanRules& rules);

/// The plan of that name. Throws std::runtime_error if this cuDNN cannot build it.
Plan named_plan(const PlanDevice& device, const Descriptor& graph, const std::string& name);

}  // namespace nearmetal::cuda
