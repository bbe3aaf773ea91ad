#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "base/sha256.h"
#include "base/text.h"
#include "bench/cli/output.h"
#include "bench/cli/process.h"
#include "bench/cli/run_request.h"
#include "bench/commands/program.h"
#include "bench/commands/sweep.h"
#include "bench/environment/binding.h"
#include "bench/environment/environment.h"
#include "bench/environment/gpu.h"
#include "bench/environment/leave_out_host_info.h"
#include "bench/environment/rdma.h"
#include "bench/run/defaults.h"
#include "bench/run/prepare_device.h"
#include "bench/run/rank_facts.h"
#include "bench/run/rank_report.h"
#include "bench/run/rank_run.h"
#include "bench/run/sweep_control.h"
#include "bench/run/table.h"
#include "bench/run/together.h"
#include "bench/sweep/repeated_layout.h"
#include "comm/watchdog.h"
#include "comm/world.h"
#include "reports/document/metric.h"
#include "reports/document/settings.h"
#include "reports/formats/run_tables.h"
#include "reports/json/json.h"
#include "reports/json/report_files.h"
#include "reports/merge/merge.h"

namespace nearmetal {
namespace {

Environment environment_of(const RunConfig& config, const DeviceInfo& device) {
  Environment environment = find_environment();
  environment.libraries = device.libraries;
  environment.claim = config.environment;
  if (config.host_facts) environment.host_facts = read_host_facts(*config.host_facts);
  if (config.device == Device::cuda) environment.gpus.push_back(found_gpu(device));
  return environment;
}

// Ranks on the same CPUs share them.
void share_cpus(RunConfig& config, const Environment& environment, int64_t ranks) {
  if (config.device != Device::cpu || config.threads > 0 || ranks == 1) return;
  config.threads = std::max<int64_t>(1, usable_threads(environment) / ranks);
}

void print_table(std::ostream& out, const Report& report, bool colour) {
  const Run& run = report.arms.front().runs.front();
  print_summary(out, report, run, colour);
  if (run.pipeline) {
    out << '\n';
    print_aligned(out, stage_table(run));
  }
  if (run.profile) print_profile(out, *run.profile);
  if (!run.ranks.empty() && run.ranks[0].probes) print_probes(out, *run.ranks[0].probes);
}

// --output FILE, or - for stdout; --json puts it on stdout, too. With neither, a result must not be
// lost: nearmetal-MODEL-DEVICE-TIME.report.json in the current folder.
Destination choose_destination(const RunConfig& config) {
  Destination destination{.to_stdout = config.json || config.output == "-",
                          .replace = config.force};
  if (config.output && config.output != "-") {
    destination.file = *config.output;
  } else if (!destination.to_stdout) {
    destination.file = default_report_name(config.model, to_string(config.device));
  }
  return destination;
}

// The table comes after the file is safe; where it is not, the table goes beside the error. What
// goes to standard output is checked by main.
void publish(const Report& report, const Destination& destination,
             const std::optional<AskedBy>& asked_by, const Terminal& terminal) {
  const auto print = [&](std::ostream& out, bool colour) {
    if (asked_by) return asked_by->print(out, report);
    print_table(out, report, colour);
  };
  const RunConfig& config = report.invocation.config;
  try {
    const std::string text = to_json(report);
    if (destination.to_stdout) terminal.out << text << std::flush;
    if (destination.file) {
      write_report_file(*destination.file, text, destination.replace,
                        default_report_name(config.model, to_string(config.device)));
    }
  } catch (...) {
    print(terminal.err, false);
    throw;
  }
  if (!destination.to_stdout) print(terminal.out, terminal.colour);
  if (destination.file) terminal.remark("report: " + destination.file->string());
}

// NCCL and UCX would find a network of their own; a variable that is set stays. UCX takes names of
// devices alone, before MPI starts. `network`: see RunRequest. Whether this host has an address
// there.
bool take_network_of_mpi(const std::string& network) {
  const bool left_out = network.starts_with('^');
  std::set<std::string> names = left_out ? std::set<std::string>{"lo"} : std::set<std::string>{};
  for (const std::string& one : split(network.substr(left_out ? 1 : 0), ",")) {
    names.merge(interfaces_in(one));
  }
  const std::string value = (left_out ? "^=" : "=") + joined({names.begin(), names.end()}, ",");
  if (!names.empty()) setenv("NCCL_SOCKET_IFNAME", value.c_str(), 0);
  const char* mpi_by = std::getenv("OMPI_MCA_pml");
  if (names.empty() || !mpi_by || std::string(mpi_by) != "ucx") return !names.empty();
  const auto devices = ucx_devices(interfaces_in("0.0.0.0/0"), names, left_out, find_rdma("/"));
  if (!devices.empty()) setenv("UCX_NET_DEVICES", joined(devices, ",").c_str(), 0);
  return true;
}

class RankJob {
 public:
  RankJob(const RunRequest& request, const Context& context, World& world, Watchdog* watchdog,
          bool has_address)
      : request_(request),
        context_(context),
        terminal_(context.terminal),
        world_(world),
        watchdog_(watchdog),
        has_address_(has_address) {
    terminal_.quiet = request.config.quiet || world.rank() > 0;
    // mpirun gives its ranks a terminal of their own, wherever its output goes.
    if (world.size() > 1) terminal_.colour = false;
    terminal_.rewrites = terminal_.rewrites && !terminal_.quiet && !request.config.no_progress;
    if (request.conducted) start_reporter();
  }

  void report_failure(const std::exception& error) {
    if (!reporter_ || !should_report(error)) return;
    Event event = failure_event(error);
    event.failure->text = failure_text(world_, error);
    reporter_->report(event);
  }

  ExitCode run() {
    RankTask task{request_,
                  context_,
                  terminal_,
                  world_,
                  reporter_ ? &*reporter_ : nullptr,
                  control_ ? &*control_ : nullptr,
                  watchdog_,
                  prepare()};
    PreparedDevice& device = task.device;
    if (context_.asked_by) terminal_.remark(context_.asked_by->remarks);
    terminal_.remark(device_remark(device.config.device, device.why));
    task.start = start_on(device);
    together(world_, [&] { task.kernels = find_kernel_choices(device.config, device.info); });
    task.start.warnings = task.kernels.warnings;
    std::optional<LastReport> last;
    if (world_.rank() == 0 && (world_.size() > 1 || control_ || kept_.file)) {
      // In a file for this alone the report of all ranks takes its place at any time.
      const std::chrono::milliseconds patience{kept_.file ? 0 : 500};
      last.emplace(task, kept_.file || control_ ? kept_ : destination_, patience);
    }
    const RankResult result = run_rank(task);
    return publish_job(make_rank_report(request_, device, task.start, result), last);
  }

 private:
  // Rank 0 writes to its standard output, which is the way of its report, too: what others write
  // must not get in between.
  void start_reporter() {
    reporter_.emplace(world_.rank() == 0 ? terminal_.out : terminal_.err, world_.rank(),
                      stage_text(request_.config, world_.rank()));
    if (world_.rank() == 0) control_.emplace(*reporter_, STDIN_FILENO);
  }

  void require_destination(const RunConfig& config) {
    require_whole_replicas(config, world_.size());
    kept_ = last_report_file();
    if (request_.conducted) return;
    if (!request_.no_report) destination_ = choose_destination(config);
    terminal_.remark(flags_without_effect({config, request_.given}, world_.size()));
    if (world_.rank() == 0 && destination_.file) {
      require_no_input(*destination_.file, files_read_by(config));
      require_writable(*destination_.file, destination_.replace);
    }
  }

  PreparedDevice prepare() {
    std::optional<PreparedDevice> prepared;
    together(world_, [&] {
      prepared.emplace(
          prepare_device(request_, context_, world_.local_rank(),
                         [this](const RunConfig& config) { require_destination(config); }));
    });
    return *std::move(prepared);
  }

  // Binds this rank before anything of size is allocated, and most threads are started.
  RankStart start_on(PreparedDevice& device) {
    RankStart start{.argv = context_.argv,
                    .started_at = time_stamp(),
                    .rank = world_.rank(),
                    .world_size = world_.size(),
                    .environment = environment_of(device.config, device.info)};
    const auto& gpus = start.environment.gpus;
    const Gpu* gpu = gpus.empty() ? nullptr : &gpus[0];
    together(world_, [&] {
      require_expected(request_.expected, start.environment, gpu);
      if (has_address_) return;
      throw NotAsExpected(FailureCode::expect_hosts, "host " + host_name() +
                                                         " has no address in the network " +
                                                         *request_.network + " (launcher.network)");
    });
    start.binding = bind_to_node(node_to_bind_to(device.config, gpu));
    require_one_job(device, start);
    const ProcessClock& clock = context_.clock;
    start.set_up = {.clock = clock.clock(),
                    .start_seconds = clock.start_seconds(),
                    .backend_seconds = clock.elapsed_seconds() - clock.start_seconds()};
    return start;
  }

  void require_one_job(PreparedDevice& device, const RankStart& start) {
    if (world_.size() == 1) return;
    Report mine = make_rank_report(request_, device, start, {});
    std::optional<std::string>& build = mine.tool.build_id;
    if (!build) build = sha256(file_text("/proc/self/exe"));  // the linker gave it none
    const std::vector<Report> ranks =
        transformed(world_.all_gather(to_json(mine)), report_from_json);
    const auto elsewhere = misplacement(ranks, request_.expected.hosts);
    if (elsewhere) {
      throw JobFailure(*elsewhere, ExitCode::not_as_expected, world_.rank() > 0,
                       FailureCode::expect_hosts);
    }
    const auto reason = disagreement(ranks);
    if (reason) throw JobFailure(*reason, ExitCode::usage, world_.rank() > 0);
    share_cpus(device.config, start.environment, ranks_on_same_cpus(ranks, world_.rank()));
  }

  // Rank 0 puts the ranks' parts together and writes the report; all end with the same exit code,
  // as long as it can.
  ExitCode publish_job(Report mine, std::optional<LastReport>& last) {
    bin_long_lists(mine, world_.size());
    std::vector<Report> parts;
    for (std::string& text : world_.gather(to_json(mine))) {
      parts.push_back(report_from_json(std::move(text)));
    }
    ExitCode code = ExitCode::ok;
    together(world_, [&] {
      if (world_.rank() > 0) return;
      Report report = merge_ranks(std::move(parts));
      code = exit_code_of(report.status, ExitCode::ok, context_.stop);
      report.exit_code = static_cast<int>(code);
      if (request_.config.no_host_info && !control_) leave_out_host_info(report);
      if (control_) {
        last->finish(report);
        Event event;
        event.kind = EventKind::result;
        event.report = report;
        reporter_->report(event);
      } else {
        if (kept_.file) last->finish(report);
        const bool may_replace = last && !kept_.file;  // what it wrote itself
        publish(report, may_replace ? last->finish() : destination_, context_.asked_by, terminal_);
      }
      const Run& run = report.arms[0].runs[0];
      if (run.status != Status::complete) terminal_.error(status_text(run));
    });
    return static_cast<ExitCode>(maximum_of_ranks(world_, static_cast<int64_t>(code)));
  }

  const RunRequest& request_;
  const Context& context_;
  Terminal terminal_;
  World& world_;
  Watchdog* watchdog_;
  bool has_address_;         // in the network that it is to take
  Destination destination_;  // of the report of all ranks
  Destination kept_{};       // the file that a sweep or a script names for the last one; none: none
  std::optional<ProgressReporter> reporter_;  // of a job that a sweep started
  std::optional<SweepControl> control_;       // the same, on rank 0
};

constexpr const char* run_examples = R"(
Examples:
  nearmetal run                                          about 20 s on the GPU, else the CPU
  nearmetal run --precision bf16 --batch auto            the largest batch that fits a GPU
  nearmetal run --device cpu --image-size 64 --steps 20  a quick look on the CPU
  nearmetal run --repeats 5 --output old.json            five fresh runs, one report, to compare
  nearmetal run --profile --output step.json             where the time of a step goes
  mpirun -n 4 nearmetal run                              four ranks, one GPU each
  nearmetal run --json | jq '.arms[0].runs[0].throughput_images_per_second'

With --repeats the runs are separate processes, one after another, and one report holds them all.
As in a sweep, each run is written to a journal beside the report before the next one starts.

The table goes to stdout, remarks and progress to stderr. The report goes to
nearmetal-MODEL-DEVICE-TIME.report.json in this folder unless --output or --json says otherwise.)";

struct RunForm {
  RunRequest request;
  std::optional<int64_t> repeats;
  ResumeOptions resume;

  bool asks_for_repeats() const {
    return repeats || resume.journal || resume.keep_failed || resume.any_build;
  }
};

void add_run_form_options(Options& options, RunForm& form) {
  add_run_options(options, form.request);
  options.under(to_string(SettingGroup::length));
  options.number("--repeats", "N", form.repeats, {1, 1000},
                 "fresh processes, one after another, into one report");
  add_resume_options(options, form.resume);
}

// The given settings that a process of a sweep takes. The others are of the report that holds all
// runs.
std::vector<std::string> given_to_each(const std::vector<std::string>& given) {
  std::vector<std::string> kept;
  for (const Setting& setting : settings_of_run()) {
    const bool of_each = (setting.commands & in_sweep) != 0 || setting.group == SettingGroup::place;
    const bool is_given = std::ranges::find(given, setting.name) != given.end();
    if (of_each && is_given) kept.emplace_back(setting.name);
  }
  return kept;
}

// Each repeat is a process as this one would have been, as a sweep starts them.
ExitCode run_repeats(const RunForm& form, const Context& context) {
  const RunConfig& config = form.request.config;
  if (!form.repeats) {
    throw std::invalid_argument(
        "--resume, --keep-failed and --allow-other-build belong to --repeats: add it");
  }
  if (is_launched() || config.ranks > 1) {
    throw std::invalid_argument(
        "--repeats starts processes of one rank; `nearmetal sweep` repeats jobs of several");
  }
  const auto [device, why] = choose_device(config.device);
  LayoutFile file = layout_of_process(device, form.request.arm);
  file.layouts[0].expect = form.request.expected;
  SweepForm sweep;
  sweep.resume = form.resume;
  sweep.output = config.output;
  sweep.force = config.force;
  sweep.json = config.json || config.output == "-";
  sweep.only_named_file = sweep.json || form.request.no_report;
  sweep.request.file = file;
  sweep.request.plain_alone = true;
  sweep.request.repeats = form.repeats;
  sweep.request.workload = form.request;
  sweep.request.workload.given = given_to_each(form.request.given);
  if (sweep.output == "-") sweep.output.reset();
  if (!sweep.output && !sweep.only_named_file) {
    sweep.output = default_report_name(config.model, to_string(device));
  }
  if (!config.quiet) context.terminal.remark(device_remark(device, why));
  return run_sweep(sweep, context);
}

ExitCode run_form(const RunForm& form, const Context& context) {
  catch_stop_signals();
  return form.asks_for_repeats() ? run_repeats(form, context) : run_job(form.request, context);
}

}  // namespace

ExitCode run_job(const RunRequest& request, const Context& context) {
  const RunConfig& asked = request.config;
  const Collective& collective = collective_for(asked.all_reduce, asked.device != Device::cpu);
  const bool sums_on_threads =
      collective.needs_mpi_threads && asked.update == Update::allreduce && trains(asked);
  // A sweep has limits of its own, and knows the ranks of all hosts.
  std::optional<Watchdog> watchdog;
  if (!request.conducted) {
    watchdog.emplace(request.join_seconds, context.stop,
                     [&](const std::string& why) { context.terminal.error(why); });
  }
  const bool has_address = !request.network || take_network_of_mpi(*request.network);
  const std::unique_ptr<World> world = join_world(
      asked.ranks, sums_on_threads ? "--all-reduce " + std::string(collective.name) : "");
  if (watchdog) watchdog->has_joined(*world);
  return as_rank(*world, context.terminal, [&] {
    RankJob job(request, context, *world, watchdog ? &*watchdog : nullptr, has_address);
    try {
      return job.run();
    } catch (const std::exception& error) {
      job.report_failure(error);
      throw;
    }
  });
}

Command run_command() {
  return make_command("run", "Train one workload, print a table, write a report", run_examples,
                      add_run_form_options, run_form);
}

}  // namespace nearmetal
