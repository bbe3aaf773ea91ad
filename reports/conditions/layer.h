// The layers that a step's time is made of, and the sides that are compared by them.
#pragma once

#include <array>
#include <vector>

#include "reports/document/types.h"

namespace nearmetal {

/// clock: of the GPU's multiprocessors, or of the CPU that computes; compute: matrix products;
/// memory: of the device; cpu: time that the CPUs do not give to this process; launch: the path on
/// which kernels are queued; input: images on their way to the device; communication: gradients.
enum class Layer { clock, compute, memory, cpu, launch, input, communication };
constexpr auto names_of(Layer) {
  return std::array{"clock", "compute", "memory", "cpu", "launch", "input", "communication"};
}

/// One side of a comparison: complete runs of one arm, and the machines they ran on.
struct ExplainedSide {
  std::vector<const Run*> runs;
  std::vector<const Environment*> environments;
};

}  // namespace nearmetal
