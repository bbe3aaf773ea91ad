#include "bench/commands/sweep.h"

#include <stdexcept>

#include "bench/cli/exit_status.h"
#include "bench/commands/layout_options.h"
#include "bench/commands/program.h"
#include "comm/world.h"

namespace nearmetal {
namespace {

constexpr const char* sweep_examples = R"(
Examples:
  nearmetal sweep                                       1, 2, 4, ... all GPUs of this machine
  nearmetal sweep 1x1x2 '2*(1x1x1)' --repeats 8         one job on two GPUs, and two jobs at once
  nearmetal sweep dell_vms --output dell.json           the layouts of a file, here a shipped one
  nearmetal sweep 1x1x1 --grid batch=64,128,256         one job with each of these batches
  nearmetal sweep --fractions 4 --repeats 5             four jobs on one GPU, in every way
  nearmetal sweep --fractions 4 --batches 32,64,128     the same, each with its best batch, too
  nearmetal sweep --fractions 2 --neighbours copy,pcie  one job beside one that only disturbs
  nearmetal report dell.json --format html --output dell.html

`nearmetal plan` with the same layouts prints what would start. Every run is written to the journal
(dell.jsonl, beside the report) before the next one starts; the first Ctrl-C stops after the step
and writes the report. --resume continues a journal, also with more --repeats than before. On
this machine CUDA_VISIBLE_DEVICES limits which GPUs are used.)";

void add_sweep_options(Options& options, SweepForm& form) {
  RunConfig& config = form.request.workload.config;
  add_layout_options(options, form.request);
  options.path("--mig-config", "FILE[#LABEL]", form.request.mig_config,
               "mig-parted file; start nothing unless the GPUs here match it");
  add_resume_options(options, form.resume, OptionSpec{}.group);
  options.path("--output", "FILE", form.output,
               "report file [nearmetal-sweep-MODEL-TIME.report.json]");
  options.toggle("--force", form.force,
                 "replace an existing report, with the journal that it holds");
  options.toggle("--json", form.json, "also print the report on stdout, instead of the table");
  options.toggle("--quiet", config.quiet, "print no remarks and no progress");
  options.toggle("--no-progress", config.no_progress, "print no progress line");
  add_workload_options(options, form.request.workload);
}

ExitCode run_sweep_command(const SweepForm& form, const Context& context) {
  catch_stop_signals();
  if (is_launched()) {
    throw std::invalid_argument(
        "sweep starts the ranks of its jobs itself: start it without mpirun");
  }
  return run_sweep(form, context);
}

}  // namespace

void add_resume_options(Options& options, ResumeOptions& resume, const std::string& group) {
  options
      .path("--resume", "JOURNAL", resume.journal,
            "continue what was stopped or killed; repeat failed runs")
      .group = group;
  options
      .toggle("--keep-failed", resume.keep_failed, "with --resume: leave failed runs as they are")
      .group = group;
  options
      .toggle("--allow-other-build", resume.any_build,
              "with --resume: accept another build than that of earlier runs")
      .group = group;
}

Command sweep_command() {
  return make_command("sweep", "Run several layouts, each afresh several times, into one report",
                      std::string(short_form_text) + sweep_examples, add_sweep_options,
                      run_sweep_command);
}

}  // namespace nearmetal
