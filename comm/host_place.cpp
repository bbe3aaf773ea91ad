#include "comm/host_place.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "comm/world.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

std::string ranks_by_host(std::span<const RankHost> hosts, std::span<const RankHost> distinct) {
  std::vector<std::string> texts;
  for (const RankHost& host : distinct) {
    texts.push_back(std::to_string(std::count(hosts.begin(), hosts.end(), host)) + " on " +
                    host.name);
  }
  return joined(texts);
}

std::vector<RankHost> distinct_of(std::span<const RankHost> hosts) {
  std::vector<RankHost> distinct;
  for (const RankHost& host : hosts) {
    if (std::find(distinct.begin(), distinct.end(), host) == distinct.end()) {
      distinct.push_back(host);
    }
  }
  return distinct;
}

}  // namespace

RankHost rank_host() {
  if (const char* id = std::getenv("NCCL_HOSTID"); id != nullptr && *id != '\0') return {id, ""};
  RankHost host{host_name(), ""};
  std::ifstream("/proc/sys/kernel/random/boot_id") >> host.boot_id;
  return host;
}

HostPlace place_of(std::span<const RankHost> hosts, int rank) {
  const std::vector<RankHost> distinct = distinct_of(hosts);
  const RankHost& own = hosts[rank];
  HostPlace place{.rank = rank, .hosts = static_cast<int>(distinct.size())};
  place.local_ranks = static_cast<int>(std::count(hosts.begin(), hosts.end(), own));
  place.local_rank = static_cast<int>(std::count(hosts.begin(), hosts.begin() + rank, own));
  place.first_rank = static_cast<int>(std::find(hosts.begin(), hosts.end(), own) - hosts.begin());
  for (const RankHost& host : distinct) {
    if (std::count(hosts.begin(), hosts.end(), host) == place.local_ranks) continue;
    throw std::invalid_argument("--all-reduce hierarchical needs as many ranks on each host: " +
                                ranks_by_host(hosts, distinct));
  }
  return place;
}

void require_one_host(std::span<const RankHost> hosts) {
  const std::vector<RankHost> distinct = distinct_of(hosts);
  if (distinct.size() == 1) return;
  throw std::invalid_argument("--all-reduce host is for ranks of one host: " +
                              ranks_by_host(hosts, distinct));
}

}  // namespace nearmetal
