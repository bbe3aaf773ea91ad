#include "bench/commands/plan.h"

#include <sstream>
#include <stdexcept>

#include "bench/sweep/make_plan.h"
#include "comm/launch/launch_script.h"
#include "comm/launch/plan_json.h"
#include "comm/launch/plan_text.h"
#include "reports/files/atomic_file.h"

namespace nearmetal {
namespace {

std::string text_of(const LaunchPlan& plan, const PlanForm& form) {
  if (form.format == "json") return plan_json(plan);
  if (form.format == "sh") return shell_script(plan);
  if (form.format == "slurm") return slurm_script(plan);
  if (form.format == "mpijob") return mpi_job_json(plan, *form.image);
  std::ostringstream text;
  print_plan(text, plan);
  return text.str();
}

}  // namespace

ExitCode cmd_plan(const CommandLine& line, const Terminal& terminal) {
  const PlanForm& form = line.plan;
  if ((form.format == "mpijob") != form.image.has_value()) {
    throw std::invalid_argument("--format mpijob and --image, that of its containers, go together");
  }
  const std::string text = text_of(make_plan(line), form);
  if (form.output && *form.output != "-") {
    write_file_atomically(*form.output, text, form.force);
  } else {
    terminal.out << text;
  }
  return ExitCode::ok;
}

}  // namespace nearmetal
