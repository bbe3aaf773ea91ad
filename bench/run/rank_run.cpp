#include "bench/run/rank_run.h"

#include <array>
#include <functional>
#include <memory>
#include <optional>

#include "bench/cli/defaults.h"
#include "bench/environment/gpu.h"
#include "bench/monitor/monitor.h"
#include "bench/run/attribute.h"
#include "bench/run/progress_line.h"
#include "bench/run/rank_exchange.h"
#include "bench/run/rank_proof.h"
#include "bench/run/summary.h"
#include "bench/run/together.h"
#include "bench/run/trainer.h"
#include "bench/run/verify.h"
#include "models/errors.h"
#include "models/initialise.h"
#include "models/synthetic.h"
#include "reports/json/json.h"
#include "reports/json/plan_cache.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

constexpr int64_t verify_steps_cuda = 60;
constexpr int64_t verify_steps_cpu = 30;  // a step takes seconds there
constexpr int profile_repeats = 10;

uint64_t seed_of(const RunConfig& config) { return static_cast<uint64_t>(config.seed); }

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

ProgramOptions options_of(const RankTask& task, const PlanSource& plans, int64_t rank) {
  ProgramOptions options = program_options(task.config, plans, rank);
  options.gradient_type = gradient_type_of(task.config, task.world.size());
  return options;
}

// GPUs are tuned on rank 0; all take what it chose, since plans are part of the work.
PlanSource plans_of_all(const RankTask& task) {
  PlanSource plans = task.plans;
  if (task.config.device != Device::cuda || task.world.size() == 1) return plans;
  std::vector<Plan> chosen;
  together(task.world, [&] {
    if (task.world.rank() > 0) return;
    telling_memory(
        [&] { chosen = task.backend.choose_plans(task.graph, options_of(task, plans, 0)); });
  });
  plans.known = plans_from_json(task.world.broadcast(plans_to_json(chosen)));
  plans.pinned = true;
  return plans;
}

std::unique_ptr<Program> prepare_together(const RankTask& task) {
  const PlanSource plans = plans_of_all(task);
  std::unique_ptr<Program> program;
  together(task.world, [&] {
    telling_memory([&] {
      program = task.backend.prepare(task.graph, options_of(task, plans, task.world.rank()));
    });
  });
  return program;
}

std::unique_ptr<Program> prepare(const RankTask& task, const Exchange& exchange,
                                 Communication& communication, Run& run, Rank& rank) {
  auto program = prepare_together(task);
  const std::vector<float> parameters =
      initial_parameters(task.graph, seed_of(task.config), task.config.zero_init);
  together(task.world, [&] { require_same_parameters(task.world, parameters); });
  if (exchange.all_reduce != nullptr) {
    communication = prepare_exchange(task, *program, exchange, parameters);
  }
  program->restart(parameters);
  run.plans = program->plans();
  if (task.world.rank() == 0) keep_plans(task.plans, run.plans, run.warnings);
  rank.plans_sha256 = plans_sha256(run.plans);
  rank.device_bytes = program->device_bytes();
  return program;
}

// Of the window, as far as it went.
Maybe<double> samples_per_second(const TrainerResult& result, int64_t batch) {
  double seconds = 0;
  int64_t steps = 0;
  for (size_t i = result.window_first_step; result.warm_up && i < result.steps.size(); ++i) {
    seconds += result.steps[i].seconds;
    ++steps;
  }
  if (steps == 0) return Unknown{"the window did not open"};
  return static_cast<double>(steps * batch) / seconds;
}

void keep_monitoring(std::optional<Monitoring> found, Run& run, Rank& rank) {
  rank.monitoring = std::move(found);
  if (!rank.monitoring || rank.monitoring->verdict == MonitorVerdict::clean) return;
  run.warnings.push_back({std::string("monitor_") + to_string(rank.monitoring->verdict),
                          "in the timed window: " + joined(rank.monitoring->seen, "; ")});
}

TrainerResult train_shown(const RankTask& task, Program& program, Run& run, Rank& rank) {
  TrainerProgress progress;
  Monitor monitor({.hz = task.config.monitor_hz,
                   .pci_id = task.device.pci_id,
                   .mig_uuid = mig_uuid(task.device),
                   .ranks_on_host = task.world.local_size(),
                   .sharers = task.sharers},
                  progress);
  std::optional<ProgressLine> line;
  if (task.terminal.rewrites)
    line.emplace(task.terminal.err, progress, *task.config.batch, run.sample);
  const TrainerOptions options{.warm_up = warm_up_rule(task.config),
                               .window_steps = task.config.steps,
                               .window_seconds = task.config.duration_seconds};
  const auto ranks = make_consensus(
      task.world, exchanges_gradients(task.config, task.world.size()) || task.world.size() == 1);
  TrainerResult result;
  if (task.teller != nullptr) {
    task.teller->follow(progress, *task.config.batch * task.world.size(), run.sample);
  }
  if (task.conductor != nullptr) {
    ConductedConsensus consensus(*ranks, *task.conductor);
    result = train(program, options, consensus, task.stop, progress);
  } else {
    result = train(program, options, *ranks, task.stop, progress);
  }
  if (task.teller != nullptr) task.teller->unfollow();
  keep_monitoring(monitor.stop(samples_per_second(result, *task.config.batch)), run, rank);
  if (!result.failure.empty() && task.world.size() > 1) {
    const std::string phase = result.warm_up ? "the window" : "the warm-up";
    abort_job(task, "in " + phase + ", step " + std::to_string(result.steps.size()),
              result.failure);
  }
  return result;
}

void verify(const RankTask& task, Program& program, Run& run) {
  const VerifyOptions options{
      .batch = *task.config.batch,
      .seed = seed_of(task.config),
      .zero_init = task.config.zero_init,
      .maximum_steps = task.config.device == Device::cuda ? verify_steps_cuda : verify_steps_cpu};
  if (task.stop == 0) task.terminal.remark("verifying that the network learns");
  const Verify result = verify_learning(program, task.graph, options, task.stop);
  if (task.stop != 0) {
    run.status = Status::partial;
    run.failure = "interrupted before the end of --verify";
    return;
  }
  run.proof.verify = result;
  if (!result.passed) fail_run(run, "the network did not memorise the fixed set (--verify)");
}

// What is asked of a run beside its speed; where it fails, so has the run.
void look_closer(const RankTask& task, Program& program, AllReduce* all_reduce,
                 const Communication& communication, Run& run, Rank& rank) {
  try {
    if (all_reduce != nullptr) prove_replicas(task.world, program, run);
    if (task.config.profile) {
      run.profile = summarise(program.profile(profile_repeats), rank.step_time->median_seconds);
    }
    if (task.config.attribute) {
      task.terminal.remark("timing this machine (--attribute)");
      rank.probes = time_machine(task, program);
    }
    if (task.config.verify) verify(task, program, run);
    if (all_reduce != nullptr) measure_exchange(*all_reduce, communication, run);
  } catch (const std::exception& error) {
    // The others are in what all do together, and would wait there for ever.
    if (task.world.size() > 1 && (all_reduce != nullptr || task.config.attribute)) {
      abort_job(task, "after the window", error.what());
    }
    fail_run(run, error.what());
  }
}

}  // namespace

std::optional<Precision> gradient_type_of(const RunConfig& config, int64_t world_size) {
  if (config.gradient_type == GradientType::computed || !exchanges_gradients(config, world_size))
    return {};
  return from_name<Precision>(to_string(config.gradient_type));
}

ProgramOptions program_options(const RunConfig& config, const PlanSource& plans, int64_t rank) {
  ProgramOptions options;
  options.batch_size = config.batch.value();
  options.precision = config.precision.value();
  options.forward_only = config.forward_only;
  options.input = config.input;
  options.launch_as_graph = config.launch != LaunchMode::stream;
  options.host_sleeps = config.host_wait == HostWait::block;
  options.sgd = {config.learning_rate.value(), config.momentum, config.weight_decay};
  options.loss_scale = config.loss_scale.value();
  options.data_seed = substream(seed_of(config), static_cast<uint64_t>(rank));
  options.gpu = static_cast<int>(config.gpu);
  options.threads = static_cast<int>(config.threads);
  options.plans = plans.known;
  options.plans_pinned = plans.pinned;
  return options;
}

void run_rank(const RankTask& task, SetUp set_up, Run& run, Rank& rank) {
  const double start = task.clock.elapsed_seconds();
  // Outlives the program, which may still have work of it queued.
  const Exchange exchange = join_exchange(task);
  Communication communication;
  const std::unique_ptr<Program> program = prepare(task, exchange, communication, run, rank);
  const double prepared = task.clock.elapsed_seconds();
  set_up.prepare_seconds = prepared - start;
  task.terminal.remark("prepared in " + significant(set_up.prepare_seconds, 3) + " s: batch " +
                       std::to_string(*task.config.batch) + " on " + task.device.name);

  const TrainerResult result = train_shown(task, *program, run, rank);
  if (!result.steps.empty()) {
    set_up.total_seconds = task.clock.seconds_at(result.first_step_end);
    set_up.first_step_seconds = set_up.total_seconds - prepared;
    rank.set_up = set_up;
  }
  summarise(result, task.config, task.device, run, rank);
  std::array<int64_t, 1> incomplete{run.status != Status::complete};
  task.world.maximum(incomplete);
  if (incomplete[0] != 0) return;
  together(task.world, [&] {
    look_closer(task, *program, exchange.all_reduce.get(), communication, run, rank);
  });
}

}  // namespace nearmetal
