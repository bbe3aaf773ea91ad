// The exchange of gradients between ranks: the ways to sum them, a value and a row for each, and
// the part of a report about it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/names.h"
#include "base/value.h"
#include "models/training_options.h"
#include "reports/document/special_members.h"

namespace nearmetal {

/// The way to sum the gradients of several ranks; automatic: the fastest of those that a run times.
enum class AllReduceKind { automatic, mpi, nccl, hierarchical, host };

/// The ranks over which NCCL sums.
enum class NcclGroup { none, all_ranks, each_host };

/// The facts of an all-reduce that the program needs before it joins one (comm/join_ranks.h).
struct Collective {
  AllReduceKind kind{};
  const char* name = "";
  const char* title = "";  // in messages
  bool is_timed = false;   // by a run that is to take the fastest
  bool on_gpus = true;     // sums in their memory; else in that of hosts
  NcclGroup nccl = NcclGroup::none;
  const char* nccl_operations = "";  // as NCCL's log names them, separated by |
  bool needs_one_host = false;
  bool needs_mpi_threads = false;
  const char* no_nccl = "";      // why its sums are in no log of NCCL
  bool has_rate_of_ring = true;  // bytes per second are what each link of a ring carries
};

inline constexpr std::array collectives{
    Collective{.kind = AllReduceKind::mpi, .name = "mpi", .title = "MPI", .on_gpus = false},
    Collective{.kind = AllReduceKind::nccl,
               .name = "nccl",
               .title = "NCCL",
               .is_timed = true,
               .nccl = NcclGroup::all_ranks,
               .nccl_operations = "AllReduce"},
    // NCCL inside each host and MPI between them.
    Collective{.kind = AllReduceKind::hierarchical,
               .name = "hierarchical",
               .title = "NCCL and MPI",
               .nccl = NcclGroup::each_host,
               .nccl_operations = "Reduce|Broadcast",
               .needs_mpi_threads = true,
               .has_rate_of_ring = false},
    // Copy engines through the memory of one host.
    Collective{.kind = AllReduceKind::host,
               .name = "host",
               .title = "host memory",
               .is_timed = true,
               .needs_one_host = true,
               .no_nccl = "copy engines sum, not NCCL",
               .has_rate_of_ring = false},
};

// On CPUs there is no choice: a second one would have to be offered to them by --all-reduce.
static_assert(std::ranges::count(collectives, false, &Collective::on_gpus) == 1);

constexpr auto names_of(AllReduceKind) {
  std::array<const char*, collectives.size() + 1> names{"auto"};
  for (const Collective& row : collectives) names.at(static_cast<size_t>(row.kind)) = row.name;
  return names;
}
static_assert(std::ranges::count(names_of(AllReduceKind{}), nullptr) == 0, "each has its row");

/// The row of `asked`; where nothing is asked for, or the fastest is not yet known, the first that
/// is for the device.
constexpr const Collective& collective_for(std::optional<AllReduceKind> asked, bool on_gpus) {
  const AllReduceKind kind = asked.value_or(AllReduceKind::automatic);
  return *std::ranges::find_if(collectives, [&](const Collective& row) {
    return kind == AllReduceKind::automatic ? row.on_gpus == on_gpus : row.kind == kind;
  });
}

/// The algorithm by which NCCL must sum; automatic: its choice, or the user's.
enum class NcclAlgorithm { automatic, ring, tree };
constexpr auto names_of(NcclAlgorithm) { return std::array{"auto", "ring", "tree"}; }

struct Bucket {
  int64_t bytes = 0;
  double seconds = 0;  // of one sum with nothing else going on, of the slowest rank
  // 2 (ranks - 1) / ranks x bytes / seconds, as nccl-tests define it: what each link carries. Where
  // sums are hierarchical or through the host only the rate of a ring that takes as long.
  double bus_bandwidth_bytes_per_second = 0;
  std::optional<Precision> type{};  // of the elements on their way; empty: an earlier report
};

/// The step with gradients sent in buckets of this size, where the size was to be measured.
struct TriedBucket {
  int64_t bucket_mib = 0;
  double step_seconds = 0;  // median of a few steps, of the slowest rank
};

/// The step with gradients summed in this way, where the fastest way was to be found.
struct TriedAllReduce {
  AllReduceKind all_reduce{};
  double step_seconds = 0;  // median of many steps, of the slowest rank; the mean of all turns
};

/// How NCCL sums so many bytes over the ranks, or spreads their sums.
struct SumChoice {
  int64_t bytes = 0;
  std::string algorithm;  // "ring", "tree", "nvls", ...
  std::string protocol;   // "ll", "ll128", "simple"
  int64_t channels = 0;
  std::string operation = "allreduce";  // or its parts inside a host: "reduce", "broadcast"

  bool operator==(const SumChoice&) const = default;
};

/// The choices of NCCL, by the log of rank 0, for its group: all ranks, or those of its host.
struct NcclChoices {
  std::vector<SumChoice> sums;
  std::vector<std::string> transports;  // to other ranks: "P2P/CUMEM", "SHM/direct/direct", ...
  std::vector<std::string> rings;       // ranks of the group in their order, each once: "0 1 3 2"
};

struct Communication {
  NM_DECLARE_SPECIAL_MEMBERS(Communication);
  std::string library;                              // what summed, and its version: "nccl 2.28.9"
  std::optional<AllReduceKind> all_reduce{};        // empty: an earlier report
  std::vector<TriedAllReduce> tried_all_reduces{};  // empty where it was given, or chosen before
  int64_t bytes_per_step = 0;
  int64_t bucket_mib = 0;          // wanted of each bucket; 0: all at once
  std::vector<TriedBucket> tried;  // empty where bucket_mib was given
  std::vector<Bucket> buckets;
  Maybe<NcclChoices> nccl;
  double buckets_seconds = 0;              // of all, one after another with nothing else going on
  Maybe<double> exposed_seconds_per_step;  // the largest of the ranks' medians
  Maybe<double> best_bus_bandwidth_bytes_per_second;  // of the buckets
  // The time at that rate: 2 (ranks - 1) / ranks x bytes_per_step /
  // best_bus_bandwidth_bytes_per_second.
  Maybe<double> least_seconds_per_step;
};

}  // namespace nearmetal
