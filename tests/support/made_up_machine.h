// Runs on machines whose every layer is as fast as a test says.
#pragma once

#include <string>

#include "reports/attribution/attribution.h"
#include "tests/support/sample_report.h"

namespace nearmetal {

/// As of one H200 that trains ResNet-50 at batch 256: half of its floors are bound by memory.
struct Machine {
  Device device = Device::cuda;
  double step_seconds = 0.024;
  double floor_seconds = 0.012;
  double sm_hertz = 1.9e9;
  double product_seconds = 1.4e-3;
  double copy_seconds = 5e-4;
  double quantum_seconds = 1.3e-4;  // the median
  double taken_away = 1;            // mean of the quanta / median
  double queue_seconds = 3e-4;
  double h2d_seconds = 5e-3;  // of 256 MiB
  double pageable_seconds = 4e-2;
  double input_bytes = 0;
  bool input_pageable = false;
  LaunchMode launch = LaunchMode::graph;
  double exposed_seconds = 0;  // 0: one rank
  double sums_seconds = 1e-3;
  double p2p_seconds = 8e-4;
  double steal_share = 0;
};

inline ProbeTime made_up_time(const std::string& name, double seconds, double bytes = 0,
                              double flops = 0) {
  return {name, "made up", bytes, flops, 10, seconds, seconds, seconds};
}

inline Run run_on(const Machine& machine) {
  constexpr double mebibytes = 1 << 20;
  Run run = sample_run();
  run.warnings.clear();
  run.device = machine.device;
  run.window = TimedWindow{
      .first_step = 2, .steps = 100, .samples = 25600, .seconds = 100 * machine.step_seconds};
  run.throughput = 256 / machine.step_seconds;
  Rank& rank = run.ranks[0];
  rank.monitoring->reasons.clear();
  rank.monitoring->verdict = MonitorVerdict::clean;
  rank.monitoring->not_monitored.clear();
  rank.monitoring->series = {
      {"sm_clock_hertz", machine.sm_hertz, machine.sm_hertz, machine.sm_hertz, {}},
      {"cpu_steal_share", machine.steal_share, machine.steal_share, machine.steal_share, {}}};
  ProbeTime quanta = made_up_time(quantum_probe, machine.quantum_seconds);
  quanta.mean_seconds = machine.quantum_seconds * machine.taken_away;
  const double mebibytes_256 = 256 * mebibytes;
  rank.probes = RankProbes{
      .needs = {250, machine.input_bytes, machine.input_pageable, machine.launch,
                machine.floor_seconds / 2, machine.floor_seconds / 2},
      .probes = {quanta, made_up_time(memory_probe, machine.copy_seconds, 2048 * mebibytes),
                 made_up_time("product/fp16", machine.product_seconds, 0, 1.1e12)}};
  if (machine.device == Device::cuda) {
    for (const ProbeTime& probe :
         {made_up_time(queue_probe, machine.queue_seconds), made_up_time("launch/kernel", 2e-6),
          made_up_time(input_probe, machine.h2d_seconds, mebibytes_256),
          made_up_time(pageable_probe, machine.pageable_seconds, mebibytes_256),
          made_up_time("p2p/next", machine.p2p_seconds, mebibytes_256)}) {
      rank.probes->probes.push_back(probe);
    }
  }
  if (machine.exposed_seconds > 0) {
    run.world_size = 2;
    Communication& communication = run.communication.emplace();
    communication.library = "nccl 2.28";
    communication.bytes_per_step = 51114064;
    communication.buckets_seconds = machine.sums_seconds;
    communication.exposed_seconds_per_step = machine.exposed_seconds;
    run.ranks.push_back(rank);
    run.ranks[1].rank = 1;
  }
  return run;
}

inline const LayerShare& layer_in(const Explanation& explanation, Layer layer) {
  for (const LayerShare& share : explanation.layers) {
    if (share.layer == layer) return share;
  }
  throw std::logic_error("a layer is missing");
}

}  // namespace nearmetal
