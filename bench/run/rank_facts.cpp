#include "bench/run/rank_facts.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/text.h"
#include "bench/environment/environment.h"
#include "bench/environment/system_files.h"
#include "reports/document/settings.h"

namespace nearmetal {
namespace {

std::string name_of(std::span<const Report> ranks, size_t rank) {
  return "rank " + std::to_string(rank) + " (" + ranks[rank].environments.at(0).host_name + ")";
}

// Name to what must be the same on every rank.
std::map<std::string, std::string> common_facts(const Report& rank) {
  std::map<std::string, std::string> facts = rank.environments.at(0).libraries;
  facts["device"] = rank.arms.at(0).runs.at(0).device_name;
  visit_settings(
      [&](const Setting& setting, const auto& value) {
        if (setting.decides == Decides::display || setting.name == std::string("gpu")) return;
        facts[flag_of(setting)] = shown_value(setting, value);
      },
      rank.invocation.config);
  facts["version"] = rank.tool.version;
  facts["commit"] = rank.tool.git_commit.value.value_or("not known");
  facts["build ID"] = rank.tool.build_id.value_or("not known");
  return facts;
}

// The facts in which a rank differs from rank 0; empty: none.
std::string difference(std::span<const Report> ranks, size_t rank) {
  std::map<std::string, std::string> first = common_facts(ranks[0]);
  std::map<std::string, std::string> others = common_facts(ranks[rank]);
  for (const auto& [name, value] : first) others.emplace(name, "none");
  std::vector<std::string> found;
  for (const auto& [name, value] : others) {
    const std::string& of_first = first.emplace(name, "none").first->second;
    if (value != of_first) found.push_back(name + " " + value + " against " + of_first);
  }
  if (found.empty()) return "";
  return name_of(ranks, rank) + " differs from " + name_of(ranks, 0) + ": " + joined(found);
}

// None: it computes on CPUs, or what tells its GPU is not known.
std::optional<std::string> gpu_of(const Report& rank) {
  const std::vector<Gpu>& gpus = rank.environments.at(0).gpus;
  return gpus.empty() ? std::nullopt : gpus[0].uuid.value;
}

using Links = std::vector<std::pair<std::string, Maybe<int64_t>>>;

// Names and rates in bits per second: of the interfaces of a network; or of all that are up, and of
// RDMA ports.
Links links_of(const Environment& environment, const std::optional<std::string>& network) {
  Links links;
  if (network) {
    for (const std::string& name : interfaces_in(*network)) {
      const auto* found = find_in(environment.network, name, &NetworkInterface::name);
      links.emplace_back(name, found ? found->bits_per_second : Unknown{"it was not read"});
    }
    return links;
  }
  for (const NetworkInterface& one : environment.network) {
    if (one.state && *one.state == "up") links.emplace_back(one.name, one.bits_per_second);
  }
  for (const RdmaDevice& device : environment.rdma) {
    for (const RdmaPort& port : device.ports) {
      const bool active = port.state && *port.state == "active";
      if (active) links.emplace_back(device.name, port.bits_per_second);
    }
  }
  return links;
}

// What a GPU is instead of what was expected of it, after "host NAME has"; empty: it is that.
std::string other_name(const Gpu& gpu, const std::string& part) {
  return gpu.name.find(part) != gpu.name.npos ? "" : "an " + gpu.name;
}

std::string other_uuid(const Gpu& gpu, const std::string& uuid) {
  if (!gpu.uuid) return "a GPU that does not report its own: " + gpu.uuid.reason;
  return *gpu.uuid == uuid ? "" : "given this rank " + *gpu.uuid;
}

std::string other_mig_device(const Gpu& gpu, const std::string& profile) {
  if (!gpu.mig_profile) return "given this rank the whole of an " + gpu.name;
  return *gpu.mig_profile == profile ? "" : "given this rank a MIG device " + *gpu.mig_profile;
}

std::string other_vgpu(const Gpu& gpu, const std::string& profile) {
  if (!gpu.virtualisation) {
    return "a GPU that may be a vGPU or not: " + gpu.virtualisation.reason;
  }
  if (*gpu.virtualisation != "vgpu") {
    return "no vGPU but an " + gpu.name + " (virtualisation: " + *gpu.virtualisation + ")";
  }
  if (!gpu.vgpu_profile) return "a vGPU, but " + gpu.vgpu_profile.reason;
  return *gpu.vgpu_profile == profile ? "" : "a vGPU " + *gpu.vgpu_profile;
}

std::string other_machine(const Environment& found, MachineKind kind) {
  const Maybe<bool> shown = shows(kind, found);
  if (!shown) return "no sign of what it is: " + shown.reason;
  const auto why = contradiction(kind, found);
  return why ? "signs of another: " + *why : "";
}

std::string other_links(const Environment& environment, const LinkClaim& wanted) {
  std::vector<std::string> found;
  bool all_known = true;
  for (const auto& [name, rate] : links_of(environment, wanted.network)) {
    if (rate.value == bits_per_second_of(wanted.rate)) return "";
    all_known = all_known && rate;
    found.push_back(name + " of " +
                    (rate ? shortest(1e-9 * static_cast<double>(*rate), 4) + " Gbit/s"
                          : "unknown rate: " + rate.reason));
  }
  const std::string which =
      wanted.network ? "with an address in " + *wanted.network : std::string("that is up");
  return (found.empty() ? "no network interface " + which : joined(found)) +
         (all_known ? "" : "; claim no link here, or take a device that reports its rate");
}

}  // namespace

std::optional<std::string> misplacement(std::span<const Report> ranks,
                                        const std::vector<std::string>& planned) {
  if (planned.empty()) return std::nullopt;
  if (planned.size() != ranks.size()) {
    return "--expect-hosts has " + counted(std::ssize(planned), "rank") + ", and this job " +
           std::to_string(ranks.size());
  }
  std::map<std::string, size_t> first_of_host, first_of_system;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const Environment& found = ranks[i].environments.at(0);
    const size_t host = first_of_host.try_emplace(planned[i], i).first->second;
    const size_t system = first_of_system.try_emplace(operating_system_of(found), i).first->second;
    if (host == system) continue;
    const bool is_one = planned[system] != planned[i];  // machine in the place of two
    const std::string hosts = is_one ? "hosts '" + planned[system] + "' and '" + planned[i] +
                                           "' of the plan are one machine"
                                     : "host '" + planned[i] + "' of the plan is several machines";
    return hosts + ": " + name_of(ranks, is_one ? system : host) + " and " + name_of(ranks, i) +
           " came up there; give each host an address of its own";
  }
  return std::nullopt;
}

std::optional<std::string> disagreement(std::span<const Report> ranks) {
  for (size_t i = 1; i < ranks.size(); ++i) {
    std::string found = difference(ranks, i);
    if (!found.empty()) return found;
    const std::optional<std::string> gpu = gpu_of(ranks[i]);
    for (size_t j = 0; gpu && j < i; ++j) {
      if (gpu_of(ranks[j]) != gpu) continue;
      return name_of(ranks, j) + " and " + name_of(ranks, i) + " are on the same GPU, " + *gpu +
             ": start one rank per GPU";
    }
  }
  return std::nullopt;
}

int64_t ranks_on_same_cpus(std::span<const Report> ranks, int rank) {
  const auto place_of = [](const Report& one) {
    return std::pair(operating_system_of(one.environments.at(0)),
                     one.arms.at(0).runs.at(0).ranks.at(0).binding.value().cpus);
  };
  return std::ranges::count(ranks, place_of(ranks[rank]), place_of);
}

void require_expected(const Expectation& expected, const Environment& environment, const Gpu* gpu) {
  const auto require = [&](FailureCode code, const std::string& value, const std::string& other) {
    if (other.empty()) return;
    throw NotAsExpected(code, std::string("--") + to_string(code) + " " + value + ": host " +
                                  environment.host_name + " has " + other);
  };
  const auto require_gpu = [&](FailureCode code, const std::optional<std::string>& value,
                               std::string (*other)(const Gpu&, const std::string&)) {
    if (!value) return;
    require(code, *value, gpu ? other(*gpu, *value) : "none for this rank, which computes on CPUs");
  };
  using enum FailureCode;
  require_gpu(expect_gpu, expected.gpu, other_name);
  require_gpu(expect_uuid, expected.uuid, other_uuid);
  require_gpu(expect_mig, expected.mig, other_mig_device);
  require_gpu(expect_vgpu, expected.vgpu, other_vgpu);
  if (const auto kind = expected.environment) {
    require(expect_environment, to_string(*kind), other_machine(environment, *kind));
  }
  if (expected.cpus) {
    const std::string found = to_cpu_list(usable_cpus());
    require(expect_cpus, *expected.cpus,
            parse_cpu_list(found) == parse_cpu_list(*expected.cpus)
                ? ""
                : "only CPUs " + found + " for this rank: its launcher or control group limits it");
  }
  if (const auto& link = expected.link) {
    require(expect_link, text_of(*link), other_links(environment, *link));
  }
}

}  // namespace nearmetal
