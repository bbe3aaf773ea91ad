#include <algorithm>
#include <stdexcept>

#include "base/pattern.h"
#include "base/text_table.h"
#include "bench/cli/output.h"
#include "bench/cli/parse_value.h"
#include "bench/commands/program.h"
#include "bench/sweep/layout_workload.h"
#include "bench/sweep/make_launch_plan.h"
#include "comm/launch/launch_plan_text.h"
#include "comm/launch/launch_script.h"
#include "comm/layout/layout.h"
#include "comm/layout/peer_rules.h"

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

std::vector<NeighbourLoad> distinct_loads(const std::string& flag, const std::string& text) {
  std::vector<NeighbourLoad> loads;
  for (const std::string& load : split(text, ",")) {
    loads.push_back(parse_choice<NeighbourLoad>(flag, load));
    if (std::ranges::count(loads, loads.back()) > 1) {
      throw std::invalid_argument(flag + " " + text + " names one twice");
    }
  }
  return loads;
}

struct PlanFormat {
  const char* name;
  Starter starter;
  void (*print)(std::ostream& out, const LaunchPlan& plan, const MpiJobPods& pods);
};

template <std::string (*text)(const LaunchPlan&)>
void without_pods(std::ostream& out, const LaunchPlan& plan, const MpiJobPods&) {
  out << text(plan);
}

constexpr PlanFormat plan_formats[] = {
    {"text", Starter::sweep,
     [](auto& out, const auto& plan, const auto&) { print_plan(out, plan); }},
    {"json", Starter::sweep, without_pods<plan_json>},
    {"sh", Starter::script, without_pods<shell_script>},
    {"slurm", Starter::slurm, without_pods<slurm_script>},
    {"srun", Starter::srun,
     [](auto& out, const auto& plan, const auto& pods) {
       LaunchPlan in_image = plan;
       in_image.options.container_image = pods.image;
       out << slurm_script(in_image);
     }},
    {"mpijob", Starter::mpi_job,
     [](auto& out, const auto& plan, const auto& pods) { out << mpi_job_yaml(plan, pods); }},
};

struct PlanForm {
  PlanRequest request;
  const PlanFormat* format = &plan_formats[0];
  MpiJobPods pods;
  OutputFile output;
};

// The text, where all of it is as the pattern says.
std::string matching(const std::string& flag, const std::string& text, const char* pattern,
                     const char* such_as) {
  if (Pattern(pattern).matches(text)) return text;
  throw std::invalid_argument(flag + " takes a value such as " + such_as + ", not '" +
                              printable(text) + "'");
}

// Names of extended resources, as Kubernetes has them: of a domain that is not its own.
std::vector<MpiJobPods::Devices> devices_of(const std::string& flag, const std::string& text) {
  constexpr const char* form =
      R"((?!requests\.|([^/]*\.)?kubernetes\.io/|nvidia\.com/gpu(=|$))[a-z0-9]([a-z0-9-]*[a-z0-9])?)"
      R"((\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*/[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?(=[1-9][0-9]{0,3})?)";
  std::vector<MpiJobPods::Devices> all;
  for (const std::string& one : split(text, ",")) {
    matching(flag, one, form, "rdma/hca_shared_devices_a or nvidia.com/rdma=4");
    const size_t end = std::min(one.find('='), one.size());
    MpiJobPods::Devices devices{one.substr(0, end)};
    if (end < one.size()) devices.count = std::stoll(one.substr(end + 1));
    all.push_back(devices);
  }
  return all;
}

std::array<std::string, 2> huge_pages_of(const std::string& flag, const std::string& text) {
  matching(flag, text, "[1-9][0-9]{0,3}[KMG]i=[1-9][0-9]{0,6}[KMG]i", "2Mi=4Gi");
  const std::vector<std::string> parts = split(text, "=");
  return {parts[0], parts[1]};
}

// "registry.example:5000/nearmetal:1", with a digest or without.
std::string image_of(const std::string& flag, const std::string& text) {
  constexpr const char* registry = "([A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]+)?/)?";
  constexpr const char* part = "[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*";
  constexpr const char* version = "(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?";
  constexpr size_t longest = 500;
  const std::string pattern = std::string(registry) + part + "(/" + part + ")*" + version;
  return matching(flag, text.size() > longest ? "" : text, pattern.c_str(),
                  "registry.example/nearmetal:1");
}

void add_pod_options(Options& options, MpiJobPods& pods) {
  const auto like = [](const char* pattern, const char* such_as) {
    return [=](const std::string& flag, const std::string& text) {
      return matching(flag, text, pattern, such_as);
    };
  };
  options.value("--image", "NAME", "container image, for mpijob, and for srun with Pyxis",
                pods.image, image_of);
  options.value("--job-name", "NAME", with_default("name of the job, for mpijob", pods.job_name),
                pods.job_name, like("[a-z]([a-z0-9-]{0,48}[a-z0-9])?", "nearmetal-2"));
  options.value("--rdma", "RESOURCE[=N],...", "RDMA devices of each worker, for mpijob", pods.rdma,
                devices_of);
  options.value("--hugepages", "SIZE=QUANTITY",
                "huge pages of each worker, such as 2Mi=4Gi, for mpijob", pods.huge_pages,
                huge_pages_of);
  const auto quantity = like("[1-9][0-9]{0,6}[MGT]i?", "64Gi");
  options.number("--cpus", "N", pods.cpus, {1, 1e4}, "CPUs that each worker requests, for mpijob");
  options.value("--memory", "QUANTITY", "memory of each worker, such as 64Gi, for mpijob",
                pods.memory, quantity);
  options.number("--launcher-cpus", "N", pods.launcher_cpus, {1, 1e4},
                 "CPUs that the launcher requests, for mpijob");
  options.value("--launcher-memory", "QUANTITY", "memory of the launcher, for mpijob",
                pods.launcher_memory, quantity);
  options.value("--volume-claim", "NAME", "claim of the volume for reports, for mpijob",
                pods.volume_claim, like("[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", "reports"));
}

void require_pods(const MpiJobPods& pods, Starter starter) {
  const bool mpi_job = starter == Starter::mpi_job;
  if (mpi_job && pods.image.empty()) {
    throw std::invalid_argument("--format mpijob needs --image, the image of its containers");
  }
  const bool has_image = !pods.image.empty() && starter != Starter::srun;
  const bool any = has_image || pods.job_name != standard_job_name || !pods.rdma.empty() ||
                   pods.huge_pages || pods.cpus || pods.memory || pods.launcher_cpus ||
                   pods.launcher_memory || pods.volume_claim;
  if (mpi_job && pods.huge_pages && !pods.cpus && !pods.memory) {
    throw std::invalid_argument("--hugepages needs --memory or --cpus, as Kubernetes does");
  }
  if (mpi_job || !any) return;
  throw std::invalid_argument(
      "--image, --job-name, --rdma, --hugepages, --cpus, --memory, --launcher-cpus, "
      "--launcher-memory and --volume-claim are for --format mpijob (--image for srun, too)");
}

void add_plan_options(Options& options, PlanForm& form) {
  add_layout_options(options, form.request);
  options.row("--format", form.format, plan_formats, "form of the plan");
  add_pod_options(options, form.pods);
  add_output_options(options, form.output);
  add_settings(options, form.request.workload, in_sweep);
}

ExitCode run_plan(const PlanForm& form, const Context& context) {
  PlanRequest request = form.request;
  request.starter = form.format->starter;
  request.job_name = form.pods.job_name;
  request.in_container = !form.pods.image.empty();
  require_pods(form.pods, request.starter);
  const LaunchPlan plan = make_launch_plan(request);
  require_no_input(form.output, files_of(plan, request));
  write_output(form.output, context.terminal,
               [&](std::ostream& out) { form.format->print(out, plan, form.pods); });
  context.terminal.remark(variables_left_here(plan));
  for (const Finding& found : peer_findings(plan.placements, plan.file.hosts)) {
    context.terminal.remark(std::string("nearmetal: ") + to_string(found.severity) + ": " +
                            found.seen + "; " + found.why + "; " + found.fix);
  }
  return ExitCode::ok;
}

}  // namespace

const char* const short_form_text = R"(
Layouts in short: nodes x VMs per node x GPUs per VM, K*(...) for K such jobs at once, + for others:
  1x1x2 is one job on two GPUs, 2*(1x1x1) are two on one each. Without any: 1, 2, 4, ... all GPUs.
  Several VMs on one node are emulated (kind emulated): parts of the host without P2P or shared
  memory between them. Real VMs are hosts; a layout file can say which share a node.
  A layout file or hostfile is a path with a / or a suffix: plain is no file, ./plain is one.

Each rank reads and writes the files of --plans, --plan-cache and --host-facts itself, so that each
host needs them under the same path. --plans is also read here: a layout takes the plans of the arm
that did the same work, or, if several did, of the one with its name. --plans is refused (exit 2)
if no arm did that work, if --batch has no number, and if the jobs of a layout have shares of
different sizes, as plans hold for one size.
)";

std::string plain_text(const std::string& flag, const std::string& text) {
  if (is_plain_text(text)) return text;
  throw std::invalid_argument(flag + " does not take '" + text + "'");
}

void add_launch_options(Options& options, PlanRequest& request, const char* repeats_help) {
  options
      .paths("LAYOUT", "LAYOUT...", request.layouts,
             "layout file, name of a shipped one, or layouts in short")
      .words = shipped_layouts;
  options.value("--hosts", "LIST|FILE",
                "NAME:GPUS,..., hostfile of mpirun, or COUNT*GPUS [this one]", request.hosts,
                plain_text);
  options
      .value("--device", "", "",
             [](const std::string&) {
               throw std::invalid_argument(
                   "--device: a layout's hosts decide; --hosts localhost:0 trains on the CPUs");
             })
      .group.clear();
  options
      .values(
          "--variable", "NAME=VALUE", "environment of every rank, on each host; repeated: several",
          [&](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) {
              const size_t equals = text.find('=');
              if (equals == text.npos) {
                throw std::invalid_argument("--variable must be NAME=VALUE, not '" + text + "'");
              }
              request.variables[text.substr(0, equals)] = text.substr(equals + 1);
            }
          })
      .takes = OptionSpec::Takes::each;
  options
      .value("--mpi", "tcp|ucx", "transport of MPI's messages [that of the file, or tcp]",
             request.mpi, parse_choice<MpiTransport>)
      .words = [] { return all_names<MpiTransport>(); };
  options.number("--repeats", "N", request.repeats, {1, 1000}, repeats_help);
  options.value("--job-limit", "TIME", "time after which a job counts as failed: 2h [30m]",
                request.job_seconds, parse_duration);
}

void add_layout_options(Options& options, PlanRequest& request) {
  add_launch_options(options, request, "fresh starts of each layout [5]");
  options.number("--fractions", "JOBS", request.fractions, {2, 64},
                 "jobs that share one GPU, in every way [batch on GPUs: 64]");
  const auto take_axes = [&](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) request.grid.push_back(grid_axis_from(text));
  };
  options
      .values("--grid", "NAME=VALUE,...",
              "run each layout with each value; repeated: each combination", take_axes)
      .takes = OptionSpec::Takes::each;
  options.value("--batches", "N,N,...", "the same as --grid batch=N,N,...",
                [&](const std::string& text) {
                  request.grid.push_back({"batch", split(text, ","), "--batches"});
                });
  options.value("--neighbours", "LOAD,LOAD,...",
                "train in one job only; the others copy, compute or use pcie", request.neighbours,
                distinct_loads);
}

Command plan_command() {
  return make_command("plan", "Print what a sweep over layouts would start",
                      std::string(short_form_text) + plan_examples, add_plan_options, run_plan);
}

}  // namespace nearmetal
