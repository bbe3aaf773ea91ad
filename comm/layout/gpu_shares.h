// How the jobs of a layout share GPUs: the MIG devices that they are given, and the arms of a
// comparison of fractions, the same jobs on one GPU in different sharing modes. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
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
/// administrator would run; none: they can.
std::optional<std::string> no_mig_reason(const Host& host, int64_t jobs);

struct Fractions {
  int64_t jobs = 2;
  std::vector<NeighbourLoad> neighbours{};  // what all jobs but one do
};

/// The layouts on the first visible GPU of a host, or without GPUs on its CPUs: one job alone;
/// `jobs` one after another, in time slices, through MPS, through MPS with an even share of the
/// multiprocessors, and with multiprocessors of their own; and one alone on such shares, which
/// tells what the neighbours cost from what the smaller share costs. Where the GPU has as many MIG
/// devices (Host::mig), the same on those of each profile that has as many. Without GPUs there are
/// only turns and time slices. With neighbours, in each mode one job that trains, and the others as
/// neighbours, of each load.
std::vector<Layout> fraction_layouts(const Host& host, const Fractions& fractions);

/// The beginnings of the names of layouts that share the GPU at once: "4 jobs, "; with neighbours,
/// for each load, "1 job, 3 copy, ".
std::vector<std::string> fraction_names(const Fractions& fractions);

}  // namespace nearmetal
