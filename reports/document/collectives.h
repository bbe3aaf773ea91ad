// The ways to sum gradients over the ranks of a job: a value and a row for each.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

#include "base/names.h"

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

}  // namespace nearmetal
