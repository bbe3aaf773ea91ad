#include "bench/commands/rank_job.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "bench/cli/build_info.h"
#include "bench/cli/defaults.h"
#include "bench/cli/destination.h"
#include "bench/cli/exit_status.h"
#include "bench/environment/binding.h"
#include "bench/environment/environment.h"
#include "bench/environment/gpu.h"
#include "bench/run/conductor.h"
#include "bench/run/expected.h"
#include "bench/run/gpu_ranks.h"
#include "bench/run/plan_source.h"
#include "bench/run/rank_facts.h"
#include "bench/run/rank_run.h"
#include "bench/run/run_result.h"
#include "bench/run/summary.h"
#include "bench/run/together.h"
#include "comm/world.h"
#include "models/errors.h"
#include "models/networks/registry.h"
#include "reports/files/atomic_file.h"
#include "reports/json/json.h"
#include "reports/merge/merge_ranks.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

// --batch auto: a little below what fits, as other processes take memory meanwhile; no tensor of
// 2^31 elements or more, as the fast convolution kernels do not index that far (batch 3,456 of
// ResNet-50 in fp16 on an H200: 563 images/s; 2,624: 11,488); and a multiple of 32, as the tiles of
// matrix units waste what is left over.
int64_t comfortable_batch(int64_t largest, int64_t largest_indexed) {
  const int64_t batch = std::min(largest - largest / 50, largest_indexed);
  return batch >= 64 ? batch / 32 * 32 : batch;
}

void settle_batch(RunConfig& config, const DeviceChoice& choice, const Graph& graph,
                  Backend& backend, World& world, const Terminal& terminal) {
  if (config.batch != largest_that_fits) return;
  ProgramOptions options;
  options.precision = *config.precision;
  options.forward_only = config.forward_only;
  options.input = config.input;
  options.gradient_type = gradient_type_of(config, world.size());
  options.gpu = static_cast<int>(config.gpu);
  options.threads = static_cast<int>(config.threads);
  config.batch.reset();
  int64_t largest = 0;
  together(world, [&] { largest = backend.largest_batch(graph, options); });
  std::array<int64_t, 1> fewer{-largest};
  world.maximum(fewer);  // every rank takes what fits on all
  largest = -fewer[0];
  if (largest < 1) throw std::runtime_error("out of memory: not even a batch of 1 fits");
  const int64_t indexed =
      std::max<int64_t>(1, std::numeric_limits<int32_t>::max() / graph.largest_tensor_elements());
  config.batch = comfortable_batch(largest, indexed);
  fill_defaults(config, choice);
  terminal.remark("batches of up to " + std::to_string(largest) + " fit; taking " +
                  std::to_string(*config.batch) +
                  (indexed < largest ? ", as larger ones have tensors of 2^31 elements" : ""));
}

Report new_report(const RunRequest& request, const Context& context) {
  Report report;
  report.kind = request.emulated ? Kind::emulated : Kind::measured;
  report.tool = build_info();
  report.invocation.argv = context.argv;
  report.invocation.origins = request.origins;
  report.invocation.started_at = time_stamp();
  return report;
}

Run new_run(const RunConfig& config, const DeviceChoice& choice, const DeviceInfo& device,
            const Graph& graph, const World& world) {
  Run run = run_of(graph, config);
  run.world_size = world.size();
  run.device = choice.device;
  run.device_name = device.name;
  run.device_reason = choice.reason;
  return run;
}

Environment new_environment(const RunConfig& config, const DeviceInfo& device, Rank& rank) {
  Environment environment = find_environment();
  environment.libraries = device.libraries;
  environment.claim = config.environment;
  if (config.host_facts) environment.host_facts = read_host_facts(*config.host_facts);
  if (config.device == Device::cuda) {
    environment.gpus.push_back(found_gpu(device));
    rank.gpu = 0;
  }
  return environment;
}

void warn_of_claim(const Environment& environment, Run& run) {
  if (!environment.claim) return;
  const std::string why = contradiction(*environment.claim, environment.virtualisation);
  if (why.empty()) return;
  run.warnings.push_back(
      {"claim_contradicted",
       "--environment says " + std::string(to_string(*environment.claim)) + ", but " + why});
}

void warn_of_threads(const RunConfig& config, const Environment& environment, Run& run) {
  if (config.device != Device::cpu || config.threads <= environment.usable_cpus) return;
  run.warnings.push_back({"threads", counted(config.threads, "thread") + " share " +
                                         counted(environment.usable_cpus, "CPU")});
}

// Ranks on the same CPUs share them.
void share_cpus(RunConfig& config, const Environment& environment, int64_t ranks) {
  if (config.device != Device::cpu || config.threads > 0 || ranks == 1) return;
  config.threads = std::max<int64_t>(1, environment.usable_cpus / ranks);
}

ExitCode exit_code_of(const Run& run, int stop_signal) {
  if (run.status == Status::failed) return ExitCode::run_failed;
  if (run.status == Status::complete) return ExitCode::ok;
  return stop_signal != 0 ? exit_code_of_signal(stop_signal) : ExitCode::terminated;
}

// What one rank does for `run`.
class RankJob {
 public:
  RankJob(const RunRequest& request, const Context& context, World& world)
      : request_(request),
        context_(context),
        terminal_(context.terminal),
        world_(world),
        config_(request.config) {
    terminal_.quiet = config_.quiet || world.rank() > 0;
    // mpirun gives its ranks a terminal of their own, wherever its output goes.
    if (world.size() > 1) terminal_.colour = false;
    terminal_.rewrites = terminal_.rewrites && !terminal_.quiet && !config_.no_progress;
    if (request.conducted) start_telling();
  }

  ExitCode run() {
    together(world_, [&] { settle(); });
    terminal_.remark("nearmetal: device " + std::string(to_string(choice_.device)) + " (" +
                     choice_.reason + ")");
    Report report = new_report(request_, context_);
    Run run = new_run(config_, choice_, device_, *graph_, world_);
    Rank rank;
    rank.rank = world_.rank();
    leave_open(run, rank, {"the run ended before"});
    report.environments = {new_environment(config_, device_, rank)};
    together(world_, [&] { require_expected(request_.expected, report.environments[0], rank); });
    bind(report.environments[0], rank);
    warn_of_claim(report.environments[0], run);
    warn_of_threads(config_, report.environments[0], run);
    require_one_job(report);
    SetUp set_up{.clock = context_.clock.clock(), .start_seconds = context_.clock.start_seconds()};
    set_up.backend_seconds = context_.clock.elapsed_seconds() - set_up.start_seconds;
    train(set_up, run, rank);

    run.ranks = {std::move(rank)};
    report.status = run.status;
    report.invocation.config = config_;
    report.invocation.config_sha256 = config_sha256(config_);
    Arm& arm = report.arms.emplace_back();
    arm.name = request_.arm;
    arm.kind = report.kind;
    arm.runs.push_back(std::move(run));
    return publish_job(report);
  }

 private:
  // Rank 0 writes to its standard output, which is the way of its report, too: what others write
  // must not get in between.
  void start_telling() {
    teller_.emplace(world_.rank() == 0 ? terminal_.out : terminal_.err, world_.rank());
    if (world_.rank() == 0) conductor_.emplace(*teller_, STDIN_FILENO);
  }

  // Finds the device and all else that this rank can find out for itself.
  void settle() {
    choice_ = choose_device(config_.device);
    fill_defaults(config_, choice_);
    check_settings(config_, request_.origins);
    graph_ = build_network(config_.model, {config_.image_size, config_.classes});
    require_trainable(*graph_, config_);
    if (!request_.conducted) {
      destination_ = choose_destination(config_);
      for (const std::string& remark : flags_without_effect(config_, world_.size())) {
        terminal_.remark(remark);
      }
    }
    if (world_.rank() == 0) require_writable(destination_);
    RunConfig common = config_;
    common.gpu = 0;  // of each rank its own
    settings_sha256_ = config_sha256(common);
    backend_ = &context_.load(to_string(config_.device));
    choose_gpu(config_, request_.origins, *backend_, world_);
    device_ = describe_device(*backend_, config_, choice_);
    if (!request_.gpu_part) return;
    backend_->take_part(static_cast<int>(config_.gpu), *request_.gpu_part);
    device_ = describe_device(*backend_, config_, choice_);
  }

  // Before anything of size is allocated, and most threads are started.
  void bind(const Environment& environment, Rank& rank) const {
    const Gpu* gpu = rank.gpu ? &environment.gpus.at(*rank.gpu) : nullptr;
    rank.binding = bind_to_node(node_to_bind_to(config_, gpu));
  }

  void require_one_job(const Report& report) {
    if (world_.size() == 1) return;
    std::vector<RankFacts> ranks;
    const RankFacts mine = facts_of(report, device_, settings_sha256_);
    for (const std::string& bytes : world_.all_gather(to_bytes(mine))) {
      ranks.push_back(rank_facts_from(bytes));
    }
    const std::string reason = disagreement(ranks);
    if (!reason.empty()) throw JobFailure(reason, ExitCode::usage, world_.rank() > 0);
    share_cpus(config_, report.environments[0], ranks_on_same_cpus(ranks, world_.rank()));
  }

  void train(const SetUp& set_up, Run& run, Rank& rank) {
    PlanSource plans;
    together(world_, [&] { plans = find_plans(config_, device_, run.warnings); });
    try {
      settle_batch(config_, choice_, *graph_, *backend_, world_, terminal_);
      run_rank({config_,
                *graph_,
                *backend_,
                device_,
                plans,
                context_.clock,
                terminal_,
                context_.stop,
                world_,
                teller_ ? &*teller_ : nullptr,
                conductor_ ? &*conductor_ : nullptr,
                {request_.sharers, request_.through_mps}},
               set_up, run, rank);
    } catch (const std::invalid_argument&) {
      throw;  // a setting that this device does not take: nothing was run
    } catch (const JobFailure& failure) {
      if (failure.exit_code == ExitCode::usage) throw;
      fail_run(run, failure.what());
    } catch (const std::exception& error) {
      if (world_.size() > 1) throw;
      fail_run(run, error.what());
    }
  }

  // Rank 0 puts the ranks' parts together and writes the report; all end with the same exit code,
  // as long as it can.
  ExitCode publish_job(const Report& mine) {
    std::vector<Report> parts;
    for (const std::string& text : world_.all_gather(to_json(mine))) {
      if (world_.rank() == 0) parts.push_back(report_from_json(text));
    }
    ExitCode code = ExitCode::ok;
    together(world_, [&] {
      if (world_.rank() > 0) return;
      Report report = merge_ranks(std::move(parts));
      code = exit_code_of(report.arms[0].runs[0], context_.stop);
      report.exit_code = static_cast<int>(code);
      if (config_.no_host_info && !conductor_) leave_out_host_info(report);
      if (conductor_) {
        tell_result(report, *teller_);
      } else {
        publish(report, destination_, terminal_);
      }
      tell_failure(report.arms[0].runs[0], terminal_);
    });
    std::array<int64_t, 1> codes{static_cast<int64_t>(code)};
    world_.maximum(codes);
    return static_cast<ExitCode>(codes[0]);
  }

  const RunRequest& request_;
  const Context& context_;
  Terminal terminal_;
  World& world_;
  RunConfig config_;
  DeviceChoice choice_;
  std::optional<Graph> graph_;
  Destination destination_;
  std::optional<Teller> teller_;        // of a job that a sweep started
  std::optional<Conductor> conductor_;  // the same, on rank 0
  std::string settings_sha256_;
  Backend* backend_ = nullptr;
  DeviceInfo device_;
};

}  // namespace

ExitCode run_rank(const RunRequest& request, const Context& context, World& world) {
  return RankJob(request, context, world).run();
}

}  // namespace nearmetal
