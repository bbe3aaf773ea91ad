#include <algorithm>
#include <optional>
#include <stdexcept>
#include <vector>

#include "bench/cli/defaults.h"
#include "bench/cli/destination.h"
#include "bench/cli/process.h"
#include "bench/commands/program.h"
#include "bench/commands/run_job.h"
#include "bench/commands/sweep.h"
#include "bench/run/prepare_device.h"
#include "bench/sweep/repeated_layout.h"
#include "comm/world.h"
#include "reports/document/settings.h"

namespace nearmetal {
namespace {

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
  const Expected& expected = form.request.expected;
  Expectation& expect = file.layouts[0].expect;
  expect.environment = expected.environment;
  expect.gpu = expected.gpu;
  expect.uuid = expected.uuid;
  expect.mig_profile = expected.mig;
  expect.vgpu_profile = expected.vgpu;
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

Command run_command() {
  return make_command("run", "Train one workload, print a table, write a report", run_examples,
                      add_run_form_options, run_form);
}

}  // namespace nearmetal
