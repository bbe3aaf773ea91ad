#include "bench/commands/run_repeats.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "bench/cli/destination.h"
#include "bench/commands/sweep.h"
#include "bench/run/prepare_device.h"
#include "bench/sweep/repeated_layout.h"
#include "comm/world.h"
#include "reports/document/settings.h"

namespace nearmetal {
namespace {

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

}  // namespace

void add_repeated_run_options(Options& options, RunForm& form) {
  add_run_options(options, form.request);
  const char* group = to_string(SettingGroup::length);
  options
      .number("--repeats", "N", form.repeats, {1, 1000},
              "fresh processes, one after another, into one report")
      .group = group;
  add_resume_options(options, form.resume, group);
}

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

}  // namespace nearmetal
