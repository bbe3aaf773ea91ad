// The GPU that a program runs on.
#pragma once

#include "models/program.h"

namespace nearmetal {

/// Throws std::runtime_error if there is no such GPU or its driver does not work.
DeviceInfo describe_gpu(int gpu);

/// Makes `gpu` the current device of this thread and returns its number of multiprocessors.
int use_gpu(int gpu);

/// Device-to-device copy (read plus write) and dense matrix products at this precision, as this GPU
/// reaches them now: the ceilings that a profile is held against.
double measured_copy_bytes_per_second();
double measured_matrix_flops_per_second(Precision precision);

}  // namespace nearmetal
