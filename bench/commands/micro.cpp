#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/pattern.h"
#include "base/text_table.h"
#include "bench/cli/process.h"
#include "bench/cli/run_request.h"
#include "bench/commands/program.h"
#include "bench/micro/probes.h"
#include "bench/run/attribute.h"
#include "bench/run/prepare_device.h"
#include "bench/run/together.h"
#include "comm/watchdog.h"
#include "comm/world.h"

namespace nearmetal {
namespace {

constexpr const char* micro_examples = R"(
Examples:
  nearmetal micro                              this machine: launches, copies, products, links
  nearmetal micro copy launch/graph            those whose names match
  nearmetal micro 'step/forward/layer1'        kernels of a training step, beside their floors
  mpirun -n 4 nearmetal micro                  MPI, and NCCL between GPUs, as nccl-tests defines them
  nearmetal micro --json copy > copy.json      in the format of Google Benchmark

PROBE is a regular expression that is searched in the names. Median and p99 are over single runs,
or, where one run is too short to time, over means of several runs; rates follow from the median.
The floor is the least time that bytes and operations allow at the copy and matrix rates measured
in this call. Kernels of a step find their operands in the memory of a GPU, not in its cache. On a
CPU they may find them in its caches: only the bytes that the caches cannot hold count, and a
kernel without such bytes and without matrix products has no floor. Exit 6 if a probe fails. The
first Ctrl-C ends it after the run that is timed; the output has all probes that were through.)";

struct MicroForm {
  RunRequest request;
  std::vector<std::string> patterns;  // regular expressions; none: all but those of a step
  int64_t repetitions = 3;
  double seconds = 0.1;  // of one, at least
  bool list = false;
  bool json = false;
};

void add_micro_options(Options& options, MicroForm& form) {
  options.values("PROBE", "", "regular expressions of names [all but step/]", form.patterns);
  add_settings(options, form.request, in_micro);
  add_quiet(options, form.request, SettingGroup::files);
  options.number("--repetitions", "N", form.repetitions, {1, 1000}, "repetitions of each probe");
  options.number("--seconds", "S", form.seconds, {0.001, 3600},
                 "minimum duration of one repetition");
  options.toggle("--list", form.list, "list the names of probes; --list step/: those of a step");
  options.toggle("--json", form.json, "print JSON, on stdout");
}

std::vector<Pattern> expressions_of(const std::vector<std::string>& patterns) try {
  return {patterns.begin(), patterns.end()};
} catch (const std::invalid_argument& error) {
  throw std::invalid_argument(std::string("PROBE: ") + error.what());
}

// Preparing a step takes seconds: only where it was named.
bool names_step(const std::string& pattern) {
  return pattern.starts_with("step") || pattern.starts_with("^step");
}

std::vector<Probe> choose(std::vector<Probe> probes, const std::vector<Pattern>& expressions) {
  if (expressions.empty()) return probes;
  std::erase_if(probes, [&](const Probe& probe) {
    return std::ranges::none_of(
        expressions, [&](const Pattern& expression) { return expression.is_in(probe.name); });
  });
  return probes;
}

Ceilings measured_ceilings(const std::vector<Probe>& probes, const PreparedDevice& device) {
  const auto best = [&](const std::string& name, auto amount) {
    for (const Probe& probe : probes) {
      if (probe.name == name) return amount(probe) / median_seconds(probe, 5);
    }
    return 0.0;
  };
  const std::string product = std::string("product/") + to_string(*device.config.precision);
  return {best("copy/device", [](const Probe& probe) { return probe.bytes; }),
          best(product, [](const Probe& probe) { return probe.flops; }), device.info.cache_bytes};
}

void list_probes(const std::vector<Probe>& probes, std::ostream& out) {
  for (const Probe& probe : probes) {
    print_line(out, probe.name + ": " + probe.work);
    if (!probe.details.empty()) print_line(out, "    " + probe.details);
  }
}

// Fixed work of one thread, about a millisecond of it: what a clock that changes, a busy neighbour
// or a hypervisor takes away shows in its slowest runs.
Probe cpu_quantum_probe() {
  constexpr int64_t length = 1'000'000;
  return {.name = "cpu/quantum",
          .work = "a million dependent multiplications by one thread; p99 shows what disturbs it",
          .start = []() -> TimedRuns {
            return [](int64_t runs) {
              const double begin = steady_seconds();
              volatile uint64_t value = 1;
              for (int64_t run = 0; run < runs; ++run) value = multiply_in_a_chain(value, length);
              return steady_seconds() - begin;
            };
          }};
}

// With several ranks those of the paths between them, else those of this host and its device.
std::vector<Probe> find_probes(const PreparedDevice& device, World& world) {
  const int gpu = static_cast<int>(device.config.gpu);
  if (world.size() == 1) {
    std::vector<Probe> probes = device.backend.probes(gpu);
    probes.insert(probes.begin(), cpu_quantum_probe());
    return probes;
  }
  std::vector<Probe> probes = world.probes();
  if (device.config.device == Device::cuda) {
    Nccl& nccl = set_up_nccl(world);
    append(probes, nccl.probes(new_nccl_group(world, nccl), world.rank(), world.size(), gpu));
  }
  return probes;
}

// The kernels of a step, on a program that they keep (prepare_program()).
std::vector<Probe> find_step_probes(PreparedDevice& device, const Terminal& terminal) {
  const std::shared_ptr<Program> program = prepare_program(device, terminal);
  program->restart(start_parameters(device.config));
  std::vector<Probe> probes = program->probes();
  for (Probe& probe : probes) {
    probe.start = [program, start = std::move(probe.start)] { return start(); };
  }
  return probes;
}

// Kernels of a step are timed beside ceilings, which are measured for them.
std::vector<Probe> chosen_probes(const MicroForm& form, const std::vector<Pattern>& expressions,
                                 PreparedDevice& device, World& world, const Terminal& terminal,
                                 Ceilings& ceilings) {
  const std::vector<Probe> machine = find_probes(device, world);
  std::vector<Probe> chosen = choose(machine, expressions);
  if (std::ranges::any_of(form.patterns, names_step)) {
    if (world.size() > 1) throw std::invalid_argument("PROBE: those of a step are of one rank");
    if (!form.list) ceilings = measured_ceilings(machine, device);
    append(chosen, choose(find_step_probes(device, terminal), expressions));
  }
  if (!chosen.empty()) return chosen;
  throw std::invalid_argument(
      "no probe here has a name that matches (nearmetal micro --list; those of a step begin "
      "with step/)");
}

ExitCode time_on_rank(const MicroForm& form, const Context& context, World& world) {
  Terminal terminal = context.terminal;
  terminal.quiet = form.request.config.quiet || world.rank() > 0;
  const std::vector<Pattern> expressions = expressions_of(form.patterns);
  if (form.request.config.batch == largest_that_fits) {
    throw std::invalid_argument("--batch auto is for run; give micro a number");
  }
  std::optional<PreparedDevice> device;
  together(world,
           [&] { device.emplace(prepare_device(form.request, context, world.local_rank())); });
  terminal.remark(device_remark(device->config.device, device->why) + ", " + device->info.name);
  TimingOptions options{.repetitions = static_cast<int>(form.repetitions),
                        .seconds = form.seconds,
                        .collective = world.size() > 1,
                        .stop = &context.stop};
  const std::vector<Probe> probes =
      chosen_probes(form, expressions, *device, world, terminal, options.ceilings);
  if (form.list) {
    if (world.rank() == 0) list_probes(probes, terminal.out);
    return ExitCode::ok;
  }
  const TimingForm shown = world.rank() > 0 ? TimingForm::none
                           : form.json      ? TimingForm::json
                                            : TimingForm::table;
  const auto failures = time_probes(probes, options, shown, terminal.out);
  for (const std::string& failure : failures) terminal.error(failure);
  if (context.stop != 0) return exit_code_of_signal(context.stop);
  return failures.empty() ? ExitCode::ok : ExitCode::run_failed;
}

// Ranks would have to agree on the run after which they stop: mpirun ends them.
ExitCode run_micro(const MicroForm& form, const Context& context) {
  if (!is_launched()) catch_stop_signals();
  std::unique_ptr<World> world;
  {  // afterwards ranks wait for one another only in what they time, for as long as was asked for
    const Watchdog watchdog(default_patience_seconds, context.stop,
                            [&](const std::string& why) { context.terminal.error(why); });
    world = join_world(0);
  }
  return as_rank(*world, context.terminal, [&] { return time_on_rank(form, context, *world); });
}

}  // namespace

Command micro_command() {
  return make_command("micro", "Time launches, copies, links and kernels one by one",
                      micro_examples, add_micro_options, run_micro);
}

}  // namespace nearmetal
