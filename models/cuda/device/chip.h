// Facts about a GPU's chip from NVIDIA's documents: its peaks and the precisions it computes.
#pragma once

#include <map>
#include <string>

#include "models/training_options.h"

namespace nearmetal::cuda {

/// The data sheet's dense peaks in FLOP/s of the GPU with this name, as CUDA reports it ("NVIDIA
/// A100-SXM4-80GB MIG 1g.10gb"), for the part of it that has so many multiprocessors. Empty where
/// the data sheet is not known here; without the precisions for which the chip has no units.
std::map<Precision, double> peak_rates(const std::string& name, int multiprocessors);

/// Whether chips of this compute capability (75 for 7.5) have units for the precision.
bool has_units(Precision precision, int capability);

/// The compute capability of the GPU of that index.
int compute_capability(int gpu);

/// Throws NotSupported for a chip that no kernel here is compiled for, std::invalid_argument for a
/// precision that it has no units for. `name`: for the message.
void require_units(Precision precision, const std::string& name, int capability);

/// The same for the GPU of that index.
void require_units(Precision precision, int gpu);

}  // namespace nearmetal::cuda
