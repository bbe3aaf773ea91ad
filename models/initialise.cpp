#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include "models/graph.h"
#include "models/synthetic.h"

namespace nearmetal {
namespace {

// Values of a parameter that one thread draws at a time.
struct Part {
  size_t parameter;
  int64_t begin, end;
};

// Parts of equal size, as a matrix has a thousand times the values of a bias.
std::vector<Part> parts_of(const std::vector<Parameter>& parameters) {
  constexpr int64_t most_values = 1 << 18;
  std::vector<Part> parts;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const int64_t size = parameters[i].size;
    for (int64_t begin = 0; begin < size; begin += most_values) {
      parts.push_back({i, begin, std::min(size, begin + most_values)});
    }
  }
  return parts;
}

void fill(const Parameter& parameter, const Part& part, uint64_t seed, bool zero_last_scale,
          float* values) {
  const auto generate = [&](auto value_at) {
    for (int64_t i = part.begin; i < part.end; ++i) values[i] = value_at(i);
  };
  const auto fan = static_cast<double>(parameter.fan);
  const auto normal = [&](float deviation) {
    generate([&](int64_t i) { return deviation * normal_at(seed, i); });
  };
  const auto uniform = [&](double bound) {
    generate([&](int64_t i) { return static_cast<float>(bound * (2 * uniform_at(seed, i) - 1)); });
  };
  switch (parameter.initialiser) {
    case Initialiser::he_normal:
      return normal(std::sqrt(2.0f / static_cast<float>(parameter.fan)));
    case Initialiser::lecun_normal:
      return normal(std::sqrt(1.0f / static_cast<float>(parameter.fan)));
    case Initialiser::normal_0_02:
      return normal(0.02f);
    case Initialiser::normal_1e_6:
      return normal(1e-6f);
    case Initialiser::uniform_fan_in:
      return uniform(0.5 / std::sqrt(fan));
    case Initialiser::uniform_fan_in_whole:
      return uniform(1 / std::sqrt(fan));
    case Initialiser::xavier_uniform:
      return uniform(std::sqrt(6 / fan));
    case Initialiser::one: {
      const bool zero = zero_last_scale && parameter.scales_residual_branch;
      return generate([&](int64_t) { return zero ? 0.0f : 1.0f; });
    }
    case Initialiser::zero:
      return generate([](int64_t) { return 0.0f; });
  }
}

}  // namespace

std::vector<float> initial_parameters(const Graph& graph, uint64_t seed, bool zero_last_scale) {
  std::vector<float> values(graph.parameter_count());
  const auto& parameters = graph.parameters();
  const std::vector<Part> parts = parts_of(parameters);
  std::atomic<size_t> next = 0;
  const unsigned workers = std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
  std::vector<std::jthread> threads;
  for (unsigned worker = 0; worker < workers; ++worker) {
    threads.emplace_back([&] {
      for (size_t i = next++; i < parts.size(); i = next++) {
        const Parameter& parameter = parameters[parts[i].parameter];
        fill(parameter, parts[i], substream(seed, parts[i].parameter), zero_last_scale,
             values.data() + parameter.offset);
      }
    });
  }
  threads.clear();  // joins
  return values;
}

}  // namespace nearmetal
