#include "bench/run/rank_run.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "bench/environment/gpu.h"
#include "bench/monitor/monitor.h"
#include "bench/run/attribute.h"
#include "bench/run/check_inference.h"
#include "bench/run/rank_kernels.h"
#include "bench/run/samples.h"
#include "bench/run/together.h"
#include "bench/run/trainer.h"
#include "models/errors.h"
#include "models/graph.h"
#include "models/networks/registry.h"
#include "models/synthetic.h"
#include "reports/document/metric.h"
#include "reports/files/sha256.h"
#include "reports/json/kernel_cache.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

constexpr int64_t most_verify_samples = 16;
constexpr int64_t most_verify_steps = 60;
// The default rate of a run keeps random labels from stirring the logits: for VGG-16 it is too low
// to memorise anything in so few steps, and one that was asked for may be too high.
constexpr double verify_learning_rate_of_sgd = 0.01, verify_learning_rate_of_adamw = 1e-3;

constexpr int profile_repeats = 10;
constexpr int exchange_repeats = 5;

std::unique_ptr<Program> prepare_together(const RankTask& task, const ProgramOptions& options,
                                          StageLinks* links) {
  std::unique_ptr<Program> program;
  together(task.world, [&] {
    with_memory_hint(task, [&] { program = task.backend.prepare(task.part(), options); });
  });
  if (links != nullptr) {
    or_abort(task, "to join the stages beside it", [&] { program->connect_stages(*links); });
  }
  return program;
}

std::string hash_of(std::span<const float> values) {
  return sha256({reinterpret_cast<const char*>(values.data()), values.size_bytes()});
}

// The first rank whose text is another than rank 0's; 0: none.
int64_t first_that_differs(World& world, const std::string& text) {
  const std::vector<std::string> all = world.all_gather(text);
  const auto other =
      std::ranges::find_if(all, [&](const std::string& theirs) { return theirs != all[0]; });
  return other == all.end() ? 0 : other - all.begin();
}

void require_same_parameters(World& world, std::span<const float> parameters) {
  if (world.size() == 1) return;
  const int64_t other = first_that_differs(world, hash_of(parameters));
  if (other == 0) return;
  throw std::runtime_error("the seed gave rank " + std::to_string(other) +
                           " other initial parameters than rank 0: their libraries differ");
}

std::unique_ptr<StageLinks> join_stages_beside(const RankTask& task) {
  std::vector<StageGroups> groups;
  if (task.config.device == Device::cuda) {
    groups = stage_groups(*task.pipeline->stages, set_up_nccl(task.world));
  }
  std::unique_ptr<StageLinks> links;
  or_abort(task, "to join the stages beside it",
           [&] { links = join_neighbours(task.config, *task.pipeline, groups); });
  return links;
}

// Gives the program its parameters and its exchange.
Prepared start_from_seed(const RankTask& task, std::vector<Exchange>& exchanges, Program& program) {
  const std::vector<float> all = start_parameters(task.config);
  together(task.world, [&] { require_same_parameters(task.world, all); });
  const std::span<const float> parameters = task.own(all);
  Prepared prepared;
  if (!exchanges.empty()) {
    prepared.communication = prepare_exchange(task, program, exchanges, parameters);
    prepared.communication->library = exchanges.front().all_reduce->library();
  }
  program.restart(parameters);
  prepared.kernel_choices = program.kernel_choices();
  if (task.pipeline != nullptr) {
    prepared.kernel_choices = union_of_ranks(task.world, prepared.kernel_choices);
  }
  if (task.world.rank() == 0) {
    prepared.warnings = keep_choices(task.kernels, prepared.kernel_choices);
    std::ranges::move(
        warnings_of_timing(task.kernels, prepared.kernel_choices, task.device, task.world.size()),
        std::back_inserter(prepared.warnings));
  }
  prepared.device_bytes = program.device_bytes();
  return prepared;
}

bool on_all_cpus(const RunConfig& config) {
  cpu_set_t mask;
  const bool known = sched_getaffinity(0, sizeof mask, &mask) == 0;
  return config.threads == 0 || (known && config.threads >= CPU_COUNT(&mask));
}

void train_with_progress(const RankTask& task, Program& program, RankResult& found) {
  TrainerProgress& progress = task.so_far.progress;
  Monitor monitor({.hz = task.config.monitor_hz,
                   .pci_id = task.device.pci_id,
                   .mig_uuid = mig_uuid(task.device),
                   .on_all_cpus = task.config.device == Device::cpu && on_all_cpus(task.config),
                   .ranks_on_host = task.world.local_size(),
                   .sharing_jobs = task.sharing_jobs,
                   .through_mps = task.through_mps},
                  progress);
  const int64_t samples = step_samples(task.config);
  const SampleUnit sample = find_network(task.config.model).sample;
  std::jthread line;
  if (task.terminal.rewrites) line = show_progress(task.terminal, progress, samples, sample);
  const TrainerOptions options = trainer_options(task.config);
  const int world_size = task.world.size();
  const auto ranks = make_consensus(task.world, in_step(task.config, world_size));
  TrainerResult& result = found.trained.emplace();
  ProgressReporter::Following following;
  if (task.reporter != nullptr) {
    following =
        task.reporter->follow(progress, samples * replicas_of(task.config, world_size), sample);
  }
  if (task.control != nullptr) {
    const auto controlled = make_controlled(*ranks, *task.control);
    result = train(program, options, *controlled, task.stop, progress);
  } else {
    result = train(program, options, *ranks, task.stop, progress);
  }
  if (!result.failure.empty() && task.reporter != nullptr) task.reporter->stay();
  following.reset();
  const auto window = window_of(result, samples);
  found.monitoring = monitor.stop(
      window ? Maybe(throughput_of(*window) / static_cast<double>(task.config.pipeline))
             : Unknown{"the window did not open"});
  found.first_step_end_seconds = task.clock.seconds_at(result.first_step_end);
  if (!result.failure.empty() && world_size > 1) {
    const std::string phase = result.warm_up ? "the window" : "the warm-up";
    abort_job(task, "in " + phase + ", step " + std::to_string(result.steps.size()),
              result.failure);
  }
}

// Starts from new parameters and trains on at most 16 distinct images, which fill the batch over
// and over, with labels that stay: passed as soon as the loss falls below half of ln(classes), the
// loss of a network that has not learned anything. Random labels cannot be guessed from images of
// noise, so that only working gradients and updates get there. Not passed: the bound was not
// reached in 60 steps, or a loss was not finite. None: a stop ended it, of all ranks at one step
// where they wait for one another's gradients.
std::optional<Verify> verify_learning(const RankTask& task, Program& program) {
  const Graph& graph = task.graph;
  const RunConfig& config = task.config;
  const auto seed = static_cast<uint64_t>(config.seed);
  Verify result;
  result.samples = std::min(most_verify_samples, *config.batch);
  result.maximum_steps = most_verify_steps;
  result.bound = 0.5 * std::log(static_cast<double>(graph.classes()));
  // Not the images that it trains on.
  const Samples samples = repeated_samples(graph, substream(seed, 0x766572696679),
                                           step_samples(config), result.samples);
  program.use_learning_rate(config.optimizer == Optimizer::adamw ? verify_learning_rate_of_adamw
                                                                 : verify_learning_rate_of_sgd);
  program.restart(task.own(initial_parameters(graph, seed, config.zero_init)));
  samples.give_to(program);
  std::unique_ptr<Consensus> others;  // null: no rank waits for another
  if (in_step(config, task.world.size())) others = make_consensus(task.world, true);
  StepVote all;
  for (bool done = false;;) {
    all = {.ready = done, .stop = task.stop != 0};
    if (others) all = others->agree(all);
    if (all.ready || all.stop) break;
    program.enqueue_step();
    const double loss = program.wait_step().loss;
    if (done) continue;  // another rank is not
    ++result.steps;
    if (result.steps == 1 && std::isfinite(loss)) result.first_loss = loss;
    result.last_loss =
        std::isfinite(loss) ? Maybe<double>(loss) : Unknown{"the loss is not finite"};
    result.passed = loss < result.bound;
    done = result.passed || !std::isfinite(loss) || result.steps == result.maximum_steps;
  }
  return all.stop ? std::nullopt : std::optional(result);
}

// The gradient and the parameters are lost.
Checks check(const RankTask& task, Program& program, AllReduce* all_reduce, StageLinks* links) {
  Checks checks;
  try {
    if (all_reduce != nullptr) {
      checks.other_replica = first_that_differs(
          task.replicas(), hash_of(program.parameters()) + hash_of(program.momentum()) +
                               hash_of(program.second_moments()));
    }
    if (task.pipeline != nullptr) {
      checks.marks = program.task_marks();
      checks.boundary_test = test_boundaries(*task.pipeline, *links, program);
    }
    if (task.config.inference) {
      check_inference(program, task.sharing_jobs, task.stop, checks);
    }
    if (task.config.profile) checks.profile = program.profile(profile_repeats);
    if (task.config.attribute) {
      task.terminal.remark("timing this machine (--attribute)");
      checks.probes = time_machine(task, program);
    }
    if (task.config.verify) {
      if (task.stop == 0) task.terminal.remark("verifying that the network learns");
      checks.verify = verify_learning(task, program);
      if (!checks.verify) checks.interrupted = "--verify";
    }
    if (all_reduce != nullptr) checks.bucket_tests = all_reduce->test(exchange_repeats);
  } catch (const std::exception& error) {
    // The others are in what all do together, and would wait there for ever.
    const bool others_wait = all_reduce != nullptr || links != nullptr || task.config.attribute;
    if (task.world.size() > 1 && others_wait) {
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
    std::vector<Exchange> exchanges = join_exchanges(task);
    std::unique_ptr<StageLinks> links;
    if (task.pipeline != nullptr) links = join_stages_beside(task);
    const ProgramOptions options =
        program_options(task.config, kernels_of_all(task), task.world.size(), task.world.rank());
    const std::unique_ptr<Program> program = prepare_together(task, options, links.get());
    Prepared prepared = start_from_seed(task, exchanges, *program);
    if (links != nullptr) {
      prepared.stage = prepared_stage(*task.pipeline, *program);
      prepared.stage_library = links->library();
    }
    prepared.begin_seconds = begin;
    prepared.end_seconds = task.clock.elapsed_seconds();
    task.terminal.remark("prepared in " + significant(prepared.end_seconds - begin, 3) +
                         " s: batch " + std::to_string(*task.config.batch) + " on " +
                         task.device.name);
    task.so_far.prepared = prepared;
    task.so_far.is_prepared = true;
    result.prepared = std::move(prepared);
    train_with_progress(task, *program, result);
    const bool incomplete = result.trained->stopped || failure_of(*result.trained);
    if (maximum_of_ranks(task.world, incomplete) != 0) return;
    together(task.world, [&] {
      AllReduce* all_reduce = exchanges.empty() ? nullptr : exchanges.front().all_reduce.get();
      result.checks = check(task, *program, all_reduce, links.get());
    });
  });
  return result;
}

}  // namespace nearmetal
