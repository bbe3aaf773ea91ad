// Where ranks stand in sums that are made inside each host first, then between hosts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "reports/document/collectives.h"

namespace nearmetal {

/// The operating-system instance of a rank, as NCCL tells them apart: by NCCL_HOSTID where that is
/// set, as it is in a pretended VM, else by the name and what the kernel drew when it started.
struct RankHost {
  std::string name;
  std::string boot_id;  // empty beside NCCL_HOSTID

  bool operator==(const RankHost&) const = default;
};

/// Of this process.
RankHost rank_host();

/// Of one rank of a job.
struct HostPlace {
  int hosts = 1;
  int local_rank = 0;   // among those of its host, in the order of their ranks
  int local_ranks = 1;  // on its host
  int first_rank = 0;   // of its host
};
HostPlace place_of(std::span<const RankHost> hosts, int rank);

/// Throws std::invalid_argument, which names the hosts, where `collective` does not sum over them.
void require_hosts_for(const Collective& collective, std::span<const RankHost> hosts);

/// A range of elements.
struct Part {
  int64_t begin = 0;
  int64_t elements = 0;

  bool operator==(const Part&) const = default;
};

/// Part `part` of [0, `elements`). Parts begin at multiples of 64 elements, so that they are
/// aligned, and differ by less than 128; some are empty where there are too few elements.
inline Part part_of(int64_t elements, int parts, int part) {
  constexpr int64_t unit = 64;  // 128 bytes of the smallest type
  const int64_t units = (elements + unit - 1) / unit;
  const auto begin_of = [&](int i) { return std::min(elements, units * i / parts * unit); };
  return {begin_of(part), begin_of(part + 1) - begin_of(part)};
}

}  // namespace nearmetal
