#include "bench/sweep/repeated_layout.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <stdexcept>
#include <utility>

#include "base/text.h"
#include "bench/sweep/hosts_found.h"
#include "comm/layout/layout.h"
#include "reports/document/settings.h"

namespace nearmetal {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw std::invalid_argument(why); }

LayoutFile file_of(std::vector<Host> hosts, Layout layout) {
  LayoutFile file;
  layout.source = layout.name;
  file.hosts = std::move(hosts);
  file.layouts = {std::move(layout)};
  return file;
}

// The host with all its CPUs for ranks without GPUs.
Host without_gpus(Host host) {
  std::vector<int64_t> cpus = cpus_of(host);
  std::ranges::sort(cpus);
  if (!cpus.empty()) host.cpus = to_cpu_list(cpus);
  host.gpus = 0;
  host.visible_gpus.reset();
  host.numa.clear();
  return host;
}

std::vector<int64_t> ranks_of_jobs(const Run& run) {
  if (run.jobs.empty()) return {std::ssize(run.ranks)};
  return transformed(run.jobs, &ConcurrentJob::ranks);
}

// The share of a job or neighbour, by its number.
Share share_of(const ArmShare& all, size_t index) {
  const auto at = [index](const auto& values) {
    if (index >= values.size()) refuse("it does not report the shares of all jobs");
    return values[index];
  };
  Share share{.mode = all.mode};
  if (!all.threads_percent.empty()) share.threads_percent = at(all.threads_percent);
  if (!all.memory_gib.empty() && at(all.memory_gib) > 0) share.memory_gib = at(all.memory_gib);
  const bool by_uuid = !all.profiles.empty() && at(all.profiles).starts_with("MIG-");
  if (!all.profiles.empty() && !by_uuid) share.profile = at(all.profiles);
  return share;
}

class RepeatedLayout {
 public:
  RepeatedLayout(const Report& report, const Arm& arm, const std::optional<std::string>& hosts)
      : report_(report), arm_(arm), run_(first_complete_run(arm)) {
    find_hosts(hosts);
    layout_.name = arm.name;
    layout_.emulate = arm.kind == Kind::emulated;
  }

  LayoutFile make() {
    auto rank = run_.ranks.begin();
    for (const int64_t ranks : ranks_of_jobs(run_)) {
      if (std::distance(rank, run_.ranks.end()) < ranks) refuse("it does not report all ranks");
      add_job({rank, rank + ranks});
      rank += ranks;
    }
    if (arm_.share) share_gpu();
    return file_of(std::move(hosts_), std::move(layout_));
  }

 private:
  static const Run& first_complete_run(const Arm& arm) {
    const auto found = std::ranges::find(arm.runs, Status::complete, &Run::status);
    if (found == arm.runs.end()) refuse("it holds no complete run");
    return *found;
  }

  bool on_gpus() const { return run_.device == Device::cuda; }

  void find_hosts(const std::optional<std::string>& named) {
    std::vector<int64_t> environments;
    for (const Rank& rank : run_.ranks) add_new(environments, rank.environment);
    hosts_ = named ? hosts_from(*named) : std::vector{this_machine()};
    if (hosts_.size() != environments.size()) {
      const std::vector<std::string> names = transformed(
          environments, [&](int64_t index) { return report_.environments.at(index).host_name; });
      refuse("it ran on " + counted(std::ssize(names), "host") + " (" + joined(names) +
             "): name as many, with the GPUs of each: --hosts vm0:2,vm1:2");
    }
    for (size_t i = 0; i < hosts_.size(); ++i) {
      if (!on_gpus()) hosts_[i] = without_gpus(hosts_[i]);
      host_of_[environments[i]] = &hosts_[i];
    }
  }

  int64_t next_gpu(const Host& host) {
    const std::vector<int64_t> visible = visible_gpus_of(host);
    const size_t next = taken_[&host]++;
    if (next < visible.size()) return visible[next];
    refuse("it takes more GPUs of a host than '" + host.name +
           "' has: " + std::to_string(visible.size()));
  }

  // Ranks of one instance are neighbours.
  void add_job(const std::vector<Rank>& ranks) {
    Job job;
    std::optional<std::pair<int64_t, std::optional<int64_t>>> last;
    for (const Rank& rank : ranks) {
      if (layout_.emulate && !rank.vm) {
        refuse(
            "it is emulated, and does not say which rank was in which VM: repeat it by "
            "`nearmetal sweep`");
      }
      const std::pair here(rank.environment, rank.vm);
      const Host& host = *host_of_.at(rank.environment);
      if (last != here) job.instances.push_back({.host = host.name, .gpus = {}});
      last = here;
      Instance& instance = job.instances.back();
      if (!on_gpus()) {
        ++instance.ranks;
      } else if (!arm_.share) {
        instance.gpus.push_back(next_gpu(host));
      } else {
        instance.gpus.push_back(first_gpu_of(host));
      }
    }
    layout_.jobs.push_back(std::move(job));
  }

  // Shares as --fractions does: jobs of one rank, all on one GPU or on the same CPUs.
  void share_gpu() {
    const ArmShare& all = *arm_.share;
    if (hosts_.size() > 1 || run_.ranks.size() != layout_.jobs.size()) {
      refuse("jobs of several ranks share GPUs: repeat it by `nearmetal sweep`");
    }
    for (const std::string& load : all.neighbours) {
      Job neighbour = layout_.jobs.front();
      neighbour.stress = from_name<NeighbourLoad>(load);
      if (!neighbour.stress) refuse("it names a neighbour of an unknown kind");
      layout_.jobs.push_back(std::move(neighbour));
    }
    for (size_t i = 0; i < layout_.jobs.size(); ++i) layout_.jobs[i].share = share_of(all, i);
  }

  const Report& report_;
  const Arm& arm_;
  const Run& run_;
  Layout layout_;
  std::vector<Host> hosts_;
  std::map<int64_t, const Host*> host_of_;  // by the environment of the report
  std::map<const Host*, size_t> taken_;     // GPUs
};

// Open MPI gives its processes variables; who plans a launch by it says the number of ranks, too.
bool ran_under_mpirun(const Report& report, const Arm& arm) {
  if (config_of(report, arm).ranks > 0) return true;
  return std::ranges::any_of(arm.runs.at(0).ranks, [&](const Rank& rank) {
    return report.environments.at(rank.environment).variables.contains("OMPI_MCA_ess_base_jobid");
  });
}

// Whether it ran as in a shell.
bool ran_alone(const Report& report, const Arm& arm) {
  return !arm.share && arm.kind == Kind::measured && arm.runs.at(0).world_size == 1 &&
         !ran_under_mpirun(report, arm);
}

bool has_equal_shares(const ArmShare& share) {
  const auto equal = [](const auto& values) {
    return std::ranges::adjacent_find(values, std::ranges::not_equal_to()) == values.end();
  };
  return equal(share.threads_percent) && equal(share.profiles);
}

// The settings of the arm's runs, with what they chose in place of a choice, which the settings of
// earlier reports do not say.
RunConfig config_as_run(const Report& report, const Arm& arm) {
  RunConfig config = config_of(report, arm);
  const bool sum_is_open = config.all_reduce == AllReduceKind::automatic;
  const bool size_is_open = !config.bucket_mib;
  if (sum_is_open) config.all_reduce.reset();  // earlier ones call NCCL `auto`
  for (const Run& run : arm.runs) {
    if (run.communication && sum_is_open) config.all_reduce = run.communication->all_reduce;
    if (run.communication && size_is_open) config.bucket_mib = run.communication->bucket_mib;
  }
  return config;
}

}  // namespace

LayoutFile layout_of_process(Device device, const std::string& name) {
  const bool on_gpu = device == Device::cuda;
  Host host;
  host.name = this_host;
  host.gpus = on_gpu ? 1 : 0;
  Instance instance{.host = host.name, .gpus = {}, .ranks = on_gpu ? 0 : 1};
  if (on_gpu) instance.gpus = {0};
  Layout layout;
  layout.name = name;
  layout.jobs = {{.instances = {std::move(instance)}}};
  return file_of({std::move(host)}, std::move(layout));
}

Workload workload_of_arm(const Report& report, const Arm& arm) {
  if (!arm.workloads.empty()) {
    refuse(
        "its jobs have workloads of their own: repeat it by `nearmetal sweep` of its layout file");
  }
  Workload workload = repeated_workload(config_as_run(report, arm));
  if (!ran_alone(report, arm)) std::erase(workload.given, "gpu");  // each rank has its own
  return workload;
}

PlanRequest request_of_arm(const Report& report, const Arm& arm, const std::string& place,
                           const std::optional<std::string>& hosts) {
  PlanRequest request;
  static_cast<Workload&>(request.workload) = workload_of_arm(report, arm);
  if (hosts) std::erase(request.workload.given, "gpu");
  const bool plain = ran_alone(report, arm), alone = plain && !hosts;
  request.file = alone ? layout_of_process(request.workload.config.device, arm.name)
                       : RepeatedLayout(report, arm, hosts).make();
  const bool one_size = !arm.share || has_equal_shares(*arm.share);
  if (!arm.runs.at(0).kernel_choices.empty() && one_size) {
    request.workload.config.plans = place;
    request.workload.given.emplace_back("plans");
  }
  request.repeats = 1;
  request.plain_alone = plain;
  const int64_t first = arm.runs.at(0).ranks.at(0).environment;
  const auto& variables = report.environments.at(first).variables;
  const auto pml = variables.find("OMPI_MCA_pml");
  if (pml != variables.end() && pml->second == "ucx") request.mpi = MpiTransport::ucx;
  return request;
}

}  // namespace nearmetal
