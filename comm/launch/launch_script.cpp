#include "comm/launch/launch_script.h"

#include <yaml-cpp/emitter.h>
#include <yaml-cpp/emittermanip.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <stdexcept>

#include "base/text.h"
#include "comm/layout/shell_text.h"
#include "reports/document/settings.h"
#include "reports/json/json_writer.h"

namespace nearmetal {
namespace {

constexpr const char* shebang = "#!/usr/bin/env bash\n";

// Background jobs of a script ignore SIGINT, so that it must end them itself. What a job prints has
// the name of a report once the job has ended, if it is one: a launcher that is killed forwards a
// part. Then the file takes its place that rank 0 keeps, where this folder is its own, too. A job
// that printed nothing leaves nothing; what is no report, or cannot get its name, is left under
// that of its part. Each job has a TMPDIR of its own: two mpirun
// of Open MPI 4 that start at once would both create their session folder, and one would fail; and
// a session of its own, by which is found what its launcher leaves behind; the errors of
// processes that end meanwhile are not shown.
constexpr const char* functions = R"(
set -u -o pipefail
if ((EUID == 0)); then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
trap 'kill "${jobs[@]}" 2>/dev/null; wait_for_jobs; exit 129' HUP
trap 'kill "${jobs[@]}" 2>/dev/null; wait_for_jobs; exit 130' INT
trap 'kill "${jobs[@]}" 2>/dev/null; wait_for_jobs; exit 143' TERM
trap 'rm -rf "$scratch"' EXIT
scratch=$(mktemp -d) || exit 9
status=0
number=0
jobs=()
reports=()

end_session() { # such as an ssh that hangs
  local file line session
  for file in /proc/[0-9]*/stat; do
    { read -r line <"$file"; } 2>/dev/null || continue
    read -r _ _ _ session _ <<<"${line##*) }" # after state, parent and group
    if [[ $session == "$1" ]]; then kill -KILL "${file//[^0-9]/}" 2>/dev/null; fi
  done
}

is_report() { # or may be, where the program is on other hosts alone
  [[ -s $1 ]] && { ! command -v "$program" >/dev/null || "$program" validate "$1" >/dev/null; }
}

publish() { # a report, by its name
  if is_report "$1.part"; then
    mv "$1.part" "$1" || status=9
  elif is_report "$1.last"; then
    mv "$1.last" "$1" || status=9
    rm -f "$1.part"
  elif [[ ! -s $1.part ]]; then
    rm -f "$1.part"
  fi
  rm -f "$1.last"
}

wait_for_jobs() {
  local i
  for i in "${!jobs[@]}"; do
    wait "${jobs[i]}" || status=$?
    end_session "${jobs[i]}"
    publish "${reports[i]}"
  done
  jobs=()
  reports=()
}

# What is there is never replaced.
require_new() {
  local report
  for report in "$@"; do
    if [[ -e $report || -s $report.part ]]; then
      echo "$report is there already: nothing is started" >&2
      exit 9
    fi
  done
}
)";

// What is chosen by measuring is chosen once, by the first run of a layout that is complete.
constexpr const char* first_choices = R"(
first_choices() { # the options, the reports of all runs of the job
  local report
  for report in "${@:2}"; do
    [[ -e $report ]] && "$program" rerun "$report" --flags | grep -E -e "$1" && return
  done
}
)";

constexpr size_t longest_name = 60;

// Letters, digits and some signs stay, all else becomes '-'.
std::string file_name_of(const std::string& text) {
  std::string name = text.substr(0, longest_name);
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0 && c != '_' && c != '+'; }, '-');
  return name;
}

// The name that a script gives the report: "2-1x1x2-run3-job1.report.json". Numbers count from 1;
// that of the job is left out where there is one alone. But for `repeat`, which a script may still
// have to expand, of letters, digits and harmless signs.
std::string report_name(const LaunchPlan& plan, size_t layout, const std::string& repeat,
                        size_t job) {
  const Placement& placement = plan.placements.at(layout);
  std::string name =
      std::to_string(layout + 1) + "-" + file_name_of(placement.layout) + "-run" + repeat;
  if (placement.jobs.size() > 1) name += "-job" + std::to_string(job + 1);
  return name + ".report.json";
}

// "layout_3"
std::string function_name(size_t layout) { return "layout_" + std::to_string(layout + 1); }

// The options of what a job would choose anew in each of its runs; empty where it runs once.
std::vector<std::string> options_left_open(const LaunchPlan& plan, size_t layout, size_t job) {
  if (plan.file.repeats == 1 || plan.placements[layout].jobs[job].stress) return {};
  return options_left_open(plan.workloads.at(layout).of(job).config);
}

bool leaves_choices(const LaunchPlan& plan) {
  for (size_t layout = 0; layout < plan.placements.size(); ++layout) {
    for (size_t job = 0; job < plan.placements[layout].jobs.size(); ++job) {
      if (!options_left_open(plan, layout, job).empty()) return true;
    }
  }
  return false;
}

// A function that starts the jobs of a layout, for the repeat that is its argument.
std::string layout_function(const LaunchPlan& plan, size_t layout) {
  const auto commands = commands_of(plan, layout);
  const std::string all_repeats = "{1.." + std::to_string(plan.file.repeats) + "}";  // bash's
  std::string text = "\n" + function_name(layout) + "() {\n  echo \"launch $((++number)) of " +
                     std::to_string(plan.launches.size()) + ":\" " +
                     shell_quoted(plan.placements[layout].layout + ",") + " \"run $1\" >&2\n";
  for (size_t job = 0; job < commands.size(); ++job) {
    const std::string folder = "\"$scratch/job" + std::to_string(job + 1) + "\"";
    const std::vector<std::string> open = options_left_open(plan, layout, job);
    if (!open.empty()) {
      text += "  readarray -t choices < <(first_choices '^(" + joined(open, "|") + ")=' " +
              report_name(plan, layout, all_repeats, job) + ")\n";
    }
    const std::string report = "\"" + report_name(plan, layout, "$1", job);
    // Ranks of srun have this environment also on hosts that lack the folder.
    text += plan.options.by_srun ? "  " : "  mkdir -p " + folder + "\n  TMPDIR=" + folder + " ";
    text += std::string(last_report_variable) + "=$PWD/" + report + ".last\" setsid " +
            shell_quoted(commands[job]);
    if (!open.empty()) text += " ${choices[@]+\"${choices[@]}\"}";
    text += " \\\n    </dev/null >" + report + ".part\" &\n";
    text += "  jobs+=($!) reports+=(" + report + "\")\n";
  }
  return text + "}\n";
}

// The reports of a repeat, each on a line of its own.
std::string reports_of(const LaunchPlan& plan, int64_t of_repeat) {
  std::string text;
  for (const Launch& launch : plan.launches) {
    if (launch.repeat != of_repeat) continue;
    const std::string repeat = std::to_string(launch.repeat);
    for (size_t job = 0; job < plan.placements[launch.layout].jobs.size(); ++job) {
      text += " \\\n  " + shell_quoted(report_name(plan, launch.layout, repeat, job));
    }
  }
  return text;
}

// Before what a repeat does: a task of an array of Slurm does one alone.
std::string for_repeat(int64_t repeat, bool by_slurm) {
  return by_slurm ? "is_ours " + std::to_string(repeat) + " && " : "";
}

// Slurm signals the launchers of a job that is cancelled, too: at a second signal mpirun would kill
// its ranks at once.
constexpr const char* of_slurm = R"(
trap 'for _ in {1..30}; do [[ -z $(jobs -pr) ]] && break; sleep 0.1; done
  kill "${jobs[@]}" 2>/dev/null; wait_for_jobs; exit 143' TERM
is_ours() { [[ ${SLURM_ARRAY_TASK_ID-$1} == "$1" ]]; } # a repeat
)";

// `settings`: lines before what starts launches.
std::string script_body(const LaunchPlan& plan, bool by_slurm, const std::string& settings = "") {
  std::string text = functions + settings;
  text += "program=" + shell_quoted(plan.file.launcher.program.value_or("nearmetal")) + "\n";
  if (leaves_choices(plan)) text += first_choices;
  if (by_slurm) text += of_slurm;
  for (size_t i = 0; i < plan.placements.size(); ++i) text += layout_function(plan, i);
  for (int64_t repeat = 1; repeat <= plan.file.repeats; ++repeat) {
    text += "\n" + for_repeat(repeat, by_slurm) + "require_new" + reports_of(plan, repeat);
  }
  text += "\n\n";
  for (const Launch& launch : plan.launches) {
    const std::string repeat = std::to_string(launch.repeat);
    text += for_repeat(launch.repeat, by_slurm) + function_name(launch.layout) + " " + repeat;
    text += by_slurm ? " && wait_for_jobs\n" : "; wait_for_jobs\n";
  }
  return text + "\nexit \"$status\"\n";
}

// All limits together.
double most_seconds(const LaunchPlan& plan) {
  return plan.file.limits.job_seconds * static_cast<double>(plan.launches.size());
}

// In Slurm's form: "1-02:30:00".
std::string slurm_time(double seconds) {
  const auto minutes = static_cast<int64_t>(std::ceil(seconds / 60));
  char text[40];
  std::snprintf(text, sizeof text, "%ld-%02ld:%02ld:00", static_cast<long>(minutes / 1440),
                static_cast<long>(minutes / 60 % 24), static_cast<long>(minutes % 60));
  return text;
}

using json::Json;

constexpr const char* container_name = "nearmetal";
constexpr const char* reports_folder = "/reports";
// The user of scripts/container/Containerfile, who may write where the group of a volume may.
constexpr int64_t user_id = 1000;
constexpr const char* ssh_folder = "/home/nearmetal/.ssh";

// A text in a block of lines is read as it stands; elsewhere quotes keep it one.
bool fits_a_block(const std::string& text) {
  return text.ends_with('\n') && !text.ends_with("\n\n") && text.front() != ' ' &&
         std::ranges::all_of(text, [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); });
}

void emit(YAML::Emitter& out, const Json& value) {
  if (value.is_object()) {
    out << YAML::BeginMap;
    for (const auto& [key, member] : value.items()) {
      out << YAML::Key << key << YAML::Value;
      emit(out, member);
    }
    out << YAML::EndMap;
  } else if (value.is_array()) {
    out << YAML::BeginSeq;
    for (const Json& item : value) emit(out, item);
    out << YAML::EndSeq;
  } else if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (fits_a_block(text)) {
      out << YAML::Literal << text;
    } else {
      out << YAML::DoubleQuoted << text;
    }
  } else {
    out << value.get<int64_t>();
  }
}

std::string yaml_of(const Json& document) {
  YAML::Emitter out;
  out.SetOutputCharset(YAML::EscapeNonAscii);  // some signs are ends of lines to some readers
  emit(out, document);
  if (!out.good()) throw std::logic_error("no YAML: " + out.GetLastError());
  return std::string(out.c_str()) + "\n";
}

// Kubernetes puts variables in the place of $(NAME), and $ in that of $$.
std::string kubernetes_text(const std::string& text) {
  std::string escaped;
  for (size_t i = 0; i < text.size(); ++i) {
    escaped += text[i];
    if (text[i] != '$' || i + 1 == text.size()) continue;
    if (text[i + 1] == '$' || text[i + 1] == '(') escaped += '$';
  }
  return escaped;
}

// The operator's list of hosts would stand against the hosts of the commands.
constexpr const char* own_hosts = "unset OMPI_MCA_orte_default_hostfile\n";
// Files of earlier jobs on a volume are neither in the way nor printed.
constexpr const char* own_folder = R"(folder=$(date -u +%Y%m%dT%H%M%SZ)
{ mkdir "$folder" && cd "$folder"; } || exit 9
)";

// Also where the job is deleted, or has reached its deadline: the log outlives the files.
constexpr const char* reports_to_log = R"(
trap 'rm -rf "$scratch"; cat ./*.report.json' EXIT
)";

std::string launcher_script(const LaunchPlan& plan, const MpiJobPods& pods) {
  return std::string(shebang) + own_hosts + (pods.volume_claim ? own_folder : "") +
         script_body(plan, false, reports_to_log);
}

// Of a container, by the names of Kubernetes; where it is empty nothing is asked for.
Json with_resources(Json container, const Json& limits, const std::optional<int64_t>& cpus) {
  if (!limits.empty()) container["resources"]["limits"] = limits;
  // A limit of CPUs would stop ranks for parts of each 100 ms.
  if (cpus) container["resources"]["requests"] = {{"cpu", *cpus}};
  return container;
}

Json volume(const char* name, const char* kind, const Json& source) {
  return {{"name", name}, {kind, source}};
}

Json launcher_pod(const LaunchPlan& plan, const MpiJobPods& pods) {
  const Json reports = pods.volume_claim ? volume("reports", "persistentVolumeClaim",
                                                  {{"claimName", *pods.volume_claim}})
                                         : volume("reports", "emptyDir", Json::object());
  const Json container = {
      {"name", container_name},
      {"image", pods.image},
      {"command", Json::array({"bash", "-c"})},
      {"args", Json::array({kubernetes_text(launcher_script(plan, pods))})},
      {"workingDir", reports_folder},
      {"volumeMounts", Json::array({Json{{"name", "reports"}, {"mountPath", reports_folder}}})}};
  Json limits = Json::object();
  if (pods.launcher_memory) limits["memory"] = *pods.launcher_memory;
  return {{"securityContext", {{"fsGroup", user_id}}},
          {"containers", Json::array({with_resources(container, limits, pods.launcher_cpus)})},
          {"volumes", Json::array({reports})}};
}

// Keeps each worker on a node of its own.
Json apart() {
  const Json term = {
      {"labelSelector", {{"matchLabels", {{"nearmetal.role", "worker"}}}}},
      {"topologyKey", "kubernetes.io/hostname"},
  };
  return {{"podAntiAffinity",
           {{"requiredDuringSchedulingIgnoredDuringExecution", Json::array({term})}}}};
}

// Requests of GPUs, RDMA devices and huge pages are their limits.
Json worker_limits(int64_t gpus, const MpiJobPods& pods) {
  Json limits = Json::object();
  if (gpus > 0) limits["nvidia.com/gpu"] = gpus;
  for (const MpiJobPods::Devices& rdma : pods.rdma) limits[rdma.resource] = rdma.count;
  if (pods.memory) limits["memory"] = *pods.memory;
  if (pods.huge_pages) limits["hugepages-" + pods.huge_pages->at(0)] = pods.huge_pages->at(1);
  return limits;
}

Json worker_pod(const std::vector<Host>& hosts, const MpiJobPods& pods) {
  // The memory that ranks share is 64 MiB in a container unless asked for.
  Json mounts = Json::array({Json{{"name", "shared-memory"}, {"mountPath", "/dev/shm"}}});
  Json volumes = Json::array({volume("shared-memory", "emptyDir", {{"medium", "Memory"}})});
  if (pods.huge_pages) {
    const std::string medium = "HugePages-" + pods.huge_pages->at(0);
    mounts.push_back({{"name", "huge-pages"}, {"mountPath", "/dev/hugepages"}});
    volumes.push_back(volume("huge-pages", "emptyDir", {{"medium", medium}}));
  }
  Json container = {{"name", container_name}, {"image", pods.image}, {"volumeMounts", mounts}};
  container = with_resources(container, worker_limits(hosts.front().gpus, pods), pods.cpus);
  if (!pods.rdma.empty()) {  // RDMA registers memory, and so locks it
    container["securityContext"] = {{"capabilities", {{"add", Json::array({"IPC_LOCK"})}}}};
  }
  Json pod = {{"containers", Json::array({container})}, {"volumes", volumes}};
  if (hosts.size() > 1) pod["affinity"] = apart();
  return pod;
}

}  // namespace

std::string shell_script(const LaunchPlan& plan) { return shebang + script_body(plan, false); }

std::string slurm_script(const LaunchPlan& plan) {
  const std::vector<Host> hosts = hosts_taken(plan);
  const bool chosen_by_slurm = address_of(hosts.front()) == node_variable(0);
  int64_t gpus = 0;
  std::string names;
  for (const Host& host : hosts) {
    gpus = std::max(gpus, host.gpus);
    names += (names.empty() ? "" : ",") + address_of(host);
  }
  const auto option = [](const std::string& name, const std::string& value) {
    return "#SBATCH --" + name + "=" + value + "\n";
  };
  std::string text = shebang;
  text += option("job-name", "nearmetal") + option("nodes", std::to_string(hosts.size()));
  if (!chosen_by_slurm) text += option("nodelist", names);
  text += option("ntasks-per-node", std::to_string(most_ranks_on_a_host(plan)));
  if (gpus > 0) text += option("gpus-per-node", std::to_string(gpus));
  text += "#SBATCH --exclusive\n" + option("time", slurm_time(most_seconds(plan)));
  if (chosen_by_slurm) {
    text += "\nmapfile -t nodes < <(scontrol show hostnames \"$SLURM_JOB_NODELIST\")\n";
  }
  return text + script_body(plan, true);
}

std::string mpi_job_worker(const std::string& job_name, int64_t index) {
  return job_name + "-worker-" + std::to_string(index) + "." + job_name;
}

std::string mpi_job_yaml(const LaunchPlan& plan, const MpiJobPods& pods) {
  const std::vector<Host> hosts = hosts_taken(plan);
  for (const Host& host : hosts) {
    if (host.gpus == hosts.front().gpus) continue;
    throw std::invalid_argument("the workers of a MPIJob are alike, and '" + host.name +
                                "' has other GPUs than '" + hosts.front().name + "'");
  }
  const Json replicas = {
      {"Launcher", {{"replicas", 1}, {"template", {{"spec", launcher_pod(plan, pods)}}}}},
      {"Worker",
       {{"replicas", hosts.size()},
        {"template",
         {{"metadata", {{"labels", {{"nearmetal.role", "worker"}}}}},
          {"spec", worker_pod(hosts, pods)}}}}},
  };
  const Json policy = {
      {"cleanPodPolicy", "Running"},
      {"backoffLimit", 0},  // a run that failed is a result
      {"activeDeadlineSeconds", static_cast<int64_t>(std::ceil(most_seconds(plan)))}};
  return yaml_of({{"apiVersion", "kubeflow.org/v2beta1"},
                  {"kind", "MPIJob"},
                  {"metadata", {{"name", pods.job_name}}},
                  {"spec",
                   {{"slotsPerWorker", most_ranks_on_a_host(plan)},
                    {"launcherCreationPolicy", "WaitForWorkersReady"},
                    {"sshAuthMountPath", ssh_folder},
                    {"runPolicy", policy},
                    {"mpiReplicaSpecs", replicas}}}});
}

}  // namespace nearmetal
