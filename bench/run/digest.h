// The bits that a rank computes in some steps of training from the seed (--digest).
#pragma once

#include <vector>

#include "bench/run/rank_run.h"

namespace nearmetal {

/// Starts again from the seed, on samples that are the same on every rank, and hashes the loss and
/// the parameters after some of eight steps. The digests of this rank alone, without its kernels;
/// empty where a stop ended it, of ranks that take their steps together at one step. The parameters
/// are lost.
std::vector<DigestGroup> take_digests(const RankTask& task, Program& program);

}  // namespace nearmetal
