// Causes that are known to make a layer slow, looked for in what reports already hold.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "reports/attribution/attribution.h"

namespace nearmetal {

/// Causes in the layers that count and cost time, the costliest first: those that the new side
/// shows and the base does not. A layer for which none is found has one that says where to look.
std::vector<KnownCause> known_causes(const ExplainedSide& base, const ExplainedSide& next,
                                     const std::vector<LayerShare>& layers);

/// The evidence in words; none where nothing was seen, or the base shows it, too.
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

/// For looks: where both are known and the new side has less.
Seen if_less(const std::string& what, std::optional<double> base, std::optional<double> next,
             double scale = 1);
/// `what`, where the new side alone shows it.
Seen if_new(bool on_base, bool on_new, const std::string& what);

/// The CPUs by affinity mask, where no quota is narrower.
Seen fewer_cpus(const ExplainedSide& base, const ExplainedSide& next);
/// The quota of a control group.
Seen lower_quota(const ExplainedSide& base, const ExplainedSide& next);
/// The same where the CPU computes.
Seen lower_quota_of_work(const ExplainedSide& base, const ExplainedSide& next);
Seen small_shared_memory(const ExplainedSide& base, const ExplainedSide& next);
Seen small_locked_memory(const ExplainedSide& base, const ExplainedSide& next);
Seen lowered_clocks(const ExplainedSide& base, const ExplainedSide& next);
Seen stolen_time(const ExplainedSide& base, const ExplainedSide& next);
Seen other_processes(const ExplainedSide& base, const ExplainedSide& next);
/// Environment variables that keep NCCL from a transport or an algorithm.
Seen transport_variables(const ExplainedSide& base, const ExplainedSide& next);
/// The transport that NCCL says it took: shared memory in place of P2P.
Seen lost_p2p(const ExplainedSide& base, const ExplainedSide& next);
/// The network in place of what ranks of one system share.
Seen lost_shared_memory(const ExplainedSide& base, const ExplainedSide& next);
/// RDMA by way of the host's memory, or NICs that cannot read that of GPUs.
Seen lost_gpu_direct_rdma(const ExplainedSide& base, const ExplainedSide& next);
/// Sockets in place of RDMA.
Seen lost_rdma(const ExplainedSide& base, const ExplainedSide& next);
/// Others, in what these do not tell.
Seen other_transports(const ExplainedSide& base, const ExplainedSide& next);
/// RDMA devices without their files, by which programs use them.
Seen lost_device_files(const ExplainedSide& base, const ExplainedSide& next);
/// RDMA devices with an active port.
Seen fewer_nics(const ExplainedSide& base, const ExplainedSide& next);
/// The way from the nearest NIC, of the GPU that is worst off.
Seen farther_nics(const ExplainedSide& base, const ExplainedSide& next);
/// Address translation, of GPUs or NICs.
Seen lost_ats(const ExplainedSide& base, const ExplainedSide& next);
/// The fastest of each system.
Seen slower_network(const ExplainedSide& base, const ExplainedSide& next);
Seen not_bound(const ExplainedSide& base, const ExplainedSide& next);
/// Samples come from memory that is not pinned.
Seen pageable_input(const ExplainedSide& base, const ExplainedSide& next);
/// Pinned copies are hardly faster than pageable ones.
Seen copies_as_if_pageable(const ExplainedSide& base, const ExplainedSide& next);
Seen virtual_machine(const ExplainedSide& base, const ExplainedSide& next);
/// Emulation in software: instructions of the guest are no instructions of the host.
Seen emulated_cpu(const ExplainedSide& base, const ExplainedSide& next);

}  // namespace nearmetal
