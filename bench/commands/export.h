// `nearmetal export`: parameters, and what steps of training make of them, as a safetensors file.
#pragma once

#include "bench/cli/command_line.h"
#include "bench/cli/terminal.h"
#include "bench/commands/run.h"
#include "models/exit_code.h"

namespace nearmetal {

/// Without steps the initial state, which needs no device: a state_dict of torchvision's model.
/// With steps also `images` and `labels` (those of rank 0's first step), `loss` and `gradient_norm`
/// of each step, `gradients.STEP.NAME`, and the state afterwards as `trained.NAME`. The settings
/// are JSON in the metadata.
ExitCode cmd_export(const CommandLine& line, const Terminal& terminal,
                    const BackendLoader& load = load_backend);

}  // namespace nearmetal
