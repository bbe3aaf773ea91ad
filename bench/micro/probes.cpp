#include "bench/micro/probes.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "base/text_table.h"
#include "bench/run/attribute.h"
#include "bench/run/together.h"
#include "models/load_module.h"

namespace nearmetal {
namespace {

// Fixed work of one thread, about a millisecond of it: what a clock that changes, a busy neighbour
// or a hypervisor takes away shows in its slowest runs.
Probe cpu_quantum_probe() {
  constexpr int64_t length = 1'000'000;
  return {.name = "cpu/quantum",
          .work = "a million dependent multiplications by one thread; p99 shows what disturbs it",
          .start = []() -> TimedRuns {
            return [](int64_t runs) {
              const double begin = steady_seconds();
              volatile uint64_t value = 1;
              for (int64_t run = 0; run < runs; ++run) value = multiply_in_a_chain(value, length);
              return steady_seconds() - begin;
            };
          }};
}

}  // namespace

std::vector<Probe> find_probes(const PreparedDevice& device, World& world) {
  const int gpu = static_cast<int>(device.config.gpu);
  if (world.size() == 1) {
    std::vector<Probe> probes = device.backend.probes(gpu);
    probes.insert(probes.begin(), cpu_quantum_probe());
    return probes;
  }
  std::vector<Probe> probes = world.probes();
  if (device.config.device == Device::cuda) {
    Nccl& nccl = set_up_nccl(world);
    std::ranges::move(nccl.probes(new_nccl_group(world, nccl), world.rank(), world.size(), gpu),
                      std::back_inserter(probes));
  }
  return probes;
}

std::vector<Probe> find_step_probes(PreparedDevice& device, const Terminal& terminal) {
  const std::shared_ptr<Program> program = prepare_program(device, terminal);
  program->restart(start_parameters(device.config));
  std::vector<Probe> probes = program->probes();
  for (Probe& probe : probes) {
    probe.start = [program, start = std::move(probe.start)] { return start(); };
  }
  return probes;
}

std::vector<std::string> time_probes(const std::vector<Probe>& probes, const TimingOptions& options,
                                     TimingForm form, std::ostream& out) {
  void* entry = load_module("micro", "module of micro", timing_entry_name);
  std::vector<std::string> failures;
  reinterpret_cast<TimingEntry>(entry)(probes, options, form, out, column_limit(out), failures);
  return failures;
}

}  // namespace nearmetal
