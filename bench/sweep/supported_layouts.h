// What this machine supports of the layouts that are asked for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/sweep/hosts_found.h"
#include "comm/launch/launch_plan.h"
#include "comm/layout/gpu_shares.h"

namespace nearmetal {

/// The address of the first rank that is not on this machine.
std::optional<std::string> address_elsewhere(const Placement& placement);

struct SupportedLayouts {
  std::vector<Layout> layouts;
  std::vector<UnsupportedArm> left_out;  // with the reason
};

/// Leaves out those of --fractions (`fractions`) and those that name no GPUs (Layout::portable)
/// whose sharing mode their host does not have, and those with a job on GPUs of several models.
/// Modes of --fractions that have no layout at all are left out by their name. Throws NotSupported
/// where none is left.
SupportedLayouts supported_layouts(const std::vector<Layout>& layouts,
                                   const std::vector<Host>& hosts,
                                   const std::optional<Fractions>& fractions);

/// Throws what cannot work, with its place: NotSupported, with what an administrator would run,
/// where jobs are to be on MIG devices of this machine that are not there, or are others than the
/// file lists; where they are to share otherwise a GPU of it that is divided; where a configuration
/// of mig-parted is expected that its GPUs do not have (as `nvidia-mig-parted assert`); and where a
/// layout needs MPS and there can be none. std::invalid_argument where it needs MPS on another
/// machine.
void require_shares(const LaunchPlan& plan);

/// Throws NotSupported where a layout needs mpirun and it is not on PATH.
void require_mpirun(const LaunchPlan& plan);

}  // namespace nearmetal
