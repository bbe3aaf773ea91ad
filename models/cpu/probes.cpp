#include "models/cpu/probes.h"

#include <chrono>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "models/cpu/host.h"
#include "models/cpu/host_memory.h"

namespace nearmetal::cpu {

std::function<TimedRuns()> timed_again_and_again(std::function<void()> run) {
  return [run = std::move(run)]() -> TimedRuns {
    run();
    return [run](int64_t runs) {
      using Clock = std::chrono::steady_clock;
      const Clock::time_point begin = Clock::now();
      for (int64_t i = 0; i < runs; ++i) run();
      return std::chrono::duration<double>(Clock::now() - begin).count();
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

Probe host_product_probe(Precision precision) {
  using dnnl::memory;
  constexpr int64_t n = 2048;
  return {.name = std::string("product/") + to_string(precision),
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
            const dnnl::matmul product({{desc, desc, desc}, engine});
            const std::unordered_map<int, memory> arguments{
                {DNNL_ARG_SRC, {desc, engine, a.get()}},
                {DNNL_ARG_WEIGHTS, {desc, engine, b.get()}},
                {DNNL_ARG_DST, {desc, engine, c.get()}}};
            return timed_again_and_again(
                [a, b, c, stream, product, arguments] { product.execute(stream, arguments); })();
          }};
}

std::vector<Probe> host_probes() {
  std::vector<Probe> probes{host_copy_probe(), host_product_probe(Precision::fp32)};
  if (trains_bf16()) probes.push_back(host_product_probe(Precision::bf16));
  return probes;
}

}  // namespace nearmetal::cpu
