#include <sstream>
#include <stdexcept>

#include "bench/cli/destination.h"
#include "bench/commands/layout_options.h"
#include "bench/commands/program.h"
#include "comm/launch/launch_plan_json.h"
#include "comm/launch/launch_plan_text.h"
#include "comm/layout/peer_rules.h"
#include "reports/files/atomic_file.h"
#include "reports/text/fit_table.h"

namespace nearmetal {
namespace {

constexpr const char* plan_examples = R"(
Examples:
  nearmetal plan                                        1, 2, 4, ... all GPUs of this machine
  nearmetal plan 1x1x2 1x2x1 '2*(1x1x1)'                two GPUs: one job, split, two jobs
  nearmetal plan 1x1x2 2x1x2 --hosts vm0:2,vm1:2        a job in one VM, and over two
  nearmetal plan dell_vms --format json                 every rank and command of a layout file
  nearmetal plan 4x1x8 --hosts '4*8' --format slurm | sbatch
  nearmetal plan 2x1x8 --hosts '2*8' --format mpijob --image IMAGE | kubectl apply -f -

Nothing is started. A script writes a report for each job; jobs at once start at about the same
time. Hosts need the program under one path, Open MPI 4.1 or 5, and ssh between all of them.)";

struct PlanFormat {
  const char* name;
  Starter starter;
  void (*print)(std::ostream& out, const LaunchPlan& plan, const std::string& image);
};

void print_table(std::ostream& out, const LaunchPlan& plan, const std::string&) {
  print_plan(out, plan);
}

template <std::string (*text)(const LaunchPlan&)>
void without_image(std::ostream& out, const LaunchPlan& plan, const std::string&) {
  out << text(plan);
}

void print_mpi_job(std::ostream& out, const LaunchPlan& plan, const std::string& image) {
  out << mpi_job_json(plan, image);
}

constexpr PlanFormat plan_formats[] = {
    {"text", Starter::sweep, print_table},
    {"json", Starter::sweep, without_image<plan_json>},
    {"sh", Starter::script, without_image<shell_script>},
    {"slurm", Starter::slurm, without_image<slurm_script>},
    {"mpijob", Starter::mpi_job, print_mpi_job},
};

struct PlanForm {
  PlanRequest request;
  const PlanFormat* format = &plan_formats[0];
  std::optional<std::string> image;  // of containers
  std::optional<std::string> output;
  bool force = false;
};

void add_plan_options(Options& options, PlanForm& form) {
  add_layout_options(options, form.request);
  options.row("--format", form.format, plan_formats, "");
  options.value("--image", "NAME", "of the containers, for mpijob",
                [&form](const std::string& text) { form.image = plain_text("--image", text); });
  options.path("--output", "FILE", form.output, "file; - is stdout [-]");
  options.toggle("--force", form.force, "replace an existing file");
  add_workload_options(options, form.request.workload);
}

ExitCode run_plan(const PlanForm& form, const Context& context) {
  PlanRequest request = form.request;
  request.starter = form.format->starter;
  if ((request.starter == Starter::mpi_job) != form.image.has_value()) {
    throw std::invalid_argument("--format mpijob and --image, that of its containers, go together");
  }
  const LaunchPlan plan = make_launch_plan(request);
  std::ostringstream text;
  if (form.output.value_or("-") == "-") take_column_limit(text, context.terminal.out);
  form.format->print(text, plan, form.image.value_or(""));
  if (form.output) require_no_input(*form.output, files_of(plan, request));
  write_output(text.str(), form.output, form.force, context.terminal);
  for (const Finding& found : peer_findings(plan.placements, plan.file.hosts)) {
    context.terminal.remark(std::string("nearmetal: ") + to_string(found.severity) + ": " +
                            found.seen + "; " + found.why + "; " + found.fix);
  }
  return ExitCode::ok;
}

}  // namespace

Command plan_command() {
  return make_command("plan", "Print what a sweep over layouts would start",
                      std::string(short_form_text) + plan_examples, add_plan_options, run_plan);
}

}  // namespace nearmetal
