// The program as a command, the commands that are rows of its list, and what they have of one
// another.
#pragma once

#include <string>

#include "bench/cli/command_line.h"

namespace nearmetal {

struct PlanRequest;  // bench/sweep/make_launch_plan.h
struct RunRequest;   // bench/cli/run_request.h

Command program();

Command baseline_command();
Command compare_command();
/// Exits with not_supported where something blocks runs.
Command doctor_command();
/// Writes a state_dict of torchvision's model, with --steps also what was computed from it:
/// `images` and `labels` (those of rank 0's first step), `loss` and `gradient_norm` of each step,
/// `gradients.STEP.NAME`, and the state afterwards as `trained.NAME`.
Command export_command();
/// Gives the answer of judge() (reports/compare/gate.h). While it is inconclusive, up to `--rerun`
/// times repeats the configuration of the first new report as a fresh launch here.
Command gate_command();
Command generate_command();
Command import_command();
Command micro_command();
Command plan_command();
Command predict_command();
Command reference_command();
Command report_command();
Command rerun_command();
Command run_command();
/// Runs until the time is over, a signal stops it, or the sweep that started it has seen enough.
Command stress_command();
/// Runs what `plan` prints. Each run is in the journal when the next one starts. A layout that
/// fails does not keep the others from running; the exit code is that of the first failure.
Command sweep_command();
/// A sweep whose runs tell which GPUs, links and hosts are slow, and which GPUs compute other bits.
/// Exits with gate_failed where one is confirmed, inconclusive where too few could be judged.
Command survey_command();
/// Runs what run or sweep would for flags of another program, and prints as that does.
Command tf_cnn_benchmarks_command();

/// The work of `nearmetal run` in each process of a job. Joins the other ranks and trains together
/// with them; rank 0 prints the table and writes the report. A run that fails or is stopped still
/// writes its report; what keeps it from starting (settings, device, a path) is thrown instead.
ExitCode run_job(const RunRequest& request, const Context& context);

/// How layouts are written in short; the options that say where jobs run and how they are started,
/// and with those of plan and sweep that say which there are.
extern const char* const short_form_text;
void add_launch_options(Options& options, PlanRequest& request, const char* repeats_help);
void add_layout_options(Options& options, PlanRequest& request);

/// A value that can be part of a command line. Throws std::invalid_argument.
std::string plain_text(const std::string& flag, const std::string& text);

}  // namespace nearmetal
