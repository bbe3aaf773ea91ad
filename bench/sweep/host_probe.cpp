#include "bench/sweep/host_probe.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <memory>
#include <set>
#include <sstream>

#include "base/errors.h"
#include "base/text.h"
#include "base/text_table.h"
#include "bench/cli/process.h"
#include "bench/environment/child_process.h"
#include "comm/join_ranks.h"
#include "comm/launch/launch_plan.h"
#include "comm/world.h"
#include "reports/json/archive.h"

namespace nearmetal {

void fields(json::Archive& field, InterfaceAddress& address) {
  field("interface", address.interface);
  field("address", address.address);
  field("prefix_bits", address.prefix_bits);
}

void fields(json::Archive& field, HostFacts& facts) {
  field("rank", facts.rank);
  field("host_name", facts.host_name);
  field("boot_id", facts.boot_id);
  field("addresses", facts.addresses);
  field("variables", facts.variables);
}

namespace {

constexpr double may_take_seconds = 30;

uint32_t number_of(const sockaddr& address) {
  sockaddr_in internet{};
  std::memcpy(&internet, &address, sizeof internet);
  return ntohl(internet.sin_addr.s_addr);
}

std::string text_of_number(uint32_t number) {
  const in_addr address{htonl(number)};
  char text[INET_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, &address, text, sizeof text);
  return text;
}

std::vector<InterfaceAddress> own_addresses() {
  ifaddrs* first = nullptr;
  std::vector<InterfaceAddress> found;
  if (getifaddrs(&first) != 0) return found;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    const bool is_internet = one->ifa_addr != nullptr && one->ifa_addr->sa_family == AF_INET;
    if (!is_internet || one->ifa_netmask == nullptr) continue;
    if ((one->ifa_flags & IFF_LOOPBACK) != 0 || (one->ifa_flags & IFF_UP) == 0) continue;
    found.push_back({one->ifa_name, text_of_number(number_of(*one->ifa_addr)),
                     std::popcount(number_of(*one->ifa_netmask))});
  }
  return found;
}

// By rank; none where one is missing.
std::vector<HostFacts> answers_in(const std::string& text) {
  std::vector<HostFacts> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    try {
      found.push_back(json::parsed<HostFacts>(line));
    } catch (const InvalidReport&) {  // of ssh, or of a login
    }
  }
  std::ranges::sort(found, {}, &HostFacts::rank);
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i].rank != static_cast<int64_t>(i)) return {};
  }
  return found;
}

std::string joined_names(const std::vector<std::string>& names) { return shortened(joined(names)); }

}  // namespace

bool steers_ranks(const std::string& variable) {
  // Of CUDA the part of its programming guide on environment variables, but for the visible
  // devices: a plan gives each rank its own. Others of that prefix say where the toolkit is.
  constexpr std::array prefixes = {"NCCL_",         "UCX_",         "FI_",         "CUDA_DEVICE_",
                                   "CUDA_LAUNCH_",  "CUDA_MODULE_", "CUDA_CACHE_", "CUDA_FORCE_",
                                   "CUDA_DISABLE_", "CUDA_MPS_",    "CUDA_SCALE_", "CUDA_AUTO_"};
  return std::ranges::any_of(prefixes,
                             [&](const char* prefix) { return variable.starts_with(prefix); });
}

HostFacts own_host_facts() {
  HostFacts facts{.rank = launched_rank(),
                  .host_name = host_name(),
                  .boot_id = rank_host().boot_id,
                  .addresses = own_addresses(),
                  .variables = {}};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = std::min(text.find('='), text.size());
    if (steers_ranks(text.substr(0, equals))) {
      facts.variables[text.substr(0, equals)] = text.substr(std::min(equals + 1, text.size()));
    }
  }
  return facts;
}

std::string to_json_line(const HostFacts& facts) { return json::line_of(facts); }

PlacedJob one_rank_each(const std::vector<Host>& hosts, const Launcher& launcher) {
  PlacedJob job;
  for (const Host& host : hosts) {
    PlacedRank rank;
    rank.rank = std::ssize(job.ranks);
    rank.host = host.name;
    rank.address = address_of(host);
    rank.variables = launcher.variables;
    job.ranks.push_back(rank);
  }
  return job;
}

std::vector<HostFacts> ask_hosts(const std::vector<Host>& hosts, const Launcher& launcher) {
  const LaunchOptions options{.as_root = geteuid() == 0, .timeout_seconds = may_take_seconds};
  const std::vector<std::string> command = launch_command(one_rank_each(hosts, launcher), launcher,
                                                          {"doctor", host_facts_flag}, options);
  // Daemons of Open MPI that start at once on one machine, which two hosts may turn out to be, can
  // fail over the session folder that both create.
  constexpr int most_attempts = 4;
  constexpr auto soon = std::chrono::seconds(5);
  for (int attempt = 0; attempt < most_attempts; ++attempt) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<HostFacts> facts = answers_in(run_child(command, may_take_seconds).text);
    if (facts.size() == hosts.size()) return facts;
    if (std::chrono::steady_clock::now() - start > soon) break;
  }
  return {};
}

std::vector<std::string> silent_hosts(const std::vector<Host>& hosts, const Launcher& launcher) {
  if (hosts.empty() || !ask_hosts(hosts, launcher).empty()) return {};
  if (hosts.size() == 1) return {hosts.front().name};
  const auto middle = hosts.begin() + std::ssize(hosts) / 2;
  std::vector<std::string> silent = silent_hosts({hosts.begin(), middle}, launcher);
  append(silent, silent_hosts({middle, hosts.end()}, launcher));
  return silent;
}

std::string hosts_of_one_machine(const std::vector<Host>& hosts, std::span<const HostFacts> facts) {
  for (size_t i = 0; i < facts.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (facts[i].boot_id.empty() || facts[i].boot_id != facts[j].boot_id) continue;
      return "hosts '" + hosts[j].name + "' and '" + hosts[i].name + "' are one machine, " +
             facts[i].host_name + ": name it once, or give each an address of its own";
    }
  }
  return "";
}

std::vector<std::string> foreign_addresses(const std::vector<Host>& hosts,
                                           std::span<const HostFacts> facts) {
  std::vector<std::string> foreign;
  for (size_t i = 0; i < facts.size(); ++i) {
    const std::string address = address_of(hosts[i]);
    in_addr number{};
    if (inet_pton(AF_INET, address.c_str(), &number) != 1) continue;
    const auto& own = facts[i].addresses;
    if (std::ranges::find(own, address, &InterfaceAddress::address) != own.end()) continue;
    foreign.push_back("host '" + hosts[i].name + "' has no address " + address +
                      ", by which it is reached");
  }
  return foreign;
}

std::string SharedAddress::network() const {
  in_addr number{};
  inet_pton(AF_INET, address.address.c_str(), &number);
  const uint32_t mask = address.prefix_bits == 0 ? 0 : ~uint32_t{0} << (32 - address.prefix_bits);
  return text_of_number(ntohl(number.s_addr) & mask) + "/" + std::to_string(address.prefix_bits);
}

std::vector<SharedAddress> shared_addresses(std::span<const HostFacts> facts) {
  std::map<std::string, SharedAddress> by_address;
  for (const HostFacts& host : facts) {
    for (const InterfaceAddress& one : host.addresses) {
      by_address.try_emplace(one.address, SharedAddress{one, {}})
          .first->second.hosts.push_back(host.host_name);
    }
  }
  std::vector<SharedAddress> shared;
  for (const auto& [address, one] : by_address) {
    if (one.hosts.size() > 1) shared.push_back(one);
  }
  return shared;
}

std::string text_of(const SharedAddress& shared) {
  const InterfaceAddress& one = shared.address;
  return one.interface + " (" + one.address + "/" + std::to_string(one.prefix_bits) +
         ") is the same on " + joined_names(shared.hosts);
}

std::vector<std::string> unlike_variables(std::span<const HostFacts> facts) {
  std::set<std::string> names;
  for (const HostFacts& host : facts) {
    for (const auto& variable : host.variables) names.insert(variable.first);
  }
  std::vector<std::string> unlike;
  for (const std::string& name : names) {
    std::map<std::string, std::vector<std::string>> hosts;  // by value
    for (const HostFacts& host : facts) {
      const auto found = host.variables.find(name);
      hosts[found == host.variables.end() ? "not set" : found->second].push_back(host.host_name);
    }
    if (hosts.size() == 1) continue;
    unlike.push_back(name + " is " + joined(transformed(hosts, [](const auto& one) {
                       return one.first + " on " + joined_names(one.second);
                     })));
  }
  return unlike;
}

}  // namespace nearmetal
