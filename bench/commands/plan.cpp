#include <sstream>
#include <stdexcept>

#include "bench/cli/destination.h"
#include "bench/commands/layout_options.h"
#include "bench/commands/program.h"
#include "comm/launch/launch_plan_text.h"
#include "comm/launch/mpi_job_yaml.h"
#include "comm/layout/peer_rules.h"
#include "reports/files/atomic_file.h"
#include "reports/text/fit_table.h"
#include "reports/text/pattern.h"
#include "reports/text/text_table.h"

namespace nearmetal {
namespace {

constexpr const char* plan_examples = R"(
Examples:
  nearmetal plan                                        1, 2, 4, ... all GPUs of this machine
  nearmetal plan 1x1x2 1x2x1 '2*(1x1x1)'                two GPUs: one job, split, two jobs
  nearmetal plan 1x1x2 2x1x2 --hosts vm0:2,vm1:2        a job in one VM, and over two
  nearmetal plan --grid batch=64,256 --grid precision=fp16,bf16 --hosts a:1
  nearmetal plan dell_vms --format json                 every rank and command of a layout file
  nearmetal plan 4x1x8 --hosts '4*8' --format slurm | sbatch
  nearmetal plan 2x1x8 --hosts '2*8' --format mpijob --image my/image | kubectl apply -f -

Nothing is started. A script writes a report for each job; jobs at once start at about the same
time. Hosts need the program under one path, Open MPI 4.1 or 5, and ssh between all of them.)";

struct PlanFormat {
  const char* name;
  Starter starter;
  void (*print)(std::ostream& out, const LaunchPlan& plan, const MpiJobPods& pods);
};

void print_table(std::ostream& out, const LaunchPlan& plan, const MpiJobPods&) {
  print_plan(out, plan);
}

template <std::string (*text)(const LaunchPlan&)>
void without_pods(std::ostream& out, const LaunchPlan& plan, const MpiJobPods&) {
  out << text(plan);
}

void print_mpi_job(std::ostream& out, const LaunchPlan& plan, const MpiJobPods& pods) {
  out << mpi_job_yaml(plan, pods);
}

constexpr PlanFormat plan_formats[] = {
    {"text", Starter::sweep, print_table},
    {"json", Starter::sweep, without_pods<plan_json>},
    {"sh", Starter::script, without_pods<shell_script>},
    {"slurm", Starter::slurm, without_pods<slurm_script>},
    {"mpijob", Starter::mpi_job, print_mpi_job},
};

struct PlanForm {
  PlanRequest request;
  const PlanFormat* format = &plan_formats[0];
  MpiJobPods pods;
  std::optional<std::string> output;
  bool force = false;
};

// The text, where all of it is as the pattern says.
std::string matching(const std::string& flag, const std::string& text, const char* pattern,
                     const char* such_as) {
  if (Pattern(pattern).matches(text)) return text;
  throw std::invalid_argument(flag + " takes a value such as " + such_as + ", not '" +
                              printable(text) + "'");
}

MpiJobPods::Devices devices_of(const std::string& text) {
  matching("--rdma", text, R"([a-z0-9.-]+/[A-Za-z0-9_.-]+(=[1-9][0-9]{0,3})?)",
           "rdma/hca_shared_devices_a or nvidia.com/rdma=4");
  const size_t end = std::min(text.find('='), text.size());
  MpiJobPods::Devices devices{text.substr(0, end)};
  if (end < text.size()) devices.count = std::stoll(text.substr(end + 1));
  return devices;
}

// "registry.example:5000/nearmetal:1", with a digest or without.
std::string image_of(const std::string& text) {
  constexpr const char* registry = "([A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]+)?/)?";
  constexpr const char* part = "[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*";
  constexpr const char* version = "(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?";
  constexpr size_t longest = 500;
  const std::string pattern = std::string(registry) + part + "(/" + part + ")*" + version;
  return matching("--image", text.size() > longest ? "" : text, pattern.c_str(),
                  "registry.example/nearmetal:1");
}

void add_pod_options(Options& options, MpiJobPods& pods) {
  options.value("--image", "NAME", "container image, for mpijob",
                [&](const std::string& text) { pods.image = image_of(text); });
  options.value("--job-name", "NAME", with_default("name of the job, for mpijob", pods.job_name),
                [&](const std::string& text) {
                  pods.job_name = matching("--job-name", text, "[a-z]([a-z0-9-]{0,48}[a-z0-9])?",
                                           "nearmetal-2");
                });
  options.value("--rdma", "RESOURCE[=N]", "RDMA devices of each worker, for mpijob",
                [&](const std::string& text) { pods.rdma = devices_of(text); });
  options.number("--cpus", "N", pods.cpus, {1, 1e4}, "CPUs that each worker requests, for mpijob");
  options.value("--memory", "QUANTITY", "memory of each worker, such as 64Gi, for mpijob",
                [&](const std::string& text) {
                  pods.memory = matching("--memory", text, "[1-9][0-9]{0,6}[MGT]i?", "64Gi");
                });
  options.value("--volume-claim", "NAME", "claim of the volume for reports, for mpijob",
                [&](const std::string& text) {
                  pods.volume_claim = matching("--volume-claim", text,
                                               "[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", "reports");
                });
}

void require_pods(const MpiJobPods& pods, bool mpi_job) {
  if (mpi_job && pods.image.empty()) {
    throw std::invalid_argument("--format mpijob needs --image, the image of its containers");
  }
  const bool any = !pods.image.empty() || pods.job_name != standard_job_name || pods.rdma ||
                   pods.cpus || pods.memory || pods.volume_claim;
  if (mpi_job || !any) return;
  throw std::invalid_argument(
      "--image, --job-name, --rdma, --cpus, --memory and --volume-claim are for --format mpijob");
}

void add_plan_options(Options& options, PlanForm& form) {
  add_layout_options(options, form.request);
  options.row("--format", form.format, plan_formats, "form of the plan");
  add_pod_options(options, form.pods);
  options.path("--output", "FILE", form.output, "file to write; - is stdout [-]");
  options.toggle("--force", form.force, "replace an existing file");
  add_workload_options(options, form.request.workload);
}

ExitCode run_plan(const PlanForm& form, const Context& context) {
  PlanRequest request = form.request;
  request.starter = form.format->starter;
  request.job_name = form.pods.job_name;
  require_pods(form.pods, request.starter == Starter::mpi_job);
  const LaunchPlan plan = make_launch_plan(request);
  std::ostringstream text;
  if (form.output.value_or("-") == "-") take_column_limit(text, context.terminal.out);
  form.format->print(text, plan, form.pods);
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
