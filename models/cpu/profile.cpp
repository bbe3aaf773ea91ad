// What a CpuProgram tells about its operations.
#include <algorithm>
#include <chrono>
#include <map>

#include "models/cpu/cpu_program.h"

namespace nearmetal {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_of(const std::function<void()>& run) {
  const Clock::time_point begin = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median_seconds(const std::function<void()>& run, int repeats) {
  run();
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) seconds.push_back(seconds_of(run));
  const auto middle = seconds.begin() + repeats / 2;
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

double measured_copy_bytes_per_second() {
  const int64_t bytes = int64_t{256} << 20;
  const HostMemory from = allocate_host(bytes), to = allocate_host(bytes);
  const double seconds = median_seconds([&] { parallel_copy(to.get(), from.get(), bytes); }, 5);
  return 2 * static_cast<double>(bytes) / seconds;
}

double measured_matrix_flops_per_second(const dnnl::engine& engine, dnnl::stream stream,
                                        Precision precision) {
  using dnnl::memory;
  const int64_t n = 2048;
  const auto type = precision == Precision::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
  const memory::desc desc({n, n}, type, memory::format_tag::ab);
  const int64_t bytes = static_cast<int64_t>(desc.get_size());
  const HostMemory a = allocate_host(bytes), b = allocate_host(bytes), c = allocate_host(bytes);
  const dnnl::matmul product({{desc, desc, desc}, engine});
  const std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, {desc, engine, a.get()}},
                                                  {DNNL_ARG_WEIGHTS, {desc, engine, b.get()}},
                                                  {DNNL_ARG_DST, {desc, engine, c.get()}}};
  const double seconds = median_seconds([&] { product.execute(stream, arguments); }, 5);
  return 2.0 * n * n * n / seconds;
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
    const auto middle = seconds[i].begin() + repeats / 2;
    std::nth_element(seconds[i].begin(), middle, seconds[i].end());
    profile.entries.push_back({operation.name, operation.phase, operation.implementation, *middle,
                               operation.flops, operation.bytes});
  }
  profile.copy_bytes_per_second = measured_copy_bytes_per_second();
  profile.matrix_flops_per_second =
      measured_matrix_flops_per_second(engine_, stream_, options_.precision);
  return profile;
}

}  // namespace nearmetal
