#include "bench/run/rank_run.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/sha256.h"
#include "base/text.h"
#include "base/text_table.h"
#include "bench/cli/process.h"
#include "bench/environment/gpu.h"
#include "bench/run/attribute.h"
#include "bench/run/defaults.h"
#include "bench/run/digest.h"
#include "bench/run/together.h"
#include "bench/run/trainer.h"
#include "models/networks/registry.h"
#include "models/probe.h"
#include "models/synthetic.h"
#include "reports/json/kernel_cache.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

// Quantiles of steps that were taken one at a time.
Latency latency_of(std::span<const double> seconds) {
  constexpr ptrdiff_t fewest_for_p99 = 100;
  Latency latency;
  latency.steps = std::ssize(seconds);
  latency.median_seconds = median(seconds);
  latency.p95_seconds = quantile(seconds, 0.95);
  latency.p99_seconds = Unknown{"fewer than " + std::to_string(fewest_for_p99) + " steps"};
  if (std::ssize(seconds) >= fewest_for_p99) latency.p99_seconds = quantile(seconds, 0.99);
  return latency;
}

constexpr int64_t most_verify_samples = 16;
constexpr int64_t most_verify_steps = 60;
// The default rate of a run keeps random labels from stirring the logits: for VGG-16 it is too low
// to memorise anything in so few steps, and one that was asked for may be too high.
constexpr double verify_learning_rate_of_sgd = 0.01, verify_learning_rate_of_adamw = 1e-3;

constexpr int profile_repeats = 10;
constexpr int exchange_repeats = 5;

constexpr int64_t most_latency_steps = 1000, fewest_latency_steps = 20;
constexpr double latency_seconds = 5;

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

// Does `work`. What OutOfMemory says is made readable, and a sweep is told by a code, as the report
// has the text alone.
void with_memory_hint(const RankTask& task, const std::function<void()>& work) {
  try {
    work();
  } catch (const OutOfMemory& error) {
    const OutOfMemory hint(out_of_memory_text(error), error.needed_bytes, error.free_bytes,
                           error.largest_batch_size);
    if (task.reporter != nullptr) task.reporter->report(failure_event(hint));
    throw hint;
  }
}

// Those of a configuration, whose batch must be known, on this rank.
ProgramOptions rank_options(const RankTask& task, const RunConfig& config,
                            const KernelSource& kernels) {
  ProgramOptions options = program_options(config, kernels, task.world.size(), task.world.rank());
  options.stop = &task.context.stop;
  return options;
}

// The choices of all ranks, each operation once, as the first rank chose it; collective.
std::vector<KernelChoice> union_of_ranks(World& world, const std::vector<KernelChoice>& own) {
  std::vector<KernelChoice> all;
  for (const std::string& text : world.all_gather(kernel_choices_to_json(own))) {
    for (KernelChoice& choice : kernel_choices_from_json(text)) {
      if (!find_in(all, choice.key, &KernelChoice::key)) all.push_back(std::move(choice));
    }
  }
  return all;
}

// GPUs are tuned on the ranks of the first replica; all take what they chose, since plans are part
// of the work. Collective.
KernelSource kernels_of_all(const RankTask& task) {
  KernelSource kernels = task.kernels;
  World& world = task.world;
  if (task.config().device != Device::cuda || world.size() == 1) return kernels;
  std::vector<KernelChoice> chosen;
  together(world, [&] {
    if (replica_of(task.config(), world.rank()) > 0) return;
    const ProgramOptions options = rank_options(task, task.config(), kernels);
    with_memory_hint(task,
                     [&] { chosen = task.device.backend.choose_kernels(task.part(), options); });
  });
  kernels.known = union_of_ranks(world, chosen);
  kernels.pinned = true;
  return kernels;
}

// --batch auto: a little below what fits, as other processes take memory meanwhile; no tensor of
// 2^31 elements or more, as the fast convolution kernels do not index that far (batch 3,456 of
// ResNet-50 in fp16 on an H200: 563 images/s; 2,624: 11,488); and a multiple of 32, as the tiles of
// matrix units waste what is left over.
int64_t comfortable_batch(int64_t largest, int64_t largest_indexed) {
  const int64_t batch = std::min(largest - largest / 50, largest_indexed);
  return batch >= 64 ? batch / 32 * 32 : batch;
}

// Takes what fits on every rank, where the batch is to be found; collective. Throws
// std::runtime_error where not even one sample fits.
void choose_batch(RankTask& task) {
  World& world = task.world;
  RunConfig& config = task.device.config;
  if (config.batch != largest_that_fits) return;
  config.batch.reset();
  RunConfig smallest = config;
  smallest.batch = 1;
  fill_defaults(smallest, config.device);
  const ProgramOptions options = rank_options(task, smallest, task.kernels);
  int64_t largest = 0;
  together(world, [&] { largest = task.device.backend.largest_batch(task.part(), options); });
  largest = -maximum_of_ranks(world, -largest);  // every rank takes what fits on all
  if (largest < 1) throw std::runtime_error("out of memory: not even a batch of 1 fits");
  const auto elements = [](const Node& node) { return node.shape.elements(); };
  const int64_t tensor =
      elements(*std::ranges::max_element(task.device.graph.nodes(), {}, elements));
  const int64_t indexed = std::max<int64_t>(1, std::numeric_limits<int32_t>::max() / tensor);
  config.batch = comfortable_batch(largest, indexed);
  fill_defaults(config, config.device);
  task.terminal.remark("batches of up to " + std::to_string(largest) + " fit; taking " +
                       std::to_string(*config.batch) +
                       (indexed < largest ? ", as larger ones have tensors of 2^31 elements" : ""));
}

std::unique_ptr<Program> prepare_together(const RankTask& task, const ProgramOptions& options,
                                          StageLinks* links) {
  std::unique_ptr<Program> program;
  together(task.world, [&] {
    with_memory_hint(task, [&] { program = task.device.backend.prepare(task.part(), options); });
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

// The stages beside it wait for this one.
std::unique_ptr<StageLinks> join_stages_beside(const RankTask& task) {
  World& stages = *task.pipeline->stages;
  const bool on_gpus = task.config().device == Device::cuda;
  std::vector<StageGroups> groups;
  if (on_gpus) groups = stage_groups(stages, set_up_nccl(task.world));
  const int gpu = static_cast<int>(task.config().gpu);
  std::unique_ptr<StageLinks> links;
  or_abort(task, "to join the stages beside it",
           [&] { links = join_stage_links(on_gpus, {.world = stages, .gpu = gpu}, groups); });
  return links;
}

// Gives the program its parameters and its exchange.
Prepared start_from_seed(const RankTask& task, std::vector<Exchange>& exchanges, Program& program) {
  const std::vector<float> all = start_parameters(task.config());
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
    append(prepared.warnings, warnings_of_timing(task.kernels, prepared.kernel_choices,
                                                 task.device.info, task.world.size()));
  }
  prepared.device_bytes = program.device_bytes();
  return prepared;
}

bool on_all_cpus(const RankTask& task) {
  const int64_t threads = task.config().threads;
  return task.config().device == Device::cpu &&
         (threads == 0 || threads >= task.start.environment.usable_cpus);
}

void train_with_progress(RankTask& task, Program& program, RankResult& found) {
  TrainerProgress& progress = task.so_far.progress;
  Monitor monitor({.hz = task.config().monitor_hz,
                   .pci_id = describe_gpu(task.device.info).pci_id.value,
                   .mig_uuid = mig_uuid(task.device.info),
                   .on_all_cpus = on_all_cpus(task),
                   .ranks_on_host = task.world.local_size(),
                   .logical_cpus = task.start.environment.logical_cpus,
                   .sharing_jobs = task.request.sharing_jobs,
                   .through_mps = task.request.through_mps},
                  progress);
  const int64_t samples = step_samples(task.config());
  const SampleUnit sample = find_network(task.config().model).sample;
  std::jthread line;
  if (task.terminal.rewrites) line = show_progress(task.terminal, progress, samples, sample);
  const TrainerOptions options = trainer_options(task.config());
  const int world_size = task.world.size();
  const auto ranks = make_consensus(task.world, in_step(task.config(), world_size));
  TrainerResult& result = found.trained.emplace();
  ProgressReporter::Following following;
  if (task.reporter != nullptr) {
    following =
        task.reporter->follow(progress, samples * replicas_of(task.config(), world_size), sample);
  }
  std::unique_ptr<Consensus> controlled;
  if (task.control != nullptr) controlled = make_controlled(*ranks, *task.control);
  result = train(program, options, controlled ? *controlled : *ranks, task.context.stop, progress);
  found.first_step_end_seconds = task.context.clock.seconds_at(result.first_step_end);
  if (result.failure && task.reporter != nullptr) task.reporter->stay();
  following.reset();
  const auto window = window_of(result, samples);
  found.monitoring = monitor.stop(window ? Maybe(static_cast<double>(window->samples) /
                                                 static_cast<double>(task.config().pipeline))
                                         : Unknown{"the window did not open"});
  if (result.failure && world_size > 1) {
    const std::string phase = result.warm_up ? "the window" : "the warm-up";
    abort_job(task, "in " + phase + ", step " + std::to_string(result.steps.size()),
              *result.failure);
  }
}

// Starts from new parameters and trains on at most 16 distinct images, which fill the batch over
// and over, with labels that stay: passed as soon as the loss falls below half of ln(classes), the
// loss of a network that has not learned anything. Random labels cannot be guessed from images of
// noise, so that only working gradients and updates get there. Not passed: the bound was not
// reached in 60 steps, or a loss was not finite. None: a stop ended it, of all ranks at one step
// where they wait for one another's gradients.
std::optional<Verify> verify_learning(const RankTask& task, Program& program) {
  const Graph& graph = task.device.graph;
  const RunConfig& config = task.config();
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
    all = {.ready = done, .stop = task.context.stop != 0};
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

// Takes steps one at a time, each from the call that queues it to its end as the host sees it. None
// where `stop` ended it.
std::optional<Latency> measure_latency(Program& program, const std::atomic<int>& stop) {
  std::vector<double> seconds;
  seconds.reserve(most_latency_steps);
  const double start = steady_seconds();
  const auto goes_on = [&] {
    const auto steps = std::ssize(seconds);
    return steps < fewest_latency_steps ||
           (steps < most_latency_steps && steady_seconds() - start < latency_seconds);
  };
  while (goes_on()) {
    if (stop != 0) return std::nullopt;
    const double begin = steady_seconds();
    program.enqueue_step();
    program.wait_step();
    seconds.push_back(steady_seconds() - begin);
  }
  return latency_of(seconds);
}

// Finite logits alone prove little: a network that lost its weights leaves the same value
// everywhere.
bool are_sound(const std::vector<float>& logits) {
  return std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); }) &&
         std::ranges::adjacent_find(logits, std::not_equal_to<>()) != logits.end();
}

// Fills `latency` and `outputs_finite`, of the last step; a stop that is not 0 ends it. Where
// several jobs share the device it measures no latency.
void check_inference(Program& program, int64_t sharing_jobs, const std::atomic<int>& stop,
                     Checks& checks) {
  checks.outputs_finite = are_sound(program.logits());
  if (sharing_jobs > 1) {
    checks.latency = Unknown{"jobs that run at once end before it could be measured"};
    return;
  }
  if (const auto latency = measure_latency(program, stop)) {
    checks.latency = *latency;
  } else {
    checks.interrupted = "the latency";
  }
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
    if (task.config().inference) {
      check_inference(program, task.request.sharing_jobs, task.context.stop, checks);
    }
    if (task.config().profile) checks.profile = program.profile(profile_repeats, true);
    if (task.config().attribute) {
      task.terminal.remark("timing this machine (--attribute)");
      checks.probes = time_machine(task, program);
      if (task.context.stop != 0) checks.interrupted = "--attribute";
    }
    if (task.config().verify) {
      if (task.context.stop == 0) task.terminal.remark("verifying that the network learns");
      checks.verify = verify_learning(task, program);
      if (!checks.verify) checks.interrupted = "--verify";
    }
    if (task.config().digest) {
      if (task.context.stop == 0) task.terminal.remark("hashing the bits of some steps");
      checks.digests = take_digests(task, program);
      if (checks.digests.empty() && !checks.interrupted) checks.interrupted = "--digest";
    }
    if (all_reduce != nullptr) checks.bucket_tests = all_reduce->test(exchange_repeats);
  } catch (const JobFailure& failure) {
    if (!failure.is_stop()) throw;
    checks.interrupted = "the checks";
  } catch (const std::exception& error) {
    // The others are in what all do together, and would wait there for ever.
    const bool others_wait = all_reduce != nullptr || links != nullptr || task.config().attribute;
    if (task.world.size() > 1 && others_wait) {
      abort_job(task, "after the window", message_of(error));
    }
    checks.failure = message_of(error);
  }
  return checks;
}

// Why `work` failed, where the report says so: alone, or on all ranks by together(). Throws where
// nothing was run because of a setting, and where one rank of several failed.
std::optional<std::string> failure_of(const World& world, const std::function<void()>& work) {
  try {
    work();
  } catch (const std::invalid_argument&) {
    throw;  // a setting that this device does not take
  } catch (const JobFailure& failure) {
    if (failure.exit_code == ExitCode::usage) throw;
    if (failure.is_stop()) return std::nullopt;  // nothing was trained, which says it
    return failure.what();
  } catch (const std::exception& error) {
    if (world.size() > 1) throw;
    return message_of(error);
  }
  return std::nullopt;
}

}  // namespace

void abort_job(const RankTask& task, const std::string& what, const std::string& why) {
  const int64_t rank = task.world.rank();
  const std::string stage = stage_text(task.config(), rank);
  const std::string text = "rank " + std::to_string(rank) + " (" + host_name() + ")" +
                           (stage.empty() ? "" : ", " + stage + ",") + " failed " + what + ": " +
                           why;
  if (task.reporter != nullptr) {
    task.reporter->report(failure_event(JobFailure(text, ExitCode::run_failed, false)));
  }
  // In one piece, since a ProgressReporter may write to the same stream.
  task.terminal.err << "nearmetal: " + printable(text) + "\n" << std::flush;
  task.world.abort(static_cast<int>(ExitCode::run_failed));
}

void or_abort(const RankTask& task, const char* what, const std::function<void()>& work) {
  if (task.world.size() == 1) return work();
  try {
    work();
  } catch (const JobFailure&) {
    throw;  // all ranks do
  } catch (const std::exception& error) {
    abort_job(task, what, message_of(error));
  }
}

RankResult run_rank(RankTask& task) {
  RankResult result;
  result.failure = failure_of(task.world, [&] {
    choose_cuts(task);
    task.pipeline = join_pipeline(task.device, task.world);
    choose_batch(task);
    const double begin = task.context.clock.elapsed_seconds();
    // Outlives the program, which may still have work of it queued.
    std::vector<Exchange> exchanges = join_exchanges(task);
    std::unique_ptr<StageLinks> links;
    if (task.pipeline != nullptr) links = join_stages_beside(task);
    const ProgramOptions options = rank_options(task, task.config(), kernels_of_all(task));
    const std::unique_ptr<Program> program = prepare_together(task, options, links.get());
    Prepared prepared = start_from_seed(task, exchanges, *program);
    if (links != nullptr) {
      prepared.stage = prepared_stage(*task.pipeline, *program);
      prepared.stage_library = links->library();
    }
    prepared.begin_seconds = begin;
    prepared.end_seconds = task.context.clock.elapsed_seconds();
    task.terminal.remark("prepared in " + significant(prepared.end_seconds - begin, 3) +
                         " s: batch " + std::to_string(*task.config().batch) + " on " +
                         task.device.info.name);
    task.so_far.prepared = prepared;
    task.so_far.is_prepared = true;
    result.prepared = std::move(prepared);
    train_with_progress(task, *program, result);
    result.mpi_transports = task.world.transports();
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
