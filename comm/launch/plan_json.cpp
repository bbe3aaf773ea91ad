#include "comm/launch/plan_json.h"

#include <cmath>
#include <stdexcept>

#include "comm/launch/launch_script.h"
#include "reports/json/json_archive.h"

namespace nearmetal {

using json::In;
using json::Json;

static void fields(json::Writer& field, const MigDevice& device) {
  field("uuid", device.uuid);
  field("profile", device.profile);
}

static void fields(json::Writer& field, const PlacedRank& rank) {
  field("rank", rank.rank);
  field("host", rank.host);
  field("address", rank.address);
  field("vm", rank.vm);
  field("gpu", rank.gpu);
  field("visible_gpu", rank.visible_gpu);
  field("cpus", rank.cpus);
  field("variables", rank.variables);
  if (rank.mig) field("mig", *rank.mig);
}

namespace {

constexpr auto replace_bad_utf8 = Json::error_handler_t::replace;
constexpr const char* job_name = "nearmetal";

std::string text_of(const Json& document) {
  return document.dump(2, ' ', false, replace_bad_utf8) + "\n";
}

Json layout_json(const LaunchPlan& plan, size_t index) {
  const Placement& placement = plan.placements[index];
  const auto commands = commands_of(plan, index);
  Json jobs = Json::array();
  for (size_t job = 0; job < placement.jobs.size(); ++job) {
    jobs.push_back(
        {{"ranks", json::Writer::json_of(placement.jobs[job].ranks)}, {"command", commands[job]}});
  }
  const std::optional<Share>& share = placement.share();
  return {{"name", placement.layout},
          {"kind", to_string(placement.kind)},
          {"share", share ? Json(to_string(share->way)) : Json()},
          {"jobs", jobs}};
}

// The memory that ranks share is 64 MiB in a container unless asked for.
Json pod(Json container, int64_t gpus) {
  container["name"] = job_name;
  container["volumeMounts"] = {{{"name", "shared-memory"}, {"mountPath", "/dev/shm"}}};
  if (gpus > 0) container["resources"] = {{"limits", {{"nvidia.com/gpu", gpus}}}};
  return {{"containers", Json::array({container})},
          {"volumes", {{{"name", "shared-memory"}, {"emptyDir", {{"medium", "Memory"}}}}}}};
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

// The operator's list of hosts would stand against the hosts of the commands.
std::string launcher_script(const LaunchPlan& plan) {
  std::string script = shell_script(plan);
  const std::string end = "\nexit \"$status\"\n";
  script.resize(script.size() - end.size());
  const size_t first_line = script.find('\n') + 1;
  script.insert(first_line, "unset OMPI_MCA_orte_default_hostfile\n");
  return script + "\ncat ./*.report.json\n" + end.substr(1);
}

}  // namespace

std::string plan_json(const LaunchPlan& plan) {
  Json document = {{"schema", "nearmetal/plan"}, {"schema_version", "1.2"}};
  Json layouts = Json::array();
  for (size_t i = 0; i < plan.placements.size(); ++i) layouts.push_back(layout_json(plan, i));
  document["layouts"] = layouts;
  Json unsupported = Json::array();
  for (const UnsupportedArm& arm : plan.unsupported) {
    unsupported.push_back({{"name", arm.name}, {"reason", arm.reason}});
  }
  document["unsupported"] = unsupported;
  Json launches = Json::array();
  for (const Launch& launch : plan.launches) {
    launches.push_back({{"layout", launch.layout}, {"repeat", launch.repeat}});
  }
  document["launches"] = launches;
  const TimeLimits& limits = plan.file.limits;
  document["limits"] = {{"start_seconds", limits.start_seconds},
                        {"step_seconds", limits.step_seconds},
                        {"job_seconds", limits.job_seconds}};
  return text_of(document);
}

std::string mpi_job_worker(int64_t index) {
  const std::string name = job_name;
  return name + "-worker-" + std::to_string(index) + "." + name;
}

std::string mpi_job_json(const LaunchPlan& plan, const std::string& image) {
  const std::vector<Host> hosts = hosts_taken(plan);
  for (const Host& host : hosts) {
    if (host.gpus == hosts.front().gpus) continue;
    throw std::invalid_argument("the workers of a MPIJob are alike, and '" + host.name +
                                "' has other GPUs than '" + hosts.front().name + "'");
  }
  Json launcher = pod({{"image", image},
                       {"command", {"bash", "-c"}},
                       {"args", Json::array({launcher_script(plan)})}},
                      0);
  Json worker = pod({{"image", image}}, hosts.front().gpus);
  if (hosts.size() > 1) worker["affinity"] = apart();
  const double seconds = plan.file.limits.job_seconds * static_cast<double>(plan.launches.size());
  const Json template_of_workers = {{"metadata", {{"labels", {{"nearmetal.role", "worker"}}}}},
                                    {"spec", worker}};
  const Json replicas = {
      {"Launcher", {{"replicas", 1}, {"template", {{"spec", launcher}}}}},
      {"Worker", {{"replicas", hosts.size()}, {"template", template_of_workers}}},
  };
  const Json policy = {{"cleanPodPolicy", "Running"},
                       {"backoffLimit", 0},  // a run that failed is a result
                       {"activeDeadlineSeconds", static_cast<int64_t>(std::ceil(seconds))}};
  return text_of({{"apiVersion", "kubeflow.org/v2beta1"},
                  {"kind", "MPIJob"},
                  {"metadata", {{"name", job_name}}},
                  {"spec",
                   {{"slotsPerWorker", most_ranks_on_a_host(plan)},
                    {"launcherCreationPolicy", "WaitForWorkersReady"},
                    {"runPolicy", policy},
                    {"mpiReplicaSpecs", replicas}}}});
}

}  // namespace nearmetal
