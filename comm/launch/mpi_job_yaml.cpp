#include "comm/launch/mpi_job_yaml.h"

#include <yaml-cpp/emitter.h>
#include <yaml-cpp/emittermanip.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "comm/launch/launch_script.h"
#include "reports/json/json_writer.h"

namespace nearmetal {
namespace {

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

std::string launcher_script(const LaunchPlan& plan, const MpiJobPods& pods) {
  std::string script = shell_script(plan);
  const std::string end = "\nexit \"$status\"\n";
  script.resize(script.size() - end.size());
  const size_t first_line = script.find('\n') + 1;
  script.insert(first_line, std::string(own_hosts) + (pods.volume_claim ? own_folder : ""));
  return script + "\ncat ./*.report.json\n" + end.substr(1);
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
  return {{"securityContext", {{"fsGroup", user_id}}},
          {"containers", Json::array({container})},
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

// Requests of GPUs and RDMA devices are their limits.
Json worker_limits(int64_t gpus, const MpiJobPods& pods) {
  Json limits = Json::object();
  if (gpus > 0) limits["nvidia.com/gpu"] = gpus;
  if (pods.rdma) limits[pods.rdma->resource] = pods.rdma->count;
  if (pods.memory) limits["memory"] = *pods.memory;
  return limits;
}

Json worker_pod(const std::vector<Host>& hosts, const MpiJobPods& pods) {
  // The memory that ranks share is 64 MiB in a container unless asked for.
  Json container = {
      {"name", container_name},
      {"image", pods.image},
      {"volumeMounts", Json::array({Json{{"name", "shared-memory"}, {"mountPath", "/dev/shm"}}})}};
  const Json limits = worker_limits(hosts.front().gpus, pods);
  if (!limits.empty()) container["resources"]["limits"] = limits;
  // A limit of CPUs would stop ranks for parts of each 100 ms.
  if (pods.cpus) container["resources"]["requests"] = {{"cpu", *pods.cpus}};
  if (pods.rdma) {  // RDMA registers memory, and so locks it
    container["securityContext"] = {{"capabilities", {{"add", Json::array({"IPC_LOCK"})}}}};
  }
  Json pod = {
      {"containers", Json::array({container})},
      {"volumes", Json::array({volume("shared-memory", "emptyDir", {{"medium", "Memory"}})})}};
  if (hosts.size() > 1) pod["affinity"] = apart();
  return pod;
}

}  // namespace

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
  const double seconds = plan.file.limits.job_seconds * static_cast<double>(plan.launches.size());
  const Json replicas = {
      {"Launcher", {{"replicas", 1}, {"template", {{"spec", launcher_pod(plan, pods)}}}}},
      {"Worker",
       {{"replicas", hosts.size()},
        {"template",
         {{"metadata", {{"labels", {{"nearmetal.role", "worker"}}}}},
          {"spec", worker_pod(hosts, pods)}}}}},
  };
  const Json policy = {{"cleanPodPolicy", "Running"},
                       {"backoffLimit", 0},  // a run that failed is a result
                       {"activeDeadlineSeconds", static_cast<int64_t>(std::ceil(seconds))}};
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
