#include "bench/run/rank_run.h"

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

#include "bench/environment/gpu.h"
#include "bench/monitor/monitor.h"
#include "bench/run/attribute.h"
#include "bench/run/progress_line.h"
#include "bench/run/rank_exchange.h"
#include "bench/run/step_figures.h"
#include "bench/run/together.h"
#include "bench/run/trainer.h"
#include "bench/run/verify.h"
#include "models/errors.h"
#include "models/graph.h"
#include "models/networks/registry.h"
#include "reports/document/metric.h"
#include "reports/files/sha256.h"
#include "reports/json/plan_cache.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

constexpr int profile_repeats = 10;
constexpr int exchange_repeats = 5;

std::string out_of_memory_text(const OutOfMemory& error) {
  const auto gigabytes = [](int64_t bytes) {
    return significant(1e-9 * static_cast<double>(bytes)) + " GB";
  };
  return "out of memory: " + gigabytes(error.needed_bytes) + " needed, " +
         gigabytes(error.free_bytes) + " free; " +
         (error.largest_batch_size > 0
              ? "the largest batch that fits is " + std::to_string(error.largest_batch_size)
              : std::string("not even a batch of 1 fits"));
}

void telling_memory(const std::function<void()>& work) {
  try {
    work();
  } catch (const OutOfMemory& error) {
    throw std::runtime_error(out_of_memory_text(error));
  }
}

// GPUs are tuned on rank 0; all take what it chose, since plans are part of the work.
PlanSource plans_of_all(const RankTask& task) {
  PlanSource plans = task.plans;
  if (task.config.device != Device::cuda || task.world.size() == 1) return plans;
  std::vector<Plan> chosen;
  together(task.world, [&] {
    if (task.world.rank() > 0) return;
    const ProgramOptions options = program_options(task.config, plans, task.world.size());
    telling_memory([&] { chosen = task.backend.choose_plans(task.graph, options); });
  });
  plans.known = plans_from_json(task.world.broadcast(plans_to_json(chosen)));
  plans.pinned = true;
  return plans;
}

std::unique_ptr<Program> prepare_together(const RankTask& task) {
  const World& world = task.world;
  const ProgramOptions options =
      program_options(task.config, plans_of_all(task), world.size(), world.rank());
  std::unique_ptr<Program> program;
  together(task.world,
           [&] { telling_memory([&] { program = task.backend.prepare(task.graph, options); }); });
  return program;
}

std::string hash_of(std::span<const float> values) {
  return sha256({reinterpret_cast<const char*>(values.data()), values.size_bytes()});
}

// The first rank whose text is another than rank 0's; 0: none.
int64_t first_that_differs(World& world, const std::string& text) {
  const std::vector<std::string> all = world.all_gather(text);
  const auto other = std::find_if(all.begin(), all.end(),
                                  [&](const std::string& theirs) { return theirs != all[0]; });
  return other == all.end() ? 0 : other - all.begin();
}

void require_same_parameters(World& world, std::span<const float> parameters) {
  if (world.size() == 1) return;
  const int64_t other = first_that_differs(world, hash_of(parameters));
  if (other == 0) return;
  throw std::runtime_error("the seed gave rank " + std::to_string(other) +
                           " other initial parameters than rank 0: their libraries differ");
}

// Gives the program its parameters and its exchange.
Prepared start_from_seed(const RankTask& task, const Exchange& exchange, Program& program) {
  const std::vector<float> parameters = initial_parameters(
      task.graph, static_cast<uint64_t>(task.config.seed), task.config.zero_init);
  together(task.world, [&] { require_same_parameters(task.world, parameters); });
  Prepared prepared;
  if (exchange.all_reduce != nullptr) {
    prepared.communication = prepare_exchange(task, program, exchange, parameters);
    prepared.communication->library = exchange.all_reduce->library();
  }
  program.restart(parameters);
  prepared.plans = program.plans();
  if (task.world.rank() == 0) prepared.warnings = keep_plans(task.plans, prepared.plans);
  prepared.device_bytes = program.device_bytes();
  return prepared;
}

Trained train_shown(const RankTask& task, Program& program) {
  TrainerProgress progress;
  Monitor monitor({.hz = task.config.monitor_hz,
                   .pci_id = task.device.pci_id,
                   .mig_uuid = mig_uuid(task.device),
                   .ranks_on_host = task.world.local_size(),
                   .sharers = task.sharers,
                   .through_mps = task.through_mps},
                  progress);
  const int64_t batch = *task.config.batch;
  const SampleUnit sample = find_network(task.config.model).sample;
  std::optional<ProgressLine> line;
  if (task.terminal.rewrites) line.emplace(task.terminal.err, progress, batch, sample);
  const TrainerOptions options{.warm_up = warm_up_rule(task.config),
                               .window_steps = task.config.steps,
                               .window_seconds = task.config.duration_seconds};
  const auto ranks = make_consensus(
      task.world, exchanges_gradients(task.config, task.world.size()) || task.world.size() == 1);
  Trained trained;
  TrainerResult& result = trained.result;
  if (task.teller != nullptr) {
    task.teller->follow(progress, batch * task.world.size(), sample);
  }
  if (task.conductor != nullptr) {
    ConductedConsensus consensus(*ranks, *task.conductor);
    result = train(program, options, consensus, task.stop, progress);
  } else {
    result = train(program, options, *ranks, task.stop, progress);
  }
  if (task.teller != nullptr) task.teller->unfollow();
  const auto window = window_of(result, batch);
  trained.monitoring =
      monitor.stop(window ? Maybe(throughput_of(*window)) : Unknown{"the window did not open"});
  trained.first_step_end_seconds = task.clock.seconds_at(result.first_step_end);
  if (!result.failure.empty() && task.world.size() > 1) {
    const std::string phase = result.warm_up ? "the window" : "the warm-up";
    abort_job(task, "in " + phase + ", step " + std::to_string(result.steps.size()),
              result.failure);
  }
  return trained;
}

// The gradient and the parameters are lost.
Checks check(const RankTask& task, Program& program, AllReduce* all_reduce) {
  Checks checks;
  try {
    if (all_reduce != nullptr) {
      checks.other_replica = first_that_differs(
          task.world, hash_of(program.parameters()) + hash_of(program.momentum()));
    }
    if (task.config.profile) checks.profile = program.profile(profile_repeats);
    if (task.config.attribute) {
      task.terminal.remark("timing this machine (--attribute)");
      checks.probes = time_machine(task, program);
    }
    if (task.config.verify) {
      if (task.stop == 0) task.terminal.remark("verifying that the network learns");
      checks.verify = verify_learning(program, task.graph, task.config, task.stop);
      checks.verify_interrupted = !checks.verify;
    }
    if (all_reduce != nullptr) checks.bucket_tests = all_reduce->test(exchange_repeats);
  } catch (const std::exception& error) {
    // The others are in what all do together, and would wait there for ever.
    if (task.world.size() > 1 && (all_reduce != nullptr || task.config.attribute)) {
      abort_job(task, "after the window", error.what());
    }
    checks.failure = error.what();
  }
  return checks;
}

}  // namespace

std::optional<std::string> failure_of(const World& world, const std::function<void()>& work) {
  try {
    work();
  } catch (const std::invalid_argument&) {
    throw;  // a setting that this device does not take
  } catch (const JobFailure& failure) {
    if (failure.exit_code == ExitCode::usage) throw;
    return failure.what();
  } catch (const std::exception& error) {
    if (world.size() > 1) throw;
    return error.what();
  }
  return std::nullopt;
}

RankResult run_rank(const RankTask& task) {
  RankResult result;
  result.failure = failure_of(task.world, [&] {
    const double begin = task.clock.elapsed_seconds();
    // Outlives the program, which may still have work of it queued.
    const Exchange exchange = join_exchange(task);
    const std::unique_ptr<Program> program = prepare_together(task);
    Prepared prepared = start_from_seed(task, exchange, *program);
    prepared.begin_seconds = begin;
    prepared.end_seconds = task.clock.elapsed_seconds();
    task.terminal.remark("prepared in " + significant(prepared.end_seconds - begin, 3) +
                         " s: batch " + std::to_string(*task.config.batch) + " on " +
                         task.device.name);
    result.prepared = std::move(prepared);
    result.trained = train_shown(task, *program);
    std::array<int64_t, 1> incomplete{result.trained->result.stopped ||
                                      failure_of(result.trained->result)};
    task.world.maximum(incomplete);
    if (incomplete[0] != 0) return;
    together(task.world, [&] { result.checks = check(task, *program, exchange.all_reduce.get()); });
  });
  return result;
}

}  // namespace nearmetal
