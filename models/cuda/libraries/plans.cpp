#include "models/cuda/libraries/plans.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <stdexcept>

namespace nearmetal::cuda {
namespace {

Descriptor engine_of(const Descriptor& config) {
  return config.descriptors(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1).at(0);
}

std::string name_of(const Descriptor& config) {
  std::ostringstream name;
  name << "eng" << engine_of(config).integer(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  for (const Descriptor& choice :
       config.descriptors(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
                          CUDNN_KNOB_TYPE_COUNTS)) {
    const auto type = choice.values<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                                                            CUDNN_TYPE_KNOB_TYPE, 1);
    name << "_k" << static_cast<int>(type.at(0)) << '='
         << choice.integer(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
  }
  return name.str();
}

// The inverse of name_of().
Descriptor config_named(const PlanDevice& device, const Descriptor& graph,
                        const std::string& name) {
  std::istringstream text(name);
  std::string word;
  std::getline(text, word, '_');
  const auto number = [&](std::string_view digits) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), value);
    if (error != std::errc{} || end != digits.end()) {
      throw std::runtime_error("'" + name + "' does not name a cuDNN plan");
    }
    return value;
  };
  if (!word.starts_with("eng")) throw std::runtime_error("'" + name + "' is not a cuDNN plan");
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  if (device.properties) engine.set(CUDNN_ATTR_ENGINE_DEVICEPROP, *device.properties);
  engine.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph)
      .set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, number(std::string_view(word).substr(3)))
      .finalize();
  std::vector<Descriptor> choices;
  while (std::getline(text, word, '_')) {
    const size_t equals = word.find('=');
    if (word.empty() || word[0] != 'k' || equals == std::string::npos) {
      throw std::runtime_error("'" + name + "' does not name a cuDNN plan");
    }
    const auto type =
        static_cast<cudnnBackendKnobType_t>(number(std::string_view(word).substr(1, equals - 1)));
    choices.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR)
        .set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type)
        .set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, number(std::string_view(word).substr(equals + 1)))
        .finalize();
  }
  Descriptor config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  config.set(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  if (!choices.empty()) config.set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, choices);
  config.finalize();
  return config;
}

enum class Determinism { required, wanted };

bool acceptable(const Descriptor& config, const PlanRules& rules, Determinism determinism) {
  const Descriptor engine = engine_of(config);
  const auto behaviour = engine.values<cudnnBackendBehaviorNote_t>(
      CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT);
  const auto numerics = engine.values<cudnnBackendNumericalNote_t>(
      CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  const auto has = [](const auto& notes, auto note) {
    return std::ranges::find(notes, note) != notes.end();
  };
  if (!rules.run_time_compiled && has(behaviour, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION)) {
    return false;
  }
  if (determinism == Determinism::required &&
      has(numerics, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)) {
    return false;
  }
  if (has(numerics, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)) return false;
  return !rules.strict_fp32 || !(has(numerics, CUDNN_NUMERICAL_NOTE_TENSOR_CORE) ||
                                 has(numerics, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS));
}

std::vector<Descriptor> heuristic_configs(const PlanDevice& device, const Descriptor& graph,
                                          cudnnBackendHeurMode_t mode) {
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  if (device.properties) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *device.properties);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (!heuristics.try_finalize()) return {};  // no engine for this graph
  int64_t count = 0;
  if (cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                               CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count,
                               nullptr) != CUDNN_STATUS_SUCCESS) {
    return {};
  }
  return heuristics.descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                                count);
}

}  // namespace

cudnnDataType_t cudnn_type(Precision precision) {
  if (precision == Precision::fp16) return CUDNN_DATA_HALF;
  return precision == Precision::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

PlanDevice::PlanDevice(const std::string& properties_json)
    : properties(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR) {
  // cuDNN reads to the zero behind the text.
  properties
      ->set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
            static_cast<int64_t>(properties_json.size()) + 1, properties_json.c_str())
      .finalize();
}

Descriptor operation_graph(const PlanDevice& device, std::span<const Descriptor> operations) {
  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (device.handle != nullptr) {
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &device.handle);
  }
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations).finalize();
  return graph;
}

Plan::Plan(const PlanDevice& device, const Descriptor& graph, const Descriptor& config,
           std::string name)
    : graph_(graph), plan_(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR), name_(std::move(name)) {
  if (device.properties) {
    plan_.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *device.properties);
  } else {
    plan_.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &device.handle);
  }
  plan_.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config).finalize();
  workspace_bytes_ = plan_.integer(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
}

Descriptor Plan::bind(std::span<const Binding> bindings, void* workspace) const {
  std::vector<int64_t> ids;
  std::vector<void*> addresses;
  for (const auto& [id, address] : bindings) {
    ids.push_back(id);
    addresses.push_back(const_cast<void*>(address));  // the variant pack takes no other
  }
  const auto count = static_cast<int64_t>(ids.size());
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids.data())
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, addresses.data())
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace)
      .finalize();
  return pack;
}

std::vector<Plan> offered_plans(const PlanDevice& device, const Descriptor& graph,
                                const PlanRules& rules) {
  std::vector<Plan> plans;
  const auto collect = [&](cudnnBackendHeurMode_t mode, Determinism determinism) {
    for (const Descriptor& config : heuristic_configs(device, graph, mode)) {
      if (static_cast<int>(plans.size()) >= rules.limit) return;
      if (!acceptable(config, rules, determinism)) continue;
      try {
        Plan plan(device, graph, config, name_of(config));
        if (plan.workspace_bytes() <= rules.workspace_limit) plans.push_back(std::move(plan));
      } catch (const std::runtime_error&) {
        // The heuristics also name configurations that do not build; others are in the list.
      }
    }
  };
  collect(CUDNN_HEUR_MODE_A, Determinism::required);
  if (plans.empty()) collect(CUDNN_HEUR_MODE_FALLBACK, Determinism::required);
  // Strict fp32 has gradients of weights that only sum in any order.
  if (plans.empty()) collect(CUDNN_HEUR_MODE_A, Determinism::wanted);
  if (plans.empty()) collect(CUDNN_HEUR_MODE_FALLBACK, Determinism::wanted);
  return plans;
}

Plan named_plan(const PlanDevice& device, const Descriptor& graph, const std::string& name) {
  return Plan(device, graph, config_named(device, graph, name), name);
}

}  // namespace nearmetal::cuda
