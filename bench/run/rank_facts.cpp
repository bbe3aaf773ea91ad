#include "bench/run/rank_facts.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "bench/environment/environment.h"
#include "models/errors.h"
#include "reports/json/json.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

std::string name_of(std::span<const Report> ranks, size_t rank) {
  return "rank " + std::to_string(rank) + " (" + ranks[rank].environments.at(0).host_name + ")";
}

// Name to what must be the same on every rank.
std::map<std::string, std::string> common_facts(const Report& rank) {
  std::map<std::string, std::string> facts = rank.environments.at(0).libraries;
  facts["device"] = rank.arms.at(0).runs.at(0).device_name;
  RunConfig config = rank.invocation.config;
  config.gpu = 0;  // of each rank its own
  facts["settings"] = config_sha256(config);
  facts["nearmetal"] = rank.tool.version + " " + rank.tool.git_commit.value.value_or("");
  facts["executable"] = rank.tool.build_id.value_or("not known");
  return facts;
}

// The first fact in which a rank differs from rank 0; empty: none.
std::string difference(std::span<const Report> ranks, size_t rank) {
  const std::map<std::string, std::string> first = common_facts(ranks[0]);
  const std::map<std::string, std::string> other = common_facts(ranks[rank]);
  std::map<std::string, std::string> names = first;
  names.insert(other.begin(), other.end());
  const auto value_in = [](const std::map<std::string, std::string>& facts,
                           const std::string& name) {
    const auto found = facts.find(name);
    return found == facts.end() ? "none" : found->second;
  };
  for (const auto& [name, unused] : names) {
    if (value_in(first, name) == value_in(other, name)) continue;
    return name_of(ranks, rank) + " differs from " + name_of(ranks, 0) + " in " + name + ": " +
           value_in(other, name) + " against " + value_in(first, name);
  }
  return "";
}

// None: it computes on CPUs, or what tells its GPU is not known.
std::optional<std::string> gpu_of(const Report& rank) {
  const std::vector<Gpu>& gpus = rank.environments.at(0).gpus;
  return gpus.empty() ? std::nullopt : gpus[0].uuid.value;
}

std::string cpus_of(const Report& rank) {
  return rank.arms.at(0).runs.at(0).ranks.at(0).binding.value().cpus;
}

using Links = std::vector<std::pair<std::string, Maybe<int64_t>>>;

// Names and rates in bits per second: of the interfaces of a network; or of all that are up, and of
// RDMA ports.
Links links_of(const Environment& environment, const std::optional<std::string>& network) {
  Links links;
  if (network) {
    for (const std::string& name : interfaces_in(*network)) {
      const auto found = std::ranges::find(environment.network, name, &NetworkInterface::name);
      const bool known = found != environment.network.end();
      links.emplace_back(name, known ? found->bits_per_second : Unknown{"it was not read"});
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

std::string rate_text(int64_t bits_per_second) {
  return shortest(1e-9 * static_cast<double>(bits_per_second), 4) + " Gbit/s";
}

class Expectations {
  using enum FailureCode;

 public:
  Expectations(const Environment& environment, const Gpu* gpu)
      : environment_(environment), gpu_(gpu) {}

  void gpu(const std::string& part) const {
    const std::string& name = gpu_for(expect_gpu, part).name;
    if (name.find(part) == name.npos) refuse(expect_gpu, part, "an " + name);
  }

  void uuid(const std::string& uuid) const {
    const Maybe<std::string>& found = gpu_for(expect_uuid, uuid).uuid;
    if (!found) refuse(expect_uuid, uuid, "a GPU that does not report its own: " + found.reason);
    if (*found != uuid) refuse(expect_uuid, uuid, "given this rank " + *found);
  }

  void mig(const std::string& profile) const {
    const Gpu& gpu = gpu_for(expect_mig, profile);
    const Maybe<std::string>& found = gpu.mig_profile;
    if (!found) refuse(expect_mig, profile, "given this rank the whole of an " + gpu.name);
    if (*found != profile) refuse(expect_mig, profile, "given this rank a MIG device " + *found);
  }

  void vgpu(const std::string& profile) const {
    const Gpu& gpu = gpu_for(expect_vgpu, profile);
    if (!gpu.virtualisation) {
      refuse(expect_vgpu, profile, "a GPU that may be a vGPU or not: " + gpu.virtualisation.reason);
    }
    if (*gpu.virtualisation != "vgpu") {
      refuse(expect_vgpu, profile,
             "no vGPU but an " + gpu.name + " (virtualisation: " + *gpu.virtualisation + ")");
    }
    if (!gpu.vgpu_profile) refuse(expect_vgpu, profile, "a vGPU, but " + gpu.vgpu_profile.reason);
    if (*gpu.vgpu_profile != profile) refuse(expect_vgpu, profile, "a vGPU " + *gpu.vgpu_profile);
  }

  void machine(MachineKind kind) const {
    const Virtualisation& found = environment_.virtualisation;
    const auto refuse_kind = [&](const std::string& why) {
      refuse(expect_environment, to_string(kind), why);
    };
    const bool by_container = kind == MachineKind::container;
    const std::string& unseen = by_container ? found.container.reason : found.machine.reason;
    if (by_container ? !found.container : !found.machine) {
      refuse_kind("no sign of what it is: " + unseen);
    }
    const std::string why = contradiction(kind, found);
    if (!why.empty()) refuse_kind("signs of another: " + why);
  }

  void link(const ExpectedLink& wanted) const {
    std::vector<std::string> found;
    bool all_known = true;
    for (const auto& [name, rate] : links_of(environment_, wanted.network)) {
      if (rate.value == wanted.bits_per_second) return;
      all_known = all_known && rate;
      found.push_back(name + " of " + (rate ? rate_text(*rate) : "unknown rate: " + rate.reason));
    }
    const std::string which =
        wanted.network ? "with an address in " + *wanted.network : std::string("that is up");
    refuse(expect_link, wanted.text,
           (found.empty() ? "no network interface " + which : joined(found)) +
               (all_known ? "" : "; claim no link here, or take a device that reports its rate"));
  }

 private:
  [[noreturn]] void refuse(FailureCode code, const std::string& value,
                           const std::string& why) const {
    throw NotAsExpected(code, std::string("--") + to_string(code) + " " + value + ": host " +
                                  environment_.host_name + " has " + why);
  }
  const Gpu& gpu_for(FailureCode code, const std::string& value) const {
    if (gpu_ == nullptr) refuse(code, value, "none for this rank, which computes on CPUs");
    return *gpu_;
  }

  const Environment& environment_;
  const Gpu* gpu_;
};

}  // namespace

std::string disagreement(std::span<const Report> ranks) {
  for (size_t i = 1; i < ranks.size(); ++i) {
    const std::string found = difference(ranks, i);
    if (!found.empty()) return found;
    const std::optional<std::string> gpu = gpu_of(ranks[i]);
    for (size_t j = 0; gpu && j < i; ++j) {
      if (gpu_of(ranks[j]) != gpu) continue;
      return name_of(ranks, j) + " and " + name_of(ranks, i) + " are on the same GPU, " + *gpu +
             ": start one rank per GPU";
    }
  }
  return "";
}

int64_t ranks_on_same_cpus(std::span<const Report> ranks, int rank) {
  const auto machine_of = [](const Report& one) {
    return operating_system_of(one.environments.at(0));
  };
  return std::ranges::count_if(ranks, [&](const Report& other) {
    return machine_of(other) == machine_of(ranks[rank]) && cpus_of(other) == cpus_of(ranks[rank]);
  });
}

void require_expected(const Expected& expected, const Environment& environment, const Gpu* gpu) {
  const Expectations look(environment, gpu);
  if (expected.gpu) look.gpu(*expected.gpu);
  if (expected.uuid) look.uuid(*expected.uuid);
  if (expected.mig) look.mig(*expected.mig);
  if (expected.vgpu) look.vgpu(*expected.vgpu);
  if (expected.environment) look.machine(*expected.environment);
  if (expected.link) look.link(*expected.link);
}

}  // namespace nearmetal
