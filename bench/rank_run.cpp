#include "bench/rank_run.h"

#include <memory>
#include <optional>

#include "bench/defaults.h"
#include "bench/progress_line.h"
#include "bench/summary.h"
#include "bench/trainer.h"
#include "bench/verify.h"
#include "models/initialise.h"
#include "models/synthetic.h"
#include "reports/json.h"
#include "reports/text.h"

namespace nearmetal {
namespace {

constexpr int64_t verify_steps_cuda = 60;
constexpr int64_t verify_steps_cpu = 30;  // a step takes seconds there
constexpr int profile_repeats = 10;

uint64_t seed_of(const RunConfig& config) { return static_cast<uint64_t>(config.seed); }

std::unique_ptr<Program> prepare(const RankTask& task, Run& run, Rank& rank) {
  auto program =
      task.backend.prepare(task.graph, program_options(task.config, task.plans, rank.rank));
  program->restart(initial_parameters(task.graph, seed_of(task.config), task.config.zero_init));
  run.plans = program->plans();
  keep_plans(task.plans, run.plans, run.warnings);
  rank.plans_sha256 = plans_sha256(run.plans);
  rank.device_bytes = program->device_bytes();
  return program;
}

TrainerResult train_shown(const RankTask& task, Program& program) {
  TrainerProgress progress;
  std::optional<ProgressLine> line;
  if (task.terminal.rewrites) line.emplace(task.terminal.err, progress, *task.config.batch);
  const TrainerOptions options{.warm_up = warm_up_rule(task.config),
                               .window_steps = task.config.steps,
                               .window_seconds = task.config.duration_seconds};
  return train(program, options, task.stop, progress);
}

void verify(const RankTask& task, Program& program, Run& run) {
  const VerifyOptions options{
      .batch = *task.config.batch,
      .seed = seed_of(task.config),
      .zero_init = task.config.zero_init,
      .maximum_steps = task.config.device == "cuda" ? verify_steps_cuda : verify_steps_cpu};
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

}  // namespace

ProgramOptions program_options(const RunConfig& config, const PlanSource& plans, int64_t rank) {
  ProgramOptions options;
  options.batch_size = config.batch.value();
  options.precision = config.precision.value();
  options.forward_only = config.forward_only;
  options.input_from_host = config.input == "host";
  options.launch_as_graph = config.launch != "stream";
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
  const std::unique_ptr<Program> program = prepare(task, run, rank);
  const double prepared = task.clock.elapsed_seconds();
  set_up.prepare_seconds = prepared - start;
  task.terminal.remark("prepared in " + significant(set_up.prepare_seconds, 3) + " s: batch " +
                       std::to_string(*task.config.batch) + " on " + task.device.name);

  const TrainerResult result = train_shown(task, *program);
  if (!result.steps.empty()) {
    set_up.total_seconds = task.clock.seconds_at(result.first_step_end);
    set_up.first_step_seconds = set_up.total_seconds - prepared;
    rank.set_up = set_up;
  }
  summarise(result, task.config, task.device, run, rank);
  if (run.status != Status::complete) return;
  try {
    if (task.config.profile) {
      const double step_seconds = rank.step_time->median_seconds;
      run.profile = summarise(program->profile(profile_repeats), step_seconds);
    }
    if (task.config.verify) verify(task, *program, run);
  } catch (const std::exception& error) {
    fail_run(run, error.what());
  }
}

}  // namespace nearmetal
