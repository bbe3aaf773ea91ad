// What a CpuProgram tells about its operations.
#include <chrono>
#include <map>

#include "models/cpu/cpu_program.h"
#include "models/cpu/probes.h"

namespace nearmetal::cpu {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_of(const std::function<void()>& run) {
  const Clock::time_point begin = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

std::vector<Plan> CpuProgram::plans() const {
  std::map<std::string, std::string> found;
  for (const Operation& operation : step_.operations) {
    if (!operation.key.empty()) found.emplace(operation.key, operation.implementation);
  }
  std::vector<Plan> plans;
  for (const auto& [key, implementation] : found) plans.push_back({key, implementation, 0, 0});
  return plans;
}

Profile CpuProgram::profile(int repeats) {
  use_threads();
  std::vector<std::vector<double>> seconds(step_.operations.size());
  for (int run = 0; run < repeats; ++run) {
    for (size_t i = 0; i < step_.operations.size(); ++i) {
      seconds[i].push_back(seconds_of(step_.operations[i].run));
    }
  }
  Profile profile;
  for (size_t i = 0; i < step_.operations.size(); ++i) {
    const Operation& operation = step_.operations[i];
    profile.entries.push_back({operation.name, operation.phase, operation.implementation,
                               median_of(seconds[i]), operation.flops, operation.bytes});
  }
  const Probe copy = host_copy_probe(), product = host_product_probe(options_.precision);
  profile.copy_bytes_per_second = copy.bytes / median_seconds(copy, 5);
  profile.matrix_flops_per_second = product.flops / median_seconds(product, 5);
  return profile;
}

std::vector<Probe> CpuProgram::probes() {
  use_threads();
  std::vector<Probe> probes;
  for (const Operation& operation : step_.operations) {
    probes.push_back({.name = step_probe_name(to_string(operation.phase), operation.name),
                      .work = operation.implementation,
                      .bytes = operation.bytes,
                      .flops = operation.flops,
                      .start = timed_again_and_again(operation.run)});
  }
  return probes;
}

}  // namespace nearmetal::cpu
