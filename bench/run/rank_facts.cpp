#include "bench/run/rank_facts.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "bench/cli/process.h"
#include "bench/environment/environment.h"
#include "models/errors.h"
#include "models/program.h"
#include "reports/files/sha256.h"
#include "reports/json/report_files.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

// The allowed CPUs in /proc/self/status, e.g. "0-15".
std::string allowed_cpus() {
  std::ifstream status("/proc/self/status");
  const std::string name = "Cpus_allowed_list:";
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return line.substr(line.find_first_not_of(" \t", name.size()));
  }
  return "";
}

std::string name_of(std::span<const RankFacts> ranks, size_t rank) {
  return "rank " + std::to_string(rank) + " (" + ranks[rank].host_name + ")";
}

std::string value_of(const RankFacts& facts, const std::string& name) {
  const auto found = facts.common.find(name);
  return found == facts.common.end() ? "none" : found->second;
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

RankFacts facts_of(const Environment& environment, const DeviceInfo& device,
                   const std::string& config_sha256) {
  RankFacts facts;
  facts.host_name = environment.host_name;
  facts.operating_system = operating_system_of(environment);
  facts.cpus = allowed_cpus();
  facts.gpu_uuid = device.uuid;
  facts.common = device.libraries;
  facts.common["device"] = device.name;
  facts.common["settings"] = config_sha256;
  const Tool tool = build_info();
  facts.common["nearmetal"] = tool.version + " " + tool.git_commit.value.value_or("");
  facts.common["executable"] = sha256(file_text("/proc/self/exe"));
  return facts;
}

std::string to_bytes(const RankFacts& facts) {
  std::string bytes;
  const auto add = [&](const std::string& text) { bytes += text + '\0'; };
  add(facts.host_name);
  add(facts.operating_system);
  add(facts.cpus);
  add(facts.gpu_uuid);
  for (const auto& [name, value] : facts.common) {
    add(name);
    add(value);
  }
  return bytes;
}

RankFacts rank_facts_from(const std::string& bytes) {
  std::istringstream stream(bytes);
  const auto next = [&] {
    std::string text;
    std::getline(stream, text, '\0');
    return text;
  };
  RankFacts facts;
  facts.host_name = next();
  facts.operating_system = next();
  facts.cpus = next();
  facts.gpu_uuid = next();
  while (stream.peek() != std::istringstream::traits_type::eof()) {
    const std::string name = next();
    facts.common[name] = next();
  }
  return facts;
}

std::string disagreement(std::span<const RankFacts> ranks) {
  for (size_t i = 1; i < ranks.size(); ++i) {
    std::map<std::string, std::string> names = ranks[0].common;
    names.insert(ranks[i].common.begin(), ranks[i].common.end());
    for (const auto& [name, unused] : names) {
      const std::string first = value_of(ranks[0], name), other = value_of(ranks[i], name);
      if (first == other) continue;
      return name_of(ranks, i) + " differs from " + name_of(ranks, 0) + " in " + name + ": " +
             other + " against " + first;
    }
    for (size_t j = 0; j < i; ++j) {
      if (!ranks[i].gpu_uuid.empty() && ranks[i].gpu_uuid == ranks[j].gpu_uuid) {
        return name_of(ranks, j) + " and " + name_of(ranks, i) + " are on the same GPU, " +
               ranks[i].gpu_uuid + ": start one rank per GPU";
      }
    }
  }
  return "";
}

int64_t ranks_on_same_cpus(std::span<const RankFacts> ranks, int rank) {
  return std::ranges::count_if(ranks, [&](const RankFacts& other) {
    return other.operating_system == ranks[rank].operating_system && other.cpus == ranks[rank].cpus;
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
