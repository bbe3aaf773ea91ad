// The launches of kernels that a plan of cuDNN's computes, once their tensors have addresses.
#pragma once

#include "models/cuda/compiler/flat_layout.h"
#include "models/cuda/compiler/kernel.h"
#include "models/cuda/compiler/resources.h"
#include "models/training_options.h"

namespace nearmetal::cuda {

/// The kernel launches the plan, which must outlive it, on the stream of the handle.
void run_plan(Kernel& kernel, const Plan& plan, const Descriptor& bound, cudnnHandle_t cudnn);

/// The same for a convolution, on its tensors and the parameters of `resources`.
void bind_convolution(Kernel& kernel, const ConvolutionPlan& plan, Precision precision,
                      const FlatLayout& layout, const StepResources& resources);

}  // namespace nearmetal::cuda
