#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <stdexcept>

#include "bench/cli/command_options.h"
#include "bench/cli/parse_value.h"
#include "comm/layout/layout_names.h"

namespace nearmetal {
namespace {

constexpr const char* short_form_text = R"(
Layouts in short: nodes x VMs per node x GPUs per VM, K*(...) for K such jobs at once, + for others:
  1x1x2 is one job on two GPUs, 2*(1x1x1) are two on one each. Without any: 1, 2, 4, ... all GPUs.
  More than one VM on a node are pretended (kind emulated): parts of the host without P2P or shared
  memory between them. Real VMs are hosts; a layout file can say which share a node.
)";

constexpr const char* sweep_examples = R"(
Examples:
  nearmetal sweep                                       1, 2, 4, ... all GPUs of this machine
  nearmetal sweep 1x1x2 '2*(1x1x1)' --repeats 8         one job on two GPUs, and two jobs at once
  nearmetal sweep layouts/dell_vms.json --output dell.json
                                                        what a layout file says
  nearmetal sweep --fractions 4 --repeats 5             four jobs on one GPU, in every way
  nearmetal sweep --fractions 4 --batches 32,64,128     the same, each with its best batch, too
  nearmetal sweep --fractions 2 --neighbours copy,pcie  one job beside one that only disturbs
  nearmetal report dell.json --format html --output dell.html

`nearmetal plan` with the same layouts prints what is started. Every run is in the journal
(dell.jsonl, beside the report) before the next one starts; the first Ctrl-C stops after the step
and writes the report. Of this machine, CUDA_VISIBLE_DEVICES says which GPUs are taken.)";

constexpr const char* plan_examples = R"(
Examples:
  nearmetal plan                                        1, 2, 4, ... all GPUs of this machine
  nearmetal plan 1x1x2 1x2x1 '2*(1x1x1)'                two GPUs: one job, split, two jobs
  nearmetal plan 1x1x2 2x1x2 --hosts vm0:2,vm1:2        a job in one VM, and over two
  nearmetal plan layouts/dell_vms.json --format json    every rank and command of a layout file
  nearmetal plan 4x1x8 --hosts '4*8' --format slurm | sbatch
  nearmetal plan 2x1x8 --hosts '2*8' --format mpijob --image IMAGE | kubectl apply -f -

Nothing is started. A script writes a report for each job; jobs at once start at about the same
time. Hosts need the program under one path, Open MPI 4.1 or 5, and ssh between all of them.)";

using Setter = std::function<void(const std::string& text)>;

void add(CLI::App& command, const char* flag, const char* type, const char* help,
         const Setter& set) {
  command.add_option_function<std::string>(flag, set, help)
      ->option_text(type)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

std::string plain_text(const std::string& flag, const std::string& text) {
  if (is_plain_text(text)) return text;
  throw std::invalid_argument(flag + " does not take '" + text + "'");
}

void add_layouts(CLI::App& command, PlanForm& form) {
  const auto take_layouts = [&form](const std::vector<std::string>& words) {
    for (const std::string& word : words) form.layouts.push_back(checked_path("LAYOUT", word));
  };
  command
      .add_option_function<std::vector<std::string>>("LAYOUT", take_layouts,
                                                     "layout file, or layouts in short")
      ->option_text("LAYOUT...");
  add(command, "--hosts", "LIST|FILE",
      "NAME:GPUS,..., hostfile of mpirun, or COUNT*GPUS [this one]",
      [&form](const std::string& text) { form.hosts = plain_text("--hosts", text); });
  add(command, "--fractions", "JOBS", "on one GPU, in every way; of batch 64 unless given",
      [&form](const std::string& text) {
        form.fractions = parse_number<int64_t>("--fractions", text, {2, 64});
      });
  add(command, "--batches", "N,N,...",
      "of --fractions: each way with each of them, and the best of each",
      [&form](const std::string& text) {
        form.batches.clear();
        for (const std::string& number : comma_separated(text)) {
          form.batches.push_back(parse_number<int64_t>("--batches", number, {1, 1e6}));
        }
      });
  add(command, "--neighbours", "LOAD,LOAD,...",
      "one of --fractions trains, all others copy, compute or use pcie",
      [&form](const std::string& text) {
        form.neighbours.clear();
        for (const std::string& load : comma_separated(text)) {
          form.neighbours.push_back(parse_choice<NeighbourLoad>("--neighbours", load));
        }
      });
  add(command, "--repeats", "N", "fresh starts of each layout [5]",
      [&form](const std::string& text) {
        form.repeats = parse_number<int64_t>("--repeats", text, {1, 1000});
      });
}

}  // namespace

CLI::App* add_plan_command(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("plan", "Print what a sweep over layouts would start");
  command->footer(std::string(short_form_text) + plan_examples);
  PlanForm& form = line.plan;
  add_layouts(*command, form);
  add(*command, "--format", "text|json|sh|slurm|mpijob", "[text]",
      [&form](const std::string& text) {
        require_choice("--format", text, {"text", "json", "sh", "slurm", "mpijob"});
        form.format = text;
      });
  add(*command, "--image", "NAME", "of the containers, for mpijob",
      [&form](const std::string& text) { form.image = plain_text("--image", text); });
  add(*command, "--output", "FILE", "file; - is stdout [-]",
      [&form](const std::string& text) { form.output = checked_path("--output", text); });
  command->add_flag("--force", form.force, "replace an existing file");
  add_workload_options(*command, line);
  return command;
}

CLI::App* add_sweep_command(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand(
      "sweep", "Run several layouts, each afresh several times, into one report");
  command->footer(std::string(short_form_text) + sweep_examples);
  PlanForm& form = line.plan;
  add_layouts(*command, form);
  add(*command, "--mig-config", "FILE[#LABEL]",
      "of mig-parted: start nothing unless the GPUs here are so",
      [&form](const std::string& text) { form.mig_config = checked_path("--mig-config", text); });
  add(*command, "--resume", "JOURNAL", "go on with a sweep that was stopped or killed",
      [&line](const std::string& text) { line.resume = checked_path("--resume", text); });
  add(*command, "--output", "FILE", "of the report [nearmetal-sweep-MODEL-TIME.report.json]",
      [&form](const std::string& text) { form.output = checked_path("--output", text); });
  command->add_flag("--force", form.force, "replace an existing report");
  command->add_flag("--quiet", line.run.quiet, "no remarks and no progress");
  command->add_flag("--no-progress", line.run.no_progress, "no progress line");
  add_workload_options(*command, line);
  return command;
}

}  // namespace nearmetal
