// The arms of a comparison of fractions: the same jobs on one GPU, in different sharing modes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/layout/layout.h"

namespace nearmetal {

struct Fractions {
  int64_t jobs = 2;
  std::vector<NeighbourLoad> neighbours{};  // what all jobs but one do
};

/// The layouts on the first visible GPU of a host, or without GPUs on its CPUs: one job alone;
/// `jobs` one after another, in time slices, through MPS, through MPS with an even share of the
/// multiprocessors, and with multiprocessors of their own; and one alone on such shares, which
/// tells what the neighbours cost from what the smaller share costs. Where the GPU has as many MIG
/// devices (Host::mig), the same on them. Without GPUs there are only turns and time slices. With
/// neighbours, in each mode one job that trains, and the others as neighbours, of each load.
std::vector<Layout> fraction_layouts(const Host& host, const Fractions& fractions);

/// The beginnings of the names of layouts that share the GPU at once: "4 jobs, "; with neighbours,
/// for each load, "1 job, 3 copy, ".
std::vector<std::string> fraction_names(const Fractions& fractions);

}  // namespace nearmetal
