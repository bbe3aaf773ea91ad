// `nearmetal export`: parameters, and what steps of training make of them, as a safetensors file.
#pragma once

#include "bench/cli/command.h"

namespace nearmetal {

/// Without steps the initial state, which needs no device: a state_dict of torchvision's model.
/// With steps also `images` and `labels` (those of rank 0's first step), `loss` and `gradient_norm`
/// of each step, `gradients.STEP.NAME`, and the state afterwards as `trained.NAME`. The settings
/// are JSON in the metadata.
Command export_command();

}  // namespace nearmetal
