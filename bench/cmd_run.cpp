#include "bench/cmd_run.h"

#include <sstream>
#include <utility>

#include "bench/build_info.h"
#include "bench/defaults.h"
#include "bench/destination.h"
#include "bench/environment.h"
#include "bench/exit_status.h"
#include "bench/plan_source.h"
#include "bench/rank_run.h"
#include "bench/summary.h"
#include "bench/table.h"
#include "models/resnet.h"
#include "reports/atomic_file.h"
#include "reports/json.h"
#include "reports/text.h"

namespace nearmetal {
namespace {

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

// --batch auto: a little below what fits, as other processes take memory meanwhile, and a multiple
// of 32, as the tiles of matrix units waste what is left over.
int64_t comfortable_batch(int64_t largest) {
  const int64_t with_room = largest - largest / 50;
  return with_room >= 64 ? with_room / 32 * 32 : with_room;
}

void settle_batch(RunConfig& config, const DeviceChoice& choice, const Graph& graph,
                  Backend& backend, const Terminal& terminal) {
  if (config.batch != largest_that_fits) return;
  ProgramOptions options;
  options.precision = *config.precision;
  options.forward_only = config.forward_only;
  options.input_from_host = config.input == "host";
  options.gpu = static_cast<int>(config.gpu);
  options.threads = static_cast<int>(config.threads);
  config.batch.reset();
  const int64_t largest = backend.largest_batch(graph, options);
  if (largest < 1) throw std::runtime_error("out of memory: not even a batch of 1 fits");
  config.batch = comfortable_batch(largest);
  fill_defaults(config, choice);
  terminal.remark("batches of up to " + std::to_string(largest) + " fit; taking " +
                  std::to_string(*config.batch));
}

Report new_report(const CommandLine& line) {
  Report report;
  report.tool = build_info();
  report.invocation.argv = line.argv;
  report.invocation.origins = line.origins;
  report.invocation.started_at = time_stamp();
  return report;
}

Run new_run(const RunConfig& config, const DeviceChoice& choice, const DeviceInfo& device,
            const Graph& graph) {
  Run run;
  run.started_at = time_stamp();
  run.device = choice.device;
  run.device_name = device.name;
  run.device_reason = choice.reason;
  run.parameters = graph.parameter_count();
  run.flops_per_image =
      config.forward_only ? graph.forward_flops_per_image() : graph.training_flops_per_image();
  return run;
}

Environment new_environment(const RunConfig& config, const DeviceInfo& device, Rank& rank) {
  Environment environment = find_environment();
  environment.libraries = device.libraries;
  if (config.device == "cuda") {
    environment.gpus.push_back(describe_gpu(device));
    rank.gpu = 0;
  }
  return environment;
}

ExitCode exit_code_of(const Run& run, int stop_signal) {
  if (run.status == Status::failed) return ExitCode::run_failed;
  return run.status == Status::partial ? exit_code_of_signal(stop_signal) : ExitCode::ok;
}

void print_result(std::ostream& out, const Report& report, bool colour) {
  const Run& run = report.arms.front().runs.front();
  print_summary(out, report, run, colour);
  if (run.profile) print_profile(out, *run.profile);
}

// The table comes after the file is safe; where it is not, the table is all that is left.
void publish(const Report& report, const Destination& destination, const Terminal& terminal) {
  try {
    write_report(report, destination, terminal);
  } catch (...) {
    print_result(terminal.err, report, false);
    throw;
  }
  if (!destination.to_stdout) print_result(terminal.out, report, terminal.colour);
  const Run& run = report.arms.front().runs.front();
  if (run.status != Status::complete) {
    terminal.err << "nearmetal: the run is " << to_string(run.status) << ": "
                 << run.failure.value_or("") << std::endl;
  }
  if (destination.file) terminal.remark("report: " + destination.file->string());
}

}  // namespace

ExitCode cmd_run(const CommandLine& line, const ProcessClock& clock, const Terminal& terminal_given,
                 const std::atomic<int>& stop, const BackendLoader& load) {
  RunConfig config = line.run;
  Terminal terminal = terminal_given;
  terminal.quiet = config.quiet;
  terminal.rewrites = terminal.rewrites && !config.quiet && !config.no_progress;
  const DeviceChoice choice = choose_device(config.device);
  fill_defaults(config, choice);
  check_settings(config, line.origins);
  const Graph graph = resnet(config.model, config.image_size, config.classes);
  require_trainable(graph, config);
  const Destination destination = choose_destination(config);
  require_writable(destination);
  terminal.remark("nearmetal: device " + choice.device + " (" + choice.reason + ")");

  Report report = new_report(line);
  Backend& backend = load(config.device);
  const DeviceInfo device = describe_device(backend, config, choice);
  Run run = new_run(config, choice, device, graph);
  Rank rank;
  leave_open(run, rank, {"the run ended before"});
  report.environments = {new_environment(config, device, rank)};
  SetUp set_up{.clock = clock.clock(), .start_seconds = clock.start_seconds()};
  set_up.backend_seconds = clock.elapsed_seconds() - set_up.start_seconds;

  const PlanSource plans = find_plans(config, device, run.warnings);
  try {
    settle_batch(config, choice, graph, backend, terminal);
    run_rank({config, graph, backend, device, plans, clock, terminal, stop}, set_up, run, rank);
  } catch (const std::invalid_argument&) {
    throw;  // a setting that this device does not take: nothing was run
  } catch (const OutOfMemory& error) {
    fail_run(run, out_of_memory_text(error));
  } catch (const std::exception& error) {
    fail_run(run, error.what());
  }

  const ExitCode code = exit_code_of(run, stop);
  run.ranks = {std::move(rank)};
  report.status = run.status;
  report.exit_code = static_cast<int>(code);
  report.invocation.config = config;
  report.invocation.config_sha256 = config_sha256(config);
  report.arms = {Arm{.name = "run", .runs = {std::move(run)}}};
  publish(report, destination, terminal);
  return code;
}

}  // namespace nearmetal
