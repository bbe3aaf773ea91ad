// Values in another type.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "models/training_options.h"

namespace nearmetal::cuda {

/// out[i] = in[i], each as `Precision` is stored; rounded to nearest even, infinity beyond what the
/// type holds. `elements` is a multiple of 4, addresses are multiples of 16 bytes. As many bytes as
/// both arrays have are the floor.
void launch_convert(Precision from, const void* in, Precision to, void* out, int64_t elements,
                    cudaStream_t stream);

}  // namespace nearmetal::cuda
