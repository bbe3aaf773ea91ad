// The joint actions of the ranks of a job: succeed or fail, decide, and find one another.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/errors.h"
#include "bench/cli/output.h"
#include "comm/join_ranks.h"
#include "comm/nccl.h"
#include "comm/world.h"
#include "reports/json/event_json.h"

namespace nearmetal {

/// Every rank does `work`, then all learn how the others fared. What the lowest rank that failed
/// threw comes out of it on all ranks as JobFailure; alone, as it is.
void together(World& world, const std::function<void()>& work);

/// Collective.
int64_t maximum_of_ranks(World& world, int64_t mine);

/// The event that reports a rank's failure.
Event failure_event(const std::exception& error);

/// The message about an error, with the rank before it where one of several failed alone.
std::string failure_text(const World& world, const std::exception& error);

/// All that this rank does for a command. Where it fails on this rank alone the whole job ends, for
/// the others would wait for ever; the reason is told before any rank ends, as a launcher
/// kills the others once one has ended with a failure.
ExitCode as_rank(World& world, const Terminal& terminal, const std::function<ExitCode()>& work);

struct StepVote {
  bool ready = false;        // for what comes next: the timed window, or the end
  bool stop = false;         // early
  int64_t window_steps = 0;  // of the timed window, once it is open
};

class Consensus {
 public:
  virtual ~Consensus() = default;
  /// Every rank calls this after each of its steps: `ready` once all ranks are, `stop` once
  /// one of them wants to; of ranks that run in step, the most steps that one asks for.
  virtual StepVote agree(StepVote mine) = 0;
  /// How many steps the timed window has: of ranks that run in step, the most that one asks for.
  virtual int64_t agree_steps(int64_t mine) = 0;
};

/// `in_step`: every rank takes the same steps and gets each answer at the same one, as an exchange
/// of gradients asks for. Else no rank waits for another: each takes steps until all are ready.
std::unique_ptr<Consensus> make_consensus(World& world, bool in_step);

/// NCCL before it makes its first group here; collective. Throws JobFailure where a rank has none
/// or another one.
Nccl& set_up_nccl(World& world, const NcclSetUp& set_up = {});

/// NCCL's name of a new group, which each of its ranks gets from `maker`: of all ranks, or of those
/// of a host; collective. Throws JobFailure where a rank cannot make its own.
std::string new_nccl_group(World& world, Nccl& nccl, int maker = 0);

/// The host of each rank; collective.
std::vector<RankHost> hosts_of_ranks(World& world);

}  // namespace nearmetal
