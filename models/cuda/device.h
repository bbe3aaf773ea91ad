// The GPU that a program runs on.
#pragma once

#include "models/program.h"

namespace nearmetal {

/// Throws std::runtime_error if there is no such GPU or its driver does not work.
DeviceInfo describe_gpu(int gpu);

/// Makes `gpu` the current device of this thread and returns its number of multiprocessors.
int use_gpu(int gpu);

}  // namespace nearmetal
