// The parts of a diagnosis. Each adds what it finds, also that all is well.
#pragma once

#include "bench/doctor/diagnose.h"

namespace nearmetal {

/// Driver, libraries, backends and MPI.
void add_software_findings(const Checkup& checkup, std::vector<Finding>& findings);

/// Of one GPU. `name` says which in the text.
void add_gpu_findings(const Gpu& gpu, const GpuNow& now, const std::string& name,
                      std::vector<Finding>& findings);

/// Of the paths between GPUs.
void add_peer_findings(const std::vector<Gpu>& gpus, std::vector<Finding>& findings);

/// CPUs, memory, limits, network, files and clock.
void add_system_findings(const Checkup& checkup, std::vector<Finding>& findings);

}  // namespace nearmetal
