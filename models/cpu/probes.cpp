// The probes of what the processors do at best, and of the operations of a CpuProgram.
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "models/cpu/cpu_program.h"
#include "models/cpu/host.h"
#include "models/cpu/onednn.h"

namespace nearmetal::cpu {
namespace {

double seconds_of(const std::function<void()>& run) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// `run` again and again, after once apart.
std::function<TimedRuns()> timed_again_and_again(std::function<void()> run) {
  return [run = std::move(run)]() -> TimedRuns {
    run();
    return [run](int64_t runs) {
      return seconds_of([&] {
        for (int64_t i = 0; i < runs; ++i) run();
      });
    };
  };
}

Probe host_copy_probe() {
  constexpr int64_t bytes = int64_t{256} << 20;
  return {
      .name = "copy/device",
      .work = "256 MiB from memory to memory by all threads",
      .bytes = 2 * static_cast<double>(bytes),
      .start = [] {
        const std::shared_ptr<void> from = allocate_host(bytes), to = allocate_host(bytes);
        return timed_again_and_again([from, to] { parallel_copy(to.get(), from.get(), bytes); })();
      }};
}

// A dense product, in fp32 or bf16.
Probe host_product_probe(Precision precision) {
  using dnnl::memory;
  constexpr int64_t n = 2048;
  return {
      .name = std::string("product/") + to_string(precision),
      .work = "the product of two matrices of 2048 x 2048 by oneDNN",
      .flops = 2.0 * n * n * n,
      .start = [precision] {
        const auto type =
            precision == Precision::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
        const memory::desc desc({n, n}, type, memory::format_tag::ab);
        const auto bytes = static_cast<int64_t>(desc.get_size());
        const std::shared_ptr<void> a = allocate_host(bytes), b = allocate_host(bytes),
                                    c = allocate_host(bytes);
        const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
        const dnnl::stream stream(engine);
        const dnnl::primitive_attr attributes;
        const dnnl::matmul product(describe<dnnl::matmul>({engine, attributes}, desc, desc, desc));
        const std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, {desc, engine, a.get()}},
                                                        {DNNL_ARG_WEIGHTS, {desc, engine, b.get()}},
                                                        {DNNL_ARG_DST, {desc, engine, c.get()}}};
        return timed_again_and_again(
            [a, b, c, stream, product, arguments] { product.execute(stream, arguments); })();
      }};
}

}  // namespace

std::vector<Probe> host_probes() {
  std::vector<Probe> probes{host_copy_probe(), host_product_probe(Precision::fp32)};
  if (trains_bf16()) probes.push_back(host_product_probe(Precision::bf16));
  return probes;
}

std::vector<KernelChoice> CpuProgram::kernel_choices() const {
  std::map<std::string, std::string> found;
  for (const Operation& operation : step_.operations) {
    if (!operation.key.empty()) found.emplace(operation.key, operation.implementation);
  }
  std::vector<KernelChoice> choices;
  for (const auto& [key, implementation] : found) choices.push_back({key, implementation, 0, 0});
  return choices;
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
