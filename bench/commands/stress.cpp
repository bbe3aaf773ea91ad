#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "base/text.h"
#include "base/text_table.h"
#include "bench/cli/parse_value.h"
#include "bench/cli/process.h"
#include "bench/cli/run_request.h"
#include "bench/commands/program.h"
#include "bench/run/prepare_device.h"
#include "bench/run/sweep_control.h"
#include "bench/run/together.h"
#include "comm/layout/layout.h"
#include "reports/json/archive.h"
#include "reports/json/report_fields.h"
#include "reports/sharing/fraction_tables.h"

namespace nearmetal {
namespace {

constexpr const char* stress_examples = R"(
Examples:
  nearmetal stress copy                        the GPU's memory, or the host's without a GPU
  nearmetal stress compute --seconds 60        matrix products
  nearmetal stress pcie --gpu 1                from pinned host memory to GPU 1
  nearmetal stress copy --seconds 60 & nearmetal run
                                               what a neighbour costs; better measured by
  nearmetal sweep --fractions 2 --neighbours copy

LOAD is copy, compute, pcie, or the name of a probe of `nearmetal micro --list`. Ctrl-C ends it and
prints the rate so far.)";

struct StressForm {
  RunRequest request;
  std::string load;  // copy, compute, pcie, or a probe of micro
  double seconds = 10;
  bool json = false;
};

double stress_seconds(const std::string& flag, const std::string& text) {
  const double seconds = parse_duration(flag, text);
  if (seconds >= 0.001) return seconds;
  throw std::invalid_argument(flag + " must be at least 0.001, not '" + text + "'");
}

void add_stress_options(Options& options, StressForm& form) {
  options.text("LOAD", "", form.load, "copy, compute, pcie or a probe of micro").required = true;
  add_settings(options, form.request, in_stress);
  add_quiet(options, form.request, SettingGroup::place);
  options.value("--seconds", "S", "duration [10]", form.seconds, stress_seconds);
  options.toggle("--json", form.json, "print the rate as JSON, on stdout");
  add_conducted_options(options, form.request);
}

// Between two looks at the clock and at orders: many launches, and yet a quick end.
constexpr double slice_seconds = 0.02;
constexpr double most_runs_a_slice = 1e5;
constexpr double least_measured_seconds = 0.5;  // before a sweep may end it

std::string probe_name(const std::string& load, Device device) {
  const std::optional<NeighbourLoad> kind = from_name<NeighbourLoad>(load);
  if (kind == NeighbourLoad::copy) return "copy/device";
  if (kind == NeighbourLoad::pcie) return "copy/h2d_pinned";
  if (kind == NeighbourLoad::compute)
    return device == Device::cuda ? "product/fp16" : "product/fp32";
  return load;
}

Probe find_probe(Backend& backend, const RunConfig& config, const std::string& load) {
  const std::string name = probe_name(load, config.device);
  for (Probe& probe : backend.probes(static_cast<int>(config.gpu))) {
    if (probe.name == name) return std::move(probe);
  }
  throw std::invalid_argument(
      "LOAD: '" + load + "' is not available on this device (" + to_string(config.device) +
      "): copy, compute, pcie on GPUs, or the name of a probe of nearmetal micro --list");
}

class Load {
 public:
  explicit Load(const Probe& probe) : probe_(probe), runs_(probe.start()) {
    const double once = std::max(runs_(probe.runs_at_once), 1e-9);
    const double times = std::clamp(slice_seconds / once, 1., most_runs_a_slice);
    slice_ = probe.runs_at_once * std::llround(times);
  }

  void run_slice(bool counts) {
    const double seconds = runs_(slice_);
    if (!counts) return;
    seconds_ += seconds;
    done_ += slice_;
  }

  double seconds() const { return seconds_; }
  Neighbour rate(const std::string& load) const {
    const double runs = seconds_ > 0 ? static_cast<double>(done_) / seconds_ : 0;
    return {load, runs, runs * probe_.bytes, runs * probe_.flops};
  }

 private:
  const Probe& probe_;
  TimedRuns runs_;
  int64_t slice_ = 1;
  int64_t done_ = 0;
  double seconds_ = 0;
};

// Beside jobs of a sweep: counts from the start of their windows until all have measured theirs.
void load_until_ended(Load& load, const std::string& name, ProgressReporter& reporter) {
  SweepControl control(reporter, STDIN_FILENO);
  TrainerProgress progress;
  progress.window_first_step = 0;  // always in the load
  auto following = reporter.follow(progress, 0);
  Event event;
  event.kind = EventKind::ready;
  bool has_measured = false;
  load.run_slice(false);
  reporter.report(event);
  while (!control.must_stop() && !control.may_end()) {
    load.run_slice(control.may_open_window());
    progress.steps_done.fetch_add(1);
    if (has_measured || load.seconds() < least_measured_seconds) continue;
    event.kind = EventKind::measured;
    reporter.report(event);
    has_measured = true;
  }
  following.reset();
  event.kind = EventKind::result;
  event.neighbour = load.rate(name);
  reporter.report(event);
}

struct StressResult {
  Neighbour rate;
  double seconds = 0;
  std::string work;
};

void fields(json::Archive& field, StressResult& result) {
  json::fields(field, result.rate);
  field("seconds", result.seconds);
  field("work", result.work);
}

void load_for(Load& load, const StressForm& form, const Terminal& terminal,
              const std::atomic<int>& stop) {
  double shown = 0;
  load.run_slice(true);  // whatever the signal: there is a rate to show
  while (stop == 0 && load.seconds() < form.seconds) {
    load.run_slice(true);
    if (!terminal.rewrites || load.seconds() - shown < 0.25) continue;
    shown = load.seconds();
    terminal.show_progress(form.load + ": " + rate_text(load.rate(form.load)) + ", " +
                           std::to_string(std::llround(form.seconds - shown)) + " s left");
  }
  terminal.clear_progress();
}

// `reporter` is null where no sweep started it.
ExitCode stress(const StressForm& form, const Context& context, ProgressReporter* reporter) {
  const RunRequest& request = form.request;
  const Terminal& terminal = context.terminal;
  Terminal talk = terminal;
  talk.quiet = request.config.quiet || request.conducted;
  talk.rewrites = terminal.rewrites && !talk.quiet;
  const PreparedDevice device = prepare_device(request, context);
  const Probe probe = find_probe(device.backend, device.config, form.load);
  talk.remark(device_remark(device.config.device, device.why) + ", " + device.info.name);
  Load load(probe);
  if (reporter != nullptr) {
    load_until_ended(load, form.load, *reporter);
    return ExitCode::ok;
  }
  load_for(load, form, talk, context.stop);
  StressResult result{load.rate(form.load), load.seconds(), probe.work};
  if (form.json) {
    terminal.out << json::lines_of(result);
  } else {
    print_line(terminal.out, form.load + ": " + rate_text(result.rate) + " over " +
                                 significant(result.seconds, 3) + " s (" + result.work + ")");
  }
  return context.stop == 0 ? ExitCode::ok : exit_code_of_signal(context.stop);
}

ExitCode run_stress(const StressForm& form, const Context& context) {
  catch_stop_signals();
  std::optional<ProgressReporter> reporter;
  if (form.request.conducted) reporter.emplace(context.terminal.out, 0);
  try {
    return stress(form, context, reporter ? &*reporter : nullptr);
  } catch (const std::exception& error) {
    if (reporter) reporter->report(failure_event(error));
    throw;
  }
}

}  // namespace

Command stress_command() {
  return make_command("stress", "Keep a device busy, as a noisy neighbour does", stress_examples,
                      add_stress_options, run_stress);
}

}  // namespace nearmetal
