#include "comm/join_ranks.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "base/text.h"
#include "models/load_module.h"
#include "models/program.h"

namespace nearmetal {
namespace {

std::string ranks_by_host(std::span<const RankHost> hosts, std::span<const RankHost> distinct) {
  return joined(transformed(distinct, [&](const RankHost& host) {
    return std::to_string(std::ranges::count(hosts, host)) + " on " + host.name;
  }));
}

std::vector<RankHost> distinct_of(std::span<const RankHost> hosts) {
  std::vector<RankHost> distinct;
  for (const RankHost& host : hosts) add_new(distinct, host);
  return distinct;
}

// What the module that joins GPUs, or processes, exports under this name.
void* entry_of(bool on_gpus, const char* name) {
  return on_gpus ? load_module("nccl", "NCCL module", name)
                 : load_module("mpi", "MPI module", name, true);
}

}  // namespace

RankHost rank_host() {
  if (const char* id = std::getenv("NCCL_HOSTID"); id != nullptr && *id != '\0') return {id, ""};
  RankHost host{host_name(), ""};
  std::ifstream("/proc/sys/kernel/random/boot_id") >> host.boot_id;
  return host;
}

HostPlace place_of(std::span<const RankHost> hosts, int rank) {
  const RankHost& own = hosts[rank];
  const auto count_in = [&](auto some) { return static_cast<int>(std::ranges::count(some, own)); };
  return {.hosts = static_cast<int>(distinct_of(hosts).size()),
          .local_rank = count_in(hosts.first(rank)),
          .local_ranks = count_in(hosts),
          .first_rank = static_cast<int>(std::ranges::find(hosts, own) - hosts.begin())};
}

void require_hosts_for(const Collective& collective, std::span<const RankHost> hosts) {
  const std::vector<RankHost> distinct = distinct_of(hosts);
  const auto refuse = [&](const std::string& why) {
    throw std::invalid_argument("--all-reduce " + std::string(collective.name) + " " + why + ": " +
                                ranks_by_host(hosts, distinct));
  };
  if (collective.needs_one_host && distinct.size() > 1) refuse("is for ranks of one host");
  if (collective.nccl != NcclGroup::each_host) return;
  for (const RankHost& host : distinct) {
    if (std::ranges::count(hosts, host) * std::ssize(distinct) != std::ssize(hosts)) {
      refuse("needs as many ranks on each host");
    }
  }
}

std::unique_ptr<AllReduce> join_all_reduce(const Collective& collective,
                                           const JoinRequest& request) {
  const std::string name = std::string("nearmetal_join_") + collective.name;
  void* entry = entry_of(collective.on_gpus, name.c_str());
  return std::unique_ptr<AllReduce>(reinterpret_cast<JoinEntry>(entry)(request));
}

std::unique_ptr<StageLinks> join_stage_links(bool on_gpus, const JoinRequest& request,
                                             std::span<const StageGroups> groups) {
  void* entry = entry_of(on_gpus, stage_links_entry_name);
  return std::unique_ptr<StageLinks>(reinterpret_cast<StageLinksEntry>(entry)(request, groups));
}

}  // namespace nearmetal
