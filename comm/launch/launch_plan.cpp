#include "comm/launch/launch_plan.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"
#include "comm/layout/shell_text.h"
#include "comm/layout/short_form.h"
#include "models/probe.h"
#include "reports/json/archive.h"
#include "reports/json/report_fields.h"

namespace nearmetal {
namespace {

// Launcher, set-up and warm-up: an assumption, which the first run replaces. Where kernels are
// still to be chosen it takes longer.
constexpr double start_seconds = 15;

// By the names of Open MPI 4.1 and 5: mpirun counts the slots of its --host alone.
constexpr const char* no_resource_manager = "^slurm,tm,pbs,gridengine,lsf";

using Ranks = std::span<const PlacedRank>;

// Hosts by their address or name, with their ranks, "vm0:2,vm1:2", in the order in which mpirun
// fills their slots.
std::string hosts_of(const PlacedJob& job, std::string PlacedRank::*name) {
  std::string hosts;
  const Ranks all = job.ranks;
  for (size_t first = 0, end = 0; first < all.size(); first = end) {
    while (end < all.size() && all[end].*name == all[first].*name) ++end;
    hosts += (hosts.empty() ? "" : ",") + all[first].*name + ":" + std::to_string(end - first);
  }
  return hosts;
}

// Open MPI 4.1 cuts names at their first dot, so that those of two machines may become one; each
// version ignores the other's name of the parameter.
bool has_dotted_names(const PlacedJob& job) {
  return std::ranges::any_of(job.ranks, [](const PlacedRank& rank) {
    return rank.address.find('.') != rank.address.npos &&
           rank.address.find_first_not_of("0123456789.") != rank.address.npos;
  });
}

void append(std::vector<std::string>& command, const std::vector<std::string>& words) {
  command.insert(command.end(), words.begin(), words.end());
}

bool is_on_one_host(const PlacedJob& job) {
  return job.ranks.front().address == job.ranks.back().address;
}

// What NCCL is told of the network that MPI takes: see RunRequest; empty: nothing.
std::string network_of(const PlacedJob& job, const Launcher& launcher) {
  if (is_on_one_host(job)) return "";
  if (launcher.network) return *launcher.network;
  const std::vector<std::string>& left_out = launcher.networks_left_out;
  return left_out.empty() ? "" : "^" + joined(left_out, ",");
}

std::string assignment(const std::pair<const std::string, std::string>& variable) {
  return variable.first + "=" + variable.second;
}

using Variables = std::map<std::string, std::string>;                 // of all ranks
using Parameters = std::vector<std::pair<std::string, std::string>>;  // of Open MPI

bool is_split(const PlacedJob& job) { return job.ranks.front().vm.has_value(); }

// The networks of TCP for the component of that name, such as btl.
Parameters networks_of(const PlacedJob& job, const Launcher& launcher, const std::string& name) {
  if (is_on_one_host(job)) return {};
  if (launcher.network) return {{name + "_tcp_if_include", *launcher.network}};
  if (launcher.networks_left_out.empty()) return {};
  return {{name + "_tcp_if_exclude", "127.0.0.0/8," + joined(launcher.networks_left_out, ",")}};
}

// What moves messages. By itself Open MPI takes UCX where that has certain NICs alone; the networks
// of UCX are found by each rank, as they are names of its host's devices (see RunRequest::network).
Parameters messaging_of(const PlacedJob& job, const Launcher& launcher) {
  if (launcher.mpi == MpiTransport::ucx) {
    return {{"pml", "ucx"}, {"opal_common_ucx_tls", "any"}, {"opal_common_ucx_devices", "any"}};
  }
  const bool one_host = is_on_one_host(job), split = is_split(job);
  Parameters found = {{"pml", "ob1"}, {"btl", one_host && !split ? "self,vader" : "self,tcp"}};
  if (one_host && split) found.emplace_back("btl_tcp_if_include", "lo");
  nearmetal::append(found, networks_of(job, launcher, "btl"));
  return found;
}

// UCX else logs where reports go. Emulated VMs share no memory.
Variables with_ucx(Variables common, const PlacedJob& job, const Launcher& launcher) {
  if (launcher.mpi != MpiTransport::ucx) return common;
  common.emplace("UCX_LOG_FILE", "stderr");
  if (is_split(job)) common["UCX_TLS"] = "self,tcp";
  if (is_split(job) && is_on_one_host(job)) common["UCX_NET_DEVICES"] = "lo";
  return common;
}

std::vector<std::string> mpirun_of(const PlacedJob& job, const Variables& common,
                                   const Launcher& launcher, const LaunchOptions& options) {
  std::vector<std::string> command = {"mpirun", "--bind-to", "none", "--map-by", "slot"};
  const bool one_host = is_on_one_host(job);
  for (const Parameters& some : {messaging_of(job, launcher), networks_of(job, launcher, "oob")}) {
    for (const auto& [name, value] : some) append(command, {"--mca", name, value});
  }
  if (!one_host && has_dotted_names(job)) {
    append(command, {"--mca", "orte_keep_fqdn_hostnames", "1"});
    append(command, {"--mca", "prte_keep_fqdn_hostnames", "1"});
  }
  if (options.in_allocation && one_host && job.ranks.front().address == this_host) {
    append(command, {"--mca", "ras", no_resource_manager, "--mca", "plm", no_resource_manager});
    append(command, {"--mca", "orte_default_hostfile", "none"});
    append(command, {"--mca", "prte_default_hostfile", "none"});
  }
  if (launcher.remote_shell) append(command, {"--mca", "plm_rsh_agent", *launcher.remote_shell});
  if (options.timeout_seconds) {
    append(command,
           {"--timeout", std::to_string(std::llround(std::ceil(*options.timeout_seconds)))});
  }
  if (options.as_root) append(command, {"--allow-run-as-root"});
  append(command,
         {"--host", hosts_of(job, &PlacedRank::address), "-np", std::to_string(job.ranks.size())});
  for (const auto& variable : common) append(command, {"-x", assignment(variable)});
  return command;
}

// A step of the allocation. Ranks have the GPUs that Slurm gives it, and bind themselves.
std::vector<std::string> srun_of(const PlacedJob& job, Variables common, const Launcher& launcher,
                                 const LaunchOptions& options) {
  std::vector<std::string> nodes;
  for (const PlacedRank& rank : job.ranks) add_new(nodes, rank.address);
  const auto on_each = std::ssize(job.ranks) / std::ssize(nodes);
  const bool even = std::ranges::all_of(nodes, [&](const std::string& node) {
    return std::ranges::count(job.ranks, node, &PlacedRank::address) == on_each;
  });
  if (!even || job.share) {
    throw std::invalid_argument(
        "--format srun is for jobs that share no GPU, with as many ranks on each of their hosts; "
        "--format slurm starts others");
  }
  std::vector<std::string> command;
  const bool on_gpus = common.erase("CUDA_VISIBLE_DEVICES") > 0;
  for (const auto& [name, value] : launcher.mpi ? messaging_of(job, launcher) : Parameters{}) {
    common["OMPI_MCA_" + name] = value;
  }
  if (!common.empty()) command.emplace_back("env");  // --export takes no commas in values
  for (const auto& variable : common) command.push_back(assignment(variable));
  append(command,
         {"srun", "--mpi=pmix", "--export=ALL", "--kill-on-bad-exit=1", "--cpu-bind=none",
          "--nodes=" + std::to_string(nodes.size()), "--ntasks=" + std::to_string(job.ranks.size()),
          "--ntasks-per-node=" + std::to_string(on_each), "--nodelist=" + joined(nodes, ",")});
  if (on_gpus) append(command, {"--gpus-per-node=" + std::to_string(on_each), "--gpu-bind=none"});
  if (options.timeout_seconds) {
    const int64_t minutes = std::llround(std::ceil(*options.timeout_seconds / 60));
    command.push_back("--time=" + std::to_string(minutes));
  }
  if (!options.container_image.empty()) {
    command.push_back("--container-image=" + options.container_image);
  }
  return command;
}

// The variables that all ranks have with one value.
std::map<std::string, std::string> common_variables(const PlacedJob& job) {
  std::map<std::string, std::string> common = job.ranks.front().variables;
  std::erase_if(common, [&](const auto& variable) {
    return std::ranges::any_of(job.ranks, [&](const PlacedRank& rank) {
      return rank.variables.at(variable.first) != variable.second;
    });
  });
  return common;
}

// What a rank has beside the words that all have: before these, and behind them. Ranks that train
// check the GPU that they see; neighbours take what they are given.
struct OwnWords {
  std::vector<std::string> before, behind;

  bool operator==(const OwnWords&) const = default;
};

OwnWords own_words(const PlacedRank& rank, const std::map<std::string, std::string>& common,
                   bool trains, bool other_build) {
  OwnWords words;
  for (const auto& variable : rank.variables) {
    if (!common.contains(variable.first)) words.before.push_back(assignment(variable));
  }
  if (!words.before.empty()) words.before.insert(words.before.begin(), "env");
  if (!rank.cpus.empty()) append(words.before, {"taskset", "-c", rank.cpus});
  if (trains && !other_build && !rank.cpus.empty()) words.behind = {"--expect-cpus=" + rank.cpus};
  // An emulated VM: its ranks cannot tell by their place on the host which GPU is theirs.
  if (rank.vm && rank.visible_gpu) {
    words.behind.push_back("--gpu=" + std::to_string(*rank.visible_gpu));
  }
  if (!trains || !rank.mig) return words;
  append(words.behind, {"--expect-uuid=" + rank.mig->uuid});
  if (!rank.mig->profile.empty()) append(words.behind, {"--expect-mig=" + rank.mig->profile});
  return words;
}

// A shell's script that starts, by the rank, the words behind it with those that are the rank's
// own.
std::string choice_by_rank(const std::vector<OwnWords>& words, bool by_srun) {
  std::vector<std::pair<OwnWords, std::string>> cases;  // with their ranks, "0|2"
  for (size_t rank = 0; rank < words.size(); ++rank) {
    const auto found =
        std::ranges::find(cases, words[rank], &std::pair<OwnWords, std::string>::first);
    if (found == cases.end()) {
      cases.emplace_back(words[rank], std::to_string(rank));
    } else {
      found->second += "|" + std::to_string(rank);
    }
  }
  std::string text =
      std::string("case $") + (by_srun ? "SLURM_PROCID" : "OMPI_COMM_WORLD_RANK") + " in ";
  for (const auto& [own, ranks] : cases) {
    text += ranks + ") exec ";
    for (const std::string& word : own.before) text += shell_quoted(word) + " ";
    text += "\"$@\"";
    for (const std::string& word : own.behind) text += " " + shell_quoted(word);
    text += ";; ";
  }
  return text + "*) echo not started by " + (by_srun ? "srun" : "mpirun of Open MPI") +
         " >&2; exit 2;; esac";
}

// Jobs that are meant to be on a GPU, or on the same CPUs, at once.
int64_t sharing_jobs_of(const Placement& placement) {
  const std::optional<Share>& share = placement.share();
  const bool at_once = share && (through_mps(*share) || share->mode == SharingMode::timeslice ||
                                 share->mode == SharingMode::mig);
  return at_once ? static_cast<int64_t>(placement.jobs.size()) : 1;
}

// The checks of ranks: what the layout expects, and what its hosts are claimed to be.
void append_checks(std::vector<std::string>& arguments, const Workload& workload,
                   const Expectation& expect) {
  if (expect.gpu) arguments.push_back("--expect-gpu=" + *expect.gpu);
  if (expect.environment) {
    arguments.push_back(std::string("--expect-environment=") + to_string(*expect.environment));
  }
  if (expect.uuid) arguments.push_back("--expect-uuid=" + *expect.uuid);
  if (expect.mig) arguments.push_back("--expect-mig=" + *expect.mig);
  if (expect.vgpu) arguments.push_back("--expect-vgpu=" + *expect.vgpu);
  if (expect.link) arguments.push_back("--expect-link=" + text_of(*expect.link));
  const std::optional<MachineKind>& claim = workload.config.environment;
  if (claim && !workload.is_given("environment")) {
    arguments.push_back(std::string("--environment=") + to_string(*claim));
  }
}

// The arm by which reports of a script's launches are put together, and its point of a grid. A
// sweep knows the arms itself.
void append_arm(std::vector<std::string>& arguments, const LaunchPlan& plan, size_t index,
                size_t job) {
  const Layout& layout = plan.file.layouts.at(index);
  const bool alone = plan.placements.at(index).jobs.size() == 1;
  const std::string suffix = alone ? "" : ", job " + std::to_string(job + 1);
  arguments.push_back("--arm=" + layout.name + suffix);
  if (!layout.grid) return;
  GridPoint point = *layout.grid;
  point.layout += suffix;
  arguments.push_back("--grid-point=" + json::line_of(point));
}

std::vector<std::string> arguments_of(const LaunchPlan& plan, size_t layout, size_t index) {
  const Placement& placement = plan.placements.at(layout);
  const PlacedJob& job = placement.jobs.at(index);
  const Workload& workload = plan.workloads.at(layout).of(index);
  std::vector<std::string> arguments;
  if (job.stress) {
    const char* device = placement.on_gpus() ? "--device=cuda" : "--device=cpu";
    arguments = {"stress", to_string(*job.stress), device, "--conducted"};
  } else {
    arguments = run_arguments(workload);
    append_checks(arguments, workload, plan.file.layouts.at(layout).expect);
    arguments.emplace_back(plan.conducted ? "--conducted" : "--json");
    if (!plan.conducted) append_arm(arguments, plan, layout, index);
    if (placement.kind == Kind::emulated) arguments.emplace_back("--emulated");
    const std::string network = network_of(job, plan.file.launcher);
    if (!network.empty()) arguments.push_back("--network=" + network);
    if (!starts_plainly(plan, placement)) {
      if (!is_on_one_host(job)) {
        arguments.push_back("--expect-hosts=" + hosts_of(job, &PlacedRank::host));
      }
      arguments.push_back("--ranks=" + std::to_string(job.ranks.size()));
    }
    if (const int64_t sharing_jobs = sharing_jobs_of(placement); sharing_jobs > 1) {
      arguments.push_back("--sharers=" + std::to_string(sharing_jobs));
    }
    if (job.share && through_mps(*job.share)) arguments.emplace_back("--through-mps");
    if (job.share && job.share->mode == SharingMode::vgpu) {
      arguments.push_back("--expect-vgpu=" + job.share->profile.value());
    }
  }
  if (job.share && job.share->mode == SharingMode::sm) {
    arguments.push_back(flag_of(gpu_part_of(placement, job)));
  }
  return arguments;
}

}  // namespace

std::vector<std::string> launch_command(const PlacedJob& job, const Launcher& launcher,
                                        const std::vector<std::string>& run_arguments,
                                        const LaunchOptions& options) {
  const auto shared = common_variables(job);
  const Variables common = with_ucx(shared, job, launcher);
  std::vector<std::string> command = options.by_srun ? srun_of(job, common, launcher, options)
                                                     : mpirun_of(job, common, launcher, options);
  std::vector<OwnWords> words;
  for (const PlacedRank& rank : job.ranks)
    words.push_back(own_words(rank, shared, !job.stress, options.other_build));
  const bool alike = std::ranges::count(words, words.front()) == std::ssize(words);
  const OwnWords& around =
      alike ? words.front()
            : OwnWords{{"sh", "-c", choice_by_rank(words, options.by_srun), "sh"}, {}};
  append(command, around.before);
  append(command, {launcher.program.value_or("nearmetal")});
  append(command, run_arguments);
  append(command, around.behind);
  return command;
}

std::vector<const PlacedRank*> ranks_of(const Placement& placement) {
  std::vector<const PlacedRank*> ranks;
  for (const PlacedJob& job : placement.jobs) {
    for (const PlacedRank& rank : job.ranks) ranks.push_back(&rank);
  }
  return ranks;
}

bool starts_plainly(const LaunchPlan& plan, const Placement& placement) {
  return plan.options.plain_alone && placement.ranks() == 1 && !placement.share() &&
         placement.kind == Kind::measured && placement.jobs[0].ranks[0].address == this_host;
}

std::vector<std::string> choices_of(const LaunchPlan& plan, size_t layout) {
  if (!plan.file.layouts.at(layout).shape) return {};
  std::vector<std::string> texts;
  for (const PlacedJob& job : plan.placements.at(layout).jobs) {
    std::map<std::string, std::vector<int64_t>> gpus;
    for (const PlacedRank& rank : job.ranks) {
      if (rank.gpu) gpus[rank.host].push_back(*rank.gpu);
    }
    for (const Host& host : plan.file.hosts) {
      const auto taken = gpus.find(host.name);
      if (taken == gpus.end() || taken->second.size() == visible_gpus_of(host).size()) continue;
      const std::string text = choice_text(host, taken->second, gpus.size() > 1);
      if (!text.empty()) texts.push_back(text);
    }
  }
  return texts;
}

std::vector<std::string> choices_of(const LaunchPlan& plan) {
  std::vector<std::string> choices;
  for (size_t i = 0; i < plan.placements.size(); ++i) {
    for (const std::string& choice : choices_of(plan, i)) {
      choices.push_back(plan.placements[i].layout + ": chosen: " + choice);
    }
  }
  return choices;
}

GpuShare gpu_part_of(const Placement& placement, const PlacedJob& job) {
  GpuShare part;
  for (const PlacedJob& other : placement.jobs) {
    if (other.ranks[0].host != job.ranks[0].host || other.ranks[0].gpu != job.ranks[0].gpu) {
      continue;
    }
    if (&other == &job) part.index = part.percents.size();
    part.percents.push_back(*other.share->threads_percent);
  }
  return part;
}

std::string flag_of(const GpuShare& part) {
  std::string flag = "--gpu-part=" + std::to_string(part.index);
  for (size_t i = 0; i < part.percents.size(); ++i) {
    flag += (i == 0 ? ":" : ",") + std::to_string(part.percents[i]);
  }
  return flag;
}

std::vector<std::vector<std::string>> commands_of(const LaunchPlan& plan, size_t layout) {
  std::vector<std::vector<std::string>> commands;
  const Placement& placement = plan.placements.at(layout);
  Launcher launcher = plan.file.launcher;
  LaunchOptions options = plan.options;
  const std::optional<std::string>& executable = plan.file.layouts.at(layout).executable;
  if (executable) launcher.program = executable;
  options.other_build = executable.has_value();
  for (size_t job = 0; job < placement.jobs.size(); ++job) {
    std::vector<std::string> arguments = arguments_of(plan, layout, job);
    if (starts_plainly(plan, placement)) {
      arguments.insert(arguments.begin(), launcher.program.value_or("nearmetal"));
      commands.push_back(std::move(arguments));
    } else {
      commands.push_back(launch_command(placement.jobs[job], launcher, arguments, options));
    }
  }
  return commands;
}

int64_t most_ranks_on_a_host(const LaunchPlan& plan) {
  int64_t most = 1;
  for (const Placement& placement : plan.placements) {
    std::map<std::string, int64_t> ranks;
    for (const PlacedRank* rank : ranks_of(placement)) most = std::max(most, ++ranks[rank->host]);
  }
  return most;
}

std::vector<Host> hosts_taken(const LaunchPlan& plan) {
  std::set<std::string> names;
  for (const Placement& placement : plan.placements) {
    for (const PlacedRank* rank : ranks_of(placement)) names.insert(rank->host);
  }
  std::vector<Host> hosts = plan.file.hosts;
  std::erase_if(hosts, [&](const Host& host) { return !names.contains(host.name); });
  return hosts;
}

void TimeLeft::begin_run(int64_t left) {
  begin_ = steady_seconds();
  left_ = left;
}

void TimeLeft::end_run() {
  finished_ += steady_seconds() - begin_;
  ++runs_;
}

// A run that takes longer than those before may end at any time.
std::string TimeLeft::text() const {
  if (runs_ == 0) return "";
  const double mean = finished_ / static_cast<double>(runs_);
  const double running = steady_seconds() - begin_;
  const double behind_it = mean * static_cast<double>(left_ - 1);
  return ", about " + duration_text(std::max(mean - running, 0.0) + behind_it) + " left";
}

double PlannedTime::seconds() const {
  return windows_seconds + start_seconds * static_cast<double>(launches);
}

PlannedTime planned_time(const LaunchPlan& plan, std::span<const Launch> launches) {
  PlannedTime time;
  for (const Launch& launch : launches) {
    const Placement& placement = plan.placements.at(launch.layout);
    const RunConfig& config = plan.workloads.at(launch.layout).config;
    const std::optional<Share>& share = placement.share();
    const bool serial = share && share->mode == SharingMode::serial;
    const auto turns = serial ? static_cast<int64_t>(placement.jobs.size()) : 1;
    time.launches += turns;
    time.most_seconds += static_cast<double>(turns) * plan.file.limits.job_seconds;
    if (config.steps) {
      time.steps += turns * *config.steps;
    } else {
      time.windows_seconds += static_cast<double>(turns) * config.duration_seconds;
    }
  }
  return time;
}

std::string planned_time_text(const PlannedTime& time) {
  const bool open = time.steps > 0;
  const std::string least = duration_text(time.seconds());
  std::string text = open ? "unknown: " + counted(time.steps, "step") + " in all, beside "
                          : "about " + least + ": ";
  text += counted(time.launches, "start") + " one after another, taken as " +
          duration_text(start_seconds) + " each with warm-up";
  if (time.windows_seconds > 0) {
    text += ", and windows of " + duration_text(time.windows_seconds) + " in all";
  }
  return text + (open ? "; at least " + least + ", at most " : "; at most ") +
         duration_text(time.most_seconds) + " by the limit of a job";
}

}  // namespace nearmetal
