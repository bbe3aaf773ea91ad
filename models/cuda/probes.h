// What a GPU and the paths to it do at best: launches, copies, matrix products.
#pragma once

#include <vector>

#include "models/probe.h"
#include "models/training_options.h"

namespace nearmetal::cuda {

/// Of this GPU, and of the links between all visible ones.
std::vector<Probe> gpu_probes(int gpu);

/// Of the current device. Copy within its memory; dense matrix product of 8192 x 8192.
Probe device_copy_probe();
Probe product_probe(Precision precision);

}  // namespace nearmetal::cuda
