#include "bench/micro/find_probes.h"

#include <chrono>
#include <cstdint>

#include "bench/run/chain.h"
#include "bench/run/gpu_ranks.h"
#include "bench/run/plan_source.h"
#include "bench/run/rank_run.h"
#include "models/initialise.h"

namespace nearmetal {
namespace {

void append(std::vector<Probe>& all, std::vector<Probe> more) {
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

std::vector<Probe> nccl_probes(const ProbeSource& source) {
  Nccl& nccl = set_up_nccl(source.world);
  return nccl.probes(new_nccl_group(source.world, nccl), source.world.rank(), source.world.size(),
                     static_cast<int>(source.config.gpu));
}

}  // namespace

Probe cpu_quantum_probe() {
  constexpr int64_t length = 1'000'000;
  return {.name = "cpu/quantum",
          .work = "a million dependent multiplications by one thread; p99 shows what disturbs it",
          .start = []() -> TimedRuns {
            return [](int64_t runs) {
              using Clock = std::chrono::steady_clock;
              const Clock::time_point begin = Clock::now();
              volatile uint64_t value = 1;
              for (int64_t run = 0; run < runs; ++run) value = multiply_in_a_chain(value, length);
              return std::chrono::duration<double>(Clock::now() - begin).count();
            };
          }};
}

std::vector<Probe> find_probes(const ProbeSource& source) {
  std::vector<Probe> probes;
  if (source.world.size() > 1) {
    append(probes, source.world.probes());
    if (source.config.device == Device::cuda) append(probes, nccl_probes(source));
    return probes;
  }
  probes.push_back(cpu_quantum_probe());
  append(probes, source.backend.probes(static_cast<int>(source.config.gpu)));
  return probes;
}

std::vector<Probe> find_step_probes(const ProbeSource& source, std::vector<Warning>& warnings) {
  RunConfig config = source.config;
  const PlanSource plans = find_plans(config, source.device, warnings);
  const std::shared_ptr<Program> program =
      source.backend.prepare(source.graph, program_options(config, plans, 0));
  keep_plans(plans, program->plans(), warnings);
  program->restart(initial_parameters(source.graph, static_cast<uint64_t>(source.config.seed),
                                      source.config.zero_init));
  std::vector<Probe> probes = program->probes();
  for (Probe& probe : probes) {
    probe.start = [program, start = std::move(probe.start)] { return start(); };
  }
  return probes;
}

}  // namespace nearmetal
