#include "bench/run/together.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "bench/cli/process.h"

namespace nearmetal {
namespace {

class InStep : public Consensus {
 public:
  explicit InStep(World& world) : world_(world) {}

  StepVote agree(StepVote mine) override {
    std::array<int64_t, 3> values{!mine.ready, mine.stop, mine.window_steps};
    world_.maximum(values);
    return {.ready = values[0] == 0, .stop = values[1] != 0, .window_steps = values[2]};
  }
  int64_t agree_steps(int64_t mine) override { return maximum_of_ranks(world_, mine); }

 private:
  World& world_;
};

// Votes one after another, each as soon as all ranks have given theirs, so that what one rank is
// told reaches all of them. None waits for a vote.
class IndependentRanks : public Consensus {
 public:
  explicit IndependentRanks(World& world) : world_(world) {}

  StepVote agree(StepVote mine) override {
    if (!asked_) world_.start_maximum(mine.stop ? stops : mine.ready ? is_ready : goes_on);
    asked_ = true;
    StepVote agreed{.window_steps = mine.window_steps};
    const auto answer = world_.started_maximum();
    if (!answer) return agreed;
    asked_ = false;
    agreed.ready = *answer == is_ready;
    agreed.stop = *answer == stops;
    return agreed;
  }
  int64_t agree_steps(int64_t mine) override { return mine; }

 private:
  static constexpr int64_t is_ready = 0, goes_on = 1, stops = 2;  // the largest decides

  World& world_;
  bool asked_ = false;
};

}  // namespace

void together(World& world, const std::function<void()>& work) {
  if (world.size() == 1) return work();
  std::string failure;  // as an event, empty: none
  try {
    work();
  } catch (const std::exception& error) {
    failure = to_json_line(failure_event(error));
  }
  const std::vector<std::string> failures = world.all_gather(failure);
  const auto failed = std::ranges::find(failures, false, &std::string::empty);
  if (failed == failures.end()) return;
  const Event first = event_from_json(*failed);
  std::string text = first.failure->text;
  const auto same = [&](const std::string& line) {
    return !line.empty() && event_from_json(line).failure->text == first.failure->text;
  };
  if (!std::ranges::all_of(failures, same)) {
    text = "rank " + std::to_string(failed - failures.begin()) + " (" + first.host + "): " + text;
  }
  throw JobFailure(text, static_cast<ExitCode>(first.failure->exit_code), world.rank() > 0,
                   first.failure->code);
}

int64_t maximum_of_ranks(World& world, int64_t mine) {
  std::array<int64_t, 1> largest{mine};
  world.maximum(largest);
  return largest[0];
}

Event failure_event(const std::exception& error) {
  Failure failure{{}, static_cast<int>(exit_code_of(error)), message_of(error)};
  if (const auto* job = dynamic_cast<const JobFailure*>(&error)) failure.code = job->code;
  if (const auto* own = dynamic_cast<const NotAsExpected*>(&error)) failure.code = own->code;
  if (dynamic_cast<const OutOfMemory*>(&error) != nullptr)
    failure.code = FailureCode::out_of_memory;
  Event event;
  event.kind = EventKind::failure;
  event.host = host_name();
  event.failure = failure;
  return event;
}

std::string failure_text(const World& world, const std::exception& error) {
  const bool alone = world.size() > 1 && dynamic_cast<const JobFailure*>(&error) == nullptr;
  return (alone ? "rank " + std::to_string(world.rank()) + " (" + host_name() + "): " : "") +
         message_of(error);
}

ExitCode as_rank(World& world, const Terminal& terminal, const std::function<ExitCode()>& work) {
  try {
    return work();
  } catch (const JobFailure& failure) {
    if (!failure.reported) terminal.error(failure.what());
    throw JobFailure(failure.what(), failure.exit_code, true, failure.code);
  } catch (const std::exception& error) {
    if (world.size() > 1) {
      terminal.error(failure_text(world, error));
      world.abort(static_cast<int>(exit_code_of(error)));
    }
    throw;
  }
}

std::unique_ptr<Consensus> make_consensus(World& world, bool in_step) {
  if (in_step) return std::make_unique<InStep>(world);
  return std::make_unique<IndependentRanks>(world);
}

Nccl& set_up_nccl(World& world, const NcclSetUp& set_up) {
  Nccl* nccl = nullptr;
  together(world, [&] {
    nccl = &load_nccl();
    nccl->set_up(set_up);
  });
  const std::string version = world.broadcast(nccl->version());
  together(world, [&] {
    if (nccl->version() == version) return;
    throw std::runtime_error("this rank loads " + nccl->version() + ", rank 0 " + version);
  });
  return *nccl;
}

std::string new_nccl_group(World& world, Nccl& nccl, int maker) {
  std::string name;
  together(world, [&] {
    if (world.rank() == maker) name = nccl.new_group();
  });
  return world.all_gather(name)[maker];
}

std::vector<RankHost> hosts_of_ranks(World& world) {
  const RankHost own = rank_host();
  const std::vector<std::string> names = world.all_gather(own.name);
  const std::vector<std::string> boot_ids = world.all_gather(own.boot_id);
  std::vector<RankHost> hosts;
  for (size_t i = 0; i < names.size(); ++i) hosts.push_back({names[i], boot_ids[i]});
  return hosts;
}

}  // namespace nearmetal
