// Causes that are known to make a layer slow, looked for in what reports already hold.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "reports/attribution/attribution.h"

namespace nearmetal {

/// Of the layers that count and cost time, the costliest first: causes that the new side shows and
/// the base does not. A layer for which none is found has one that says where to look.
std::vector<KnownCause> known_causes(const ExplainedSide& base, const ExplainedSide& next,
                                     const std::vector<LayerShare>& layers);

/// What was seen, in words; none where nothing was, or the base shows it, too.
using Seen = std::optional<std::string>;
using Look = std::function<Seen(const ExplainedSide& base, const ExplainedSide& next)>;
/// A fact of a machine as text; none where it is not known.
using TextFact = std::function<Seen(const Environment& environment)>;

/// The least of a number that GPUs have, times `scale`, is less than on the base.
Look less_of_gpus(const char* what, Maybe<int64_t> Gpu::*fact, double scale = 1);
Look less_of_gpus(const char* what, Maybe<double> Gpu::*fact);
/// A GPU lacks a path to a peer, and none of the base does.
Look peers_lack(const char* what, Maybe<bool> GpuPeer::*fact);
/// The machines have another value.
Look other_text(const char* what, const TextFact& fact);

/// By affinity mask or quota.
Seen fewer_cpus(const ExplainedSide& base, const ExplainedSide& next);
Seen lowered_clocks(const ExplainedSide& base, const ExplainedSide& next);
Seen stolen_time(const ExplainedSide& base, const ExplainedSide& next);
Seen other_processes(const ExplainedSide& base, const ExplainedSide& next);
/// Environment variables that keep NCCL from a transport or an algorithm.
Seen transport_variables(const ExplainedSide& base, const ExplainedSide& next);
/// What NCCL says that it took.
Seen chosen_transports(const ExplainedSide& base, const ExplainedSide& next);
Seen not_bound(const ExplainedSide& base, const ExplainedSide& next);
/// Samples come from memory that is not pinned.
Seen pageable_input(const ExplainedSide& base, const ExplainedSide& next);
/// Pinned copies are hardly faster than pageable ones.
Seen copies_as_if_pageable(const ExplainedSide& base, const ExplainedSide& next);
Seen virtual_machine(const ExplainedSide& base, const ExplainedSide& next);
/// In software: instructions of the guest are no instructions of the host.
Seen emulated_cpu(const ExplainedSide& base, const ExplainedSide& next);

}  // namespace nearmetal
