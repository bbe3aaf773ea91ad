// The arms of a comparison of fractions: the same jobs on one GPU, shared in different ways.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/layout.h"

namespace nearmetal {

/// On the first GPU of a host, or without GPUs on its CPUs: one job alone; `jobs` one after
/// another, in time slices, through MPS, through MPS with an even share of the multiprocessors; and
/// one alone on such a share, which tells what the neighbours cost from what the smaller share
/// costs. Without GPUs there is no MPS. Where the GPU has as many MIG devices (Host::mig), `jobs`
/// on them, and one alone on each kind of those. With `batches`, all of that with each of them.
std::vector<Layout> fraction_layouts(const Host& host, int64_t jobs,
                                     const std::vector<int64_t>& batches = {});

}  // namespace nearmetal
