#include "bench/commands/sweep.h"

#include "bench/cli/exit_status.h"
#include "bench/commands/layout_options.h"
#include "bench/commands/program.h"

namespace nearmetal {
namespace {

constexpr const char* sweep_examples = R"(
Examples:
  nearmetal sweep                                       1, 2, 4, ... all GPUs of this machine
  nearmetal sweep 1x1x2 '2*(1x1x1)' --repeats 8         one job on two GPUs, and two jobs at once
  nearmetal sweep dell_vms --output dell.json           what a layout file says, here a shipped one
  nearmetal sweep 1x1x1 --grid batch=64,128,256         one job with each of these batches
  nearmetal sweep --fractions 4 --repeats 5             four jobs on one GPU, in every way
  nearmetal sweep --fractions 4 --batches 32,64,128     the same, each with its best batch, too
  nearmetal sweep --fractions 2 --neighbours copy,pcie  one job beside one that only disturbs
  nearmetal report dell.json --format html --output dell.html

`nearmetal plan` with the same layouts prints what is started. Every run is in the journal
(dell.jsonl, beside the report) before the next one starts; the first Ctrl-C stops after the step
and writes the report. --resume goes on with a journal, also to more --repeats than before. Of this
machine, CUDA_VISIBLE_DEVICES says which GPUs are taken.)";

void add_sweep_options(Options& options, SweepForm& form) {
  RunConfig& config = form.request.workload.config;
  add_layout_options(options, form.request);
  options.path("--mig-config", "FILE[#LABEL]", form.request.mig_config,
               "of mig-parted: start nothing unless the GPUs here are so");
  add_resume_options(options, form.resume, OptionSpec{}.group);
  options.path("--output", "FILE", form.output,
               "of the report [nearmetal-sweep-MODEL-TIME.report.json]");
  options.toggle("--force", form.force,
                 "replace an existing report, with the journal that it holds");
  options.toggle("--json", form.json, "the report on stdout, too, instead of the table");
  options.toggle("--quiet", config.quiet, "no remarks and no progress");
  options.toggle("--no-progress", config.no_progress, "no progress line");
  add_workload_options(options, form.request.workload);
}

ExitCode run_sweep_command(const SweepForm& form, const Context& context) {
  catch_stop_signals();
  return run_sweep(form, context);
}

}  // namespace

void add_resume_options(Options& options, ResumeOptions& resume, const std::string& group) {
  options
      .path("--resume", "JOURNAL", resume.journal,
            "go on where it was stopped or killed, or take failed runs again")
      .group = group;
  options
      .toggle("--keep-failed", resume.keep_failed, "with --resume: leave failed runs as they are")
      .group = group;
  options
      .toggle("--allow-other-build", resume.any_build,
              "take runs of other builds of nearmetal beside those there")
      .group = group;
}

Command sweep_command() {
  return make_command("sweep", "Run several layouts, each afresh several times, into one report",
                      std::string(short_form_text) + sweep_examples, add_sweep_options,
                      run_sweep_command);
}

}  // namespace nearmetal
