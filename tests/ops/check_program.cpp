#include "tests/ops/check_program.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>

#include "models/graph.h"

namespace nearmetal {

double relative_error(std::span<const double> actual, std::span<const double> expected) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

// At 32 pixels and batch 6, ResNet-50 has about one ReLU within rounding of 0, so that some two of
// three batches do not count. With tf32 one value of a small VGG changes its sign so often that
// three batches in a row did not count on an H200.
constexpr uint64_t gradient_batches = 12;
constexpr double allowed_over_emulated = 4;
constexpr double allowed_of_scale = 0.25;
constexpr double allowed_holes = 0.01;
constexpr double update_tolerance = 1e-6;  // a few roundings of fp32, 2^-24 each

// |a - 1| for the `a` with which a x expected is nearest to actual.
double scale_error(std::span<const double> actual, std::span<const double> expected) {
  double product = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    product += actual[i] * expected[i];
    norm += expected[i] * expected[i];
  }
  if (!std::isfinite(product)) return std::numeric_limits<double>::infinity();
  return product == norm ? 0 : std::abs(product / norm - 1);
}

struct Difference {
  std::string what;
  bool of_gradient = false;
  double relative_error = 0;
  std::optional<double> bound{};  // of any rounding
  bool in_every_batch = true;     // also where rounding switched a ReLU
};

// A tenth of the root of the mean square.
double large_of(std::span<const double> values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return 0.1 * std::sqrt(squares / static_cast<double>(values.size()));
}

// The share that is exactly 0, of values that should be large.
double share_of_holes(std::span<const double> actual, std::span<const double> expected) {
  const double large = large_of(expected);
  int64_t all = 0, holes = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::abs(expected[i]) <= large) continue;
    ++all;
    holes += actual[i] == 0 ? 1 : 0;
  }
  return all == 0 ? 0 : static_cast<double>(holes) / static_cast<double>(all);
}

}  // namespace

// Nodes whose bias takes nothing along: those that a batch norm alone reads, and, as the loss of a
// span is a softmax over tokens, of all of which a bias moves the logits alike, the linear layer
// before it and a layer norm before that.
static std::vector<int> nodes_of_cancelled_biases(const Graph& graph) {
  std::vector<int> nodes;
  for (const Node& node : graph.nodes()) {
    if (node.op == OpKind::batch_norm) nodes.push_back(node.inputs[0]);
    if (node.op != OpKind::span_loss) continue;
    nodes.push_back(node.inputs[0]);
    const int before = graph.node(node.inputs[0]).inputs[0];
    if (graph.is(before, OpKind::layer_norm)) nodes.push_back(before);
  }
  std::erase_if(nodes, [&](int node) { return graph.consumers(node).size() > 1; });
  return nodes;
}

const Parameter* weight_of_cancelled_bias(const Graph& graph, const Parameter& parameter) {
  for (const int node : nodes_of_cancelled_biases(graph)) {
    const std::vector<int>& own = graph.node(node).parameters;
    if (own.size() < 2 || &graph.parameters()[own[1]] != &parameter) continue;
    return &graph.parameters()[own[0]];
  }
  return nullptr;
}

namespace {

double norm_of(const std::vector<double>& gradients, const Parameter& parameter) {
  const auto first = gradients.begin() + parameter.offset;
  return std::sqrt(std::inner_product(first, first + parameter.size, first, 0.0));
}

// As many entries as any other parameter has.
void add_cancelled(std::vector<Difference>& found, const Parameter& bias, const Parameter& weight,
                   const ReferenceStep& actual, const ReferenceStep& expected) {
  found.push_back({"what is left of the gradient of " + bias.name, true,
                   norm_of(actual.gradients, bias) / norm_of(expected.gradients, weight)});
  found.push_back({"scale of the gradient of " + bias.name, true, 0, allowed_of_scale});
}

std::vector<Difference> differences(const Graph& graph, const ReferenceStep& actual,
                                    const ReferenceStep& expected) {
  std::vector<Difference> found;
  const auto compare = [&](const std::string& what, bool of_gradient,
                           const std::vector<double>& left, const std::vector<double>& right,
                           int64_t offset, int64_t size) {
    found.push_back({what, of_gradient,
                     relative_error(std::span(left).subspan(offset, size),
                                    std::span(right).subspan(offset, size))});
  };
  compare("loss", false, {actual.loss}, {expected.loss}, 0, 1);
  int64_t offset = 0;
  for (const Node& node : graph.nodes()) {
    if (node.op != OpKind::batch_norm) continue;
    for (const char* what : {"running mean of ", "running variance of "}) {
      compare(what + node.name, false, actual.running_statistics, expected.running_statistics,
              offset, node.shape.channels);
      offset += node.shape.channels;
    }
  }
  compare("gradient norm", true, {actual.gradient_norm}, {expected.gradient_norm}, 0, 1);
  for (const Parameter& parameter : graph.parameters()) {
    if (const Parameter* weight = weight_of_cancelled_bias(graph, parameter)) {
      add_cancelled(found, parameter, *weight, actual, expected);
      continue;
    }
    compare("gradient of " + parameter.name, true, actual.gradients, expected.gradients,
            parameter.offset, parameter.size);
    const auto own = [&](const std::vector<double>& gradients) {
      return std::span(gradients).subspan(parameter.offset, parameter.size);
    };
    found.push_back({"scale of the gradient of " + parameter.name, true,
                     scale_error(own(actual.gradients), own(expected.gradients)),
                     allowed_of_scale});
  }
  for (const Parameter& parameter : graph.parameters()) {
    const auto own = [&](const std::vector<double>& gradients) {
      return std::span(gradients).subspan(parameter.offset, parameter.size);
    };
    const bool is_cancelled = weight_of_cancelled_bias(graph, parameter) != nullptr;
    found.push_back(
        {"share of zeros in the gradient of " + parameter.name, true,
         is_cancelled ? 0 : share_of_holes(own(actual.gradients), own(expected.gradients)),
         allowed_holes, false});
  }
  return found;
}

double unit_roundoff(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return 0x1p-24;
    case Precision::bf16:
      return 0x1p-8;
    case Precision::tf32:
    case Precision::fp16:
      return 0x1p-11;
  }
  throw std::logic_error("unknown Precision");
}

// The error that a precision may cost, in the order of differences(); derived in the header.
std::vector<double> rounding_bounds(const Graph& graph, ReferenceInputs inputs,
                                    const ReferenceStep& exact, Precision precision) {
  inputs.rounding = precision;
  const ReferenceStep emulated = reference_step(graph, inputs);
  const auto products = std::ranges::count_if(
      graph.nodes(), [&](const Node& node) { return graph.forward_flops(node) > 0; });
  const double least =
      unit_roundoff(precision) / std::sqrt(3.0) * std::sqrt(2.0 * static_cast<double>(products));
  std::vector<double> bounds;
  for (const Difference& difference : differences(graph, emulated, exact)) {
    const double implied = allowed_over_emulated * std::max(difference.relative_error, least);
    bounds.push_back(difference.bound.value_or(implied));
  }
  return bounds;
}

// Lines for what exceeds its bound, separately for the forward pass and the gradients.
struct Excess {
  std::string forward, gradients;
};

Excess excess(const std::vector<Difference>& found, const std::vector<double>& bounds) {
  Excess excess;
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i].relative_error <= bounds[i]) continue;
    (found[i].of_gradient ? excess.gradients : excess.forward) +=
        "\n  " + found[i].what + ": relative error " + std::to_string(found[i].relative_error) +
        ", allowed " + std::to_string(bounds[i]);
  }
  return excess;
}

// What even a batch with a ReLU that rounding switched keeps to: gradients of about the right size
// and direction. On an H200 the scale of one was 0.37 off; noise is off by 1.
std::string gross_excess(const std::vector<Difference>& found) {
  constexpr double gross_error = 1, gross_scale = 0.5;
  std::string text;
  for (const Difference& one : found) {
    const double bound = one.bound ? gross_scale : gross_error;
    if (!one.of_gradient || !one.in_every_batch || one.relative_error <= bound) continue;
    text += "\n  " + one.what + ": error " + std::to_string(one.relative_error) +
            ", of any batch at most " + std::to_string(bound);
  }
  return text;
}

// With every twentieth value 0.
std::vector<double> with_holes(std::span<const double> values) {
  std::vector<double> found(values.begin(), values.end());
  for (size_t i = 0; i < found.size(); i += 20) found[i] = 0;
  return found;
}

// Whether the bounds refuse the gradient of any one parameter at half its size, and that of a
// weight of which a twentieth is missing.
AssertionResult refuses_broken_gradients(const Graph& graph, const ReferenceStep& actual,
                                         const ReferenceStep& expected,
                                         std::span<const double> bounds) {
  const auto& parameters = graph.parameters();
  const auto of_all = bounds.last(3 * parameters.size());
  const auto of_gradients = of_all.first(2 * parameters.size());  // error, then scale
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (weight_of_cancelled_bias(graph, parameters[i]) != nullptr) continue;
    const auto own = [&](const std::vector<double>& gradients) {
      return std::span(gradients).subspan(parameters[i].offset, parameters[i].size);
    };
    std::vector<double> half(own(actual.gradients).begin(), own(actual.gradients).end());
    for (double& value : half) value /= 2;
    const auto whole = own(expected.gradients);
    if (relative_error(half, whole) <= of_gradients[2 * i] &&
        scale_error(half, whole) <= of_gradients[2 * i + 1]) {
      return AssertionFailure() << "half the gradient of " << parameters[i].name << " would pass";
    }
    constexpr int64_t fewest_to_judge = 400;
    const double large = large_of(whole);
    if (std::ranges::count_if(whole, [&](double v) { return std::abs(v) > large; }) >=
            fewest_to_judge &&
        share_of_holes(with_holes(own(actual.gradients)), whole) <= of_all.last(1).front()) {
      return AssertionFailure() << "the gradient of " << parameters[i].name
                                << " without a twentieth of it would pass";
    }
  }
  return AssertionSuccess();
}

std::vector<float> trained(Program& program, std::span<const float> parameters, int steps) {
  program.restart(parameters);
  program.use_synthetic_batch();
  for (int step = 0; step < steps; ++step) {
    program.enqueue_step();
    program.wait_step();
  }
  return program.parameters();
}

}  // namespace

AssertionResult check_update(const Graph& graph, const OptimizerOptions& options, int64_t updates,
                             const ReferenceStep& before, const ReferenceStep& after) {
  double squares = 0;
  for (const double gradient : after.gradients) squares += gradient * gradient;
  if (std::abs(after.gradient_norm / std::sqrt(squares) - 1) > 1e-5) {
    return AssertionFailure() << "gradient norm " << after.gradient_norm << ", but the gradients' "
                              << std::sqrt(squares);
  }
  ReferenceStep wanted = before;
  wanted.gradients = after.gradients;
  update_parameters(graph, options, updates, wanted);
  if (wanted.second_moments.size() != after.second_moments.size()) {
    return AssertionFailure() << after.second_moments.size() << " second moments";
  }
  for (const Parameter& parameter : graph.parameters()) {
    // Where new and old terms cancel, rounding is that of the terms.
    const auto error = [&](auto values) {
      const std::vector<double>&actual = after.*values, &expected = wanted.*values;
      if (expected.empty()) return 0.0;
      const double apart =
          relative_error(std::span(actual).subspan(parameter.offset, parameter.size),
                         std::span(expected).subspan(parameter.offset, parameter.size));
      const double now = norm_of(expected, parameter);
      const double old = (before.*values).empty() ? 0 : norm_of(before.*values, parameter);
      return now > 0 && old > now ? apart * now / old : apart;
    };
    const double worst =
        std::max({error(&ReferenceStep::momentum), error(&ReferenceStep::second_moments),
                  error(&ReferenceStep::parameters)});
    if (worst > update_tolerance) {
      return AssertionFailure() << "update " << updates << " of " << parameter.name
                                << ": relative error " << worst;
    }
  }
  return AssertionSuccess();
}

ReferenceStep run_step(Program& program) {
  const auto widened = [](const std::vector<float>& values) {
    return std::vector<double>(values.begin(), values.end());
  };
  program.enqueue_step();
  const StepRecord record = program.wait_step();
  return {record.loss,
          record.gradient_norm,
          widened(program.gradients()),
          widened(program.running_statistics()),
          widened(program.parameters()),
          widened(program.momentum()),
          widened(program.second_moments())};
}

AssertionResult check_against_reference(Backend& backend, const Graph& graph,
                                        const ProgramOptions& options, double tolerance,
                                        int trained_steps) {
  const std::unique_ptr<Program> program = backend.prepare(graph, options);
  const bool fp32 = options.precision == Precision::fp32;
  std::string gradients;
  for (uint64_t seed = 1; seed <= gradient_batches; ++seed) {
    RandomCase random = random_case(graph, options.batch_size, seed);
    if (trained_steps > 0) random.parameters = trained(*program, random.parameters, trained_steps);
    program->restart(random.parameters);
    random.give_to(*program);
    const ReferenceStep actual = run_step(*program);
    const ReferenceStep expected = reference_step(graph, random.inputs(options));
    const std::vector<Difference> found = differences(graph, actual, expected);
    const std::vector<double> bounds =
        fp32 ? std::vector<double>(found.size(), tolerance)
             : rounding_bounds(graph, random.inputs(options), expected, options.precision);
    const Excess excess = nearmetal::excess(found, bounds);
    if (!excess.forward.empty()) return AssertionFailure() << excess.forward;
    ReferenceStep start;
    start.parameters.assign(random.parameters.begin(), random.parameters.end());
    AssertionResult update = check_update(graph, options.optimizer, 1, start, actual);
    if (update) update = check_update(graph, options.optimizer, 2, actual, run_step(*program));
    if (!update) return update;
    if (excess.gradients.empty()) return refuses_broken_gradients(graph, actual, expected, bounds);
    const std::string gross = gross_excess(found);
    if (!gross.empty()) return AssertionFailure() << "batch of seed " << seed << gross;
    program->restart(random.parameters);
    random.give_to(*program);
    if (run_step(*program).gradients != actual.gradients) {
      return AssertionFailure() << "the batch of seed " << seed << " has other gradients twice";
    }
    gradients += "\nbatch of seed " + std::to_string(seed) + ":" + excess.gradients;
  }
  return AssertionFailure() << gradients;
}

AssertionResult check_same_step(const Graph& graph, const ReferenceStep& actual,
                                const ReferenceStep& expected, double tolerance) {
  const std::vector<Difference> found = differences(graph, actual, expected);
  const Excess excess = nearmetal::excess(found, std::vector<double>(found.size(), tolerance));
  if (excess.forward.empty() && excess.gradients.empty()) return AssertionSuccess();
  return AssertionFailure() << excess.forward << excess.gradients;
}

}  // namespace nearmetal
