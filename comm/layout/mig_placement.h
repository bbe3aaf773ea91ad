// The MIG devices that the jobs of a layout are given. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "comm/layout/layout.h"

namespace nearmetal {

/// The devices by job: those of its ranks, in their order.
using MigTaken = std::vector<std::vector<MigDevice>>;

/// Gives each rank of jobs that share by MIG a device of its own on its GPU: first what is asked
/// for by its UUID, then by profile, then any. Jobs that share otherwise get none. An instance that
/// is named on a host of which nothing is known is taken to be there: its rank finds out.
///
/// Throws, beginning with Layout::source: NotSupported, with what an administrator would run, where
/// a device is not there; std::invalid_argument for a profile that the GPU does not have, an
/// instance that is asked for twice, and another machine of which no devices are listed.
MigTaken take_mig_devices(const Layout& layout, const std::vector<Host>& hosts);

/// Why `jobs` jobs cannot each have a MIG device of the first visible GPU, and what an
/// administrator would run; empty: they can.
std::string no_mig_reason(const Host& host, int64_t jobs);

/// The devices of the first visible GPU for `jobs` jobs, `jobs` at most: of one profile, the
/// largest that has as many; else the largest ones.
std::vector<MigDevice> mig_devices_for(const Host& host, int64_t jobs);

}  // namespace nearmetal
