// What the processors of this machine do at best: copies and matrix products, by all threads.
#pragma once

#include <functional>
#include <vector>

#include "models/probe.h"
#include "models/training_options.h"

namespace nearmetal::cpu {

std::vector<Probe> host_probes();

/// Copy within memory; dense matrix product of 2048 x 2048, in fp32 or bf16.
Probe host_copy_probe();
Probe host_product_probe(Precision precision);

/// `run` again and again by the monotonic clock, after once apart.
std::function<TimedRuns()> timed_again_and_again(std::function<void()> run);

}  // namespace nearmetal::cpu
