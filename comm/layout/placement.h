// The placement of a layout's ranks, and their settings. Pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/layout/layout.h"
#include "reports/document/types.h"

namespace nearmetal {

struct PlacedRank {
  int64_t rank = 0;
  std::string host;
  std::string address;                           // of the host, for the launcher
  std::optional<int64_t> vm;                     // emulated, counted on each host
  std::optional<int64_t> gpu;                    // index on the host; none: on CPUs
  std::optional<int64_t> visible_gpu;            // index among those that the rank sees
  std::string cpus;                              // allowed to it, "0-3,8"; empty: not limited
  std::map<std::string, std::string> variables;  // environment; the same names for all of a job
  std::optional<MigDevice> mig{};                // of `gpu`, all that the rank sees
};

struct PlacedJob {
  std::vector<PlacedRank> ranks;  // by rank; those of one instance are neighbours
  std::optional<Share> share{};
  std::optional<NeighbourLoad> stress{};
};

/// The size of a job's part of a GPU: the profile, else the percentage of the multiprocessors
/// ("25 %"); empty if it shares nothing.
std::string share_size(const PlacedJob& job);

struct Placement {
  std::string layout;
  Kind kind = Kind::measured;  // or emulated
  std::vector<PlacedJob> jobs;

  const std::optional<Share>& share() const { return jobs.front().share; }  // has the mode of all
  int64_t ranks() const;
  std::vector<size_t> training_jobs() const;  // their indices; others disturb them
  bool on_gpus() const;                       // all, or none
};

/// Where a layout's ranks go. A job of a shape takes, in the order of the file, the nodes with the
/// fewest jobs on them, on each the first hosts with enough free GPUs, and there those that
/// choose_gpus() says; as emulated VMs (`emulate`), parts of the one host of a node.
/// Jobs that are listed go where they say.
///
/// Environment: CUDA_VISIBLE_DEVICES is what a rank's instance has, in the order of the PCI bus. An
/// emulated VM has a NCCL_HOSTID of its own, so that NCCL takes neither P2P nor shared memory to
/// the others, and NCCL is held to sockets. Jobs at once have NCCL_RAS_ADDR ports of their own.
/// CPUs: an emulated VM has its GPUs' even share of those next to them; a rank without a GPU an
/// even share of the host's.
///
/// A rank on MIG sees its device alone (CUDA_VISIBLE_DEVICES is the UUID), as a process can use
/// one.
///
/// Jobs that share may take what others have. They find no MPS daemon but the sweep's own (of jobs
/// with multiprocessors of their own, too), which has the GPUs of the layout alone, so that its
/// clients count among those, and whose limits are variables of theirs
/// (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, CUDA_MPS_PINNED_DEVICE_MEM_LIMIT); without GPUs each has all
/// CPUs of the host, and threads that wait leave them to others (OMP_WAIT_POLICY).
///
/// Throws std::invalid_argument, beginning with Layout::source, for a host or GPU that is not there
/// or taken twice, more ranks than GPUs or CPUs, GPUs and CPUs mixed; and what take_mig_devices()
/// throws.
Placement place(const Layout& layout, const std::vector<Host>& hosts,
                const std::map<std::string, std::string>& variables = {});

/// One fresh start of all jobs of a layout.
struct Launch {
  size_t layout = 0;   // index
  int64_t repeat = 1;  // counted from 1

  bool operator==(const Launch&) const = default;
};

/// Every repeat takes each layout once, so that drift touches all alike: `randomised`, in an order
/// of its own by the seed, the same on every machine, but two layouts alternately (ABBA), the first
/// by the seed, so that a drift cancels wholly; else in the order given.
std::vector<Launch> launch_order(size_t layouts, int64_t repeats, bool randomised, int64_t seed);

}  // namespace nearmetal
