// The facts that the ranks of a job must agree in, and must find, before they start.
#pragma once

#include <map>
#include <span>
#include <string>

#include "bench/cli/run_request.h"
#include "reports/document/types.h"

namespace nearmetal {

struct DeviceInfo;

struct RankFacts {
  std::string host_name;                      // for messages
  std::string operating_system;               // as operating_system_of() tells them apart
  std::string cpus;                           // allowed to the process, as in /proc/self/status
  std::string gpu_uuid;                       // empty: none, or not known
  std::map<std::string, std::string> common;  // name to what must be the same on every rank
};

/// `config_sha256`: of the settings, before a rank takes a GPU and threads of its own.
RankFacts facts_of(const Environment& environment, const DeviceInfo& device,
                   const std::string& config_sha256);

std::string to_bytes(const RankFacts& facts);
RankFacts rank_facts_from(const std::string& bytes);

/// One line on what keeps these ranks, in order, from being one job; empty: nothing.
std::string disagreement(std::span<const RankFacts> ranks);

/// How many ranks, this one among them, run on the same CPUs of the same host.
int64_t ranks_on_same_cpus(std::span<const RankFacts> ranks, int rank);

/// Throws NotAsExpected with the option and what is there instead. `gpu`: that of the rank, null on
/// CPUs.
void require_expected(const Expected& expected, const Environment& environment, const Gpu* gpu);

}  // namespace nearmetal
