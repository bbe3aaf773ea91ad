#include "comm/layout/placement.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <random>
#include <set>

#include "base/text.h"
#include "comm/layout/gpu_shares.h"
#include "comm/layout/short_form.h"

namespace nearmetal {
namespace {

constexpr int first_ras_port = 28028;  // NCCL's default

// The parts of one host that the jobs of a layout take.
struct Taken {
  const Host* host = nullptr;
  std::vector<int64_t> cpus;
  std::set<int64_t> gpus;
  int64_t ranks = 0;
  int64_t placed = 0;  // of `ranks`, so far
  int64_t vms = 0;     // emulated, so far
};

class Placer {
 public:
  Placer(const Layout& layout, const std::vector<Host>& hosts,
         const std::map<std::string, std::string>& variables)
      : layout_(layout), hosts_(hosts), variables_(variables) {
    for (const Host& host : hosts) taken_[host.name] = {&host, cpus_of(host), {}, 0, 0, 0};
  }

  Placement place(const std::vector<Job>& jobs) {
    placement_.layout = layout_.name;
    placement_.kind = layout_.emulate ? Kind::emulated : Kind::measured;
    for (size_t j = 0; j < jobs.size(); ++j) take_all(jobs[j], place_of_job(j));
    require_enough_cpus();
    if (!layout_.shape) mig_ = take_mig_devices(layout_, hosts_);
    for (size_t j = 0; j < jobs.size(); ++j) place_job(jobs[j], j, jobs.size());
    require_one_device();
    return std::move(placement_);
  }

 private:
  std::string place_of_job(size_t job) const {
    return layout_.source + (layout_.shape ? "" : "/jobs/" + std::to_string(job));
  }

  // Books hosts and GPUs; what is not there or taken already is refused.
  void take_all(const Job& job, const std::string& place) {
    std::set<std::string> hosts;
    int64_t ranks = 0;
    for (size_t k = 0; k < job.instances.size(); ++k) {
      const Instance& instance = job.instances[k];
      const std::string here = layout_.shape ? place : place + "/instances/" + std::to_string(k);
      take(instance, job.share && job.share->mode != SharingMode::vgpu, here);
      ranks += static_cast<int64_t>(instance.gpus.size()) + instance.ranks;
      if (hosts.insert(instance.host).second) continue;
      const std::string again = "the job is on '" + instance.host + "' already; ";
      if (!layout_.emulate) refuse(here, again + "with \"emulate\": true each instance is a part");
      if (job.instances[k - 1].host == instance.host) continue;
      refuse(here, again + "name its parts one after the other, as mpirun fills one host after " +
                       "the other");
    }
    all_ranks_ += ranks;
    if (all_ranks_ > most_ranks) {
      refuse(layout_.source, "more than " + std::to_string(most_ranks) + " ranks");
    }
    const auto expected = layout_.expect.world_size;
    if (expected && *expected != ranks) {
      refuse(place, "it has " + std::to_string(ranks) + " ranks, and a world_size of " +
                        std::to_string(*expected) + " is expected");
    }
  }

  void take(const Instance& instance, bool shared, const std::string& place) {
    const auto found = taken_.find(instance.host);
    if (found == taken_.end()) refuse(place, "there is no host '" + instance.host + "'");
    Taken& taken = found->second;
    const int64_t gpus = taken.host->gpus;
    taken.ranks = shared ? std::max(taken.ranks, instance.ranks) : taken.ranks + instance.ranks;
    if (instance.ranks > 0 && gpus > 0) {
      refuse(place, "'" + instance.host + "' has GPUs: name those that the ranks take");
    }
    for (const int64_t gpu : instance.gpus) {
      if (gpu >= gpus) {
        refuse(place, "'" + instance.host + "' has " + std::to_string(gpus) +
                          " GPUs, from 0: there is no GPU " + std::to_string(gpu));
      }
      if (taken.gpus.insert(gpu).second || shared) continue;
      refuse(place, "GPU " + std::to_string(gpu) + " of '" + instance.host + "' is taken already");
    }
  }

  void require_enough_cpus() const {
    for (const auto& [name, taken] : taken_) {
      const auto cpus = static_cast<int64_t>(taken.cpus.size());
      if (cpus == 0 || taken.ranks <= cpus) continue;
      refuse(layout_.source, "'" + name + "' has " + std::to_string(cpus) + " CPUs for " +
                                 std::to_string(taken.ranks) + " ranks");
    }
  }

  void require_one_device() const {
    bool gpu = false, cpu = false;
    for (const PlacedJob& job : placement_.jobs) {
      for (const PlacedRank& rank : job.ranks) (rank.gpu ? gpu : cpu) = true;
    }
    if (gpu && cpu) refuse(layout_.source, "some ranks have GPUs and others have none");
  }

  void place_job(const Job& job, size_t index, size_t jobs) {
    PlacedJob& placed = placement_.jobs.emplace_back();
    placed.share = job.share;
    placed.stress = job.stress;
    std::map<std::string, std::string> common;
    if (job.share) add_share_variables(*job.share, job, common);
    if (jobs > 1) {
      common["NCCL_RAS_ADDR"] = "localhost:" + std::to_string(first_ras_port + index);
    }
    const std::string& first_host = job.instances.front().host;
    const bool one_host =
        std::ranges::all_of(job.instances, [&](const Instance& i) { return i.host == first_host; });
    for (const Instance& instance : job.instances) {
      place_instance(instance, job, one_host, common,
                     mig_.empty() ? std::vector<MigDevice>{} : mig_.at(index), placed);
    }
  }

  void place_instance(const Instance& instance, const Job& job, bool one_host,
                      std::map<std::string, std::string> variables,
                      const std::vector<MigDevice>& devices, PlacedJob& placed) {
    Taken& taken = taken_.at(instance.host);
    PlacedRank rank;
    rank.host = instance.host;
    rank.address = address_of(*taken.host);
    if (layout_.emulate) rank.vm = taken.vms++;
    if (!instance.gpus.empty()) add_gpu_variables(instance, job, rank.vm, one_host, variables);
    rank.variables = with_users(variables);
    if (!instance.gpus.empty()) rank.cpus = cpus_near(instance.gpus, *taken.host);
    if (job.share) taken.placed = 0;  // what others have, too
    for (size_t i = 0; i < instance.gpus.size() + instance.ranks; ++i) {
      rank.rank = static_cast<int64_t>(placed.ranks.size());
      if (!instance.gpus.empty()) {
        rank.gpu = instance.gpus[i];
        rank.visible_gpu = i;
      } else if (!taken.cpus.empty()) {
        rank.cpus = to_cpu_list(part_of(taken.cpus, taken.placed++, taken.ranks));
      }
      if (!devices.empty()) give_mig_device(devices.at(placed.ranks.size()), rank);
      placed.ranks.push_back(rank);
    }
  }

  static void give_mig_device(const MigDevice& device, PlacedRank& rank) {
    rank.mig = device;
    rank.visible_gpu = 0;
    rank.variables["CUDA_VISIBLE_DEVICES"] = device.uuid;
  }

  static void add_share_variables(const Share& share, const Job& job,
                                  std::map<std::string, std::string>& variables) {
    if (job.instances.front().gpus.empty()) {
      variables["OMP_WAIT_POLICY"] = "passive";  // threads that spin take the CPUs from other jobs
      return;
    }
    if (!through_mps(share)) {
      variables["CUDA_MPS_PIPE_DIRECTORY"] = "/dev/null";  // nor a daemon that is there by chance
      return;
    }
    if (share.mode == SharingMode::mps && share.threads_percent) {
      variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = std::to_string(*share.threads_percent);
    }
    if (!share.memory_gib) return;
    std::vector<std::string> limits;
    for (size_t gpu = 0; gpu < job.instances.front().gpus.size(); ++gpu) {
      limits.push_back(std::to_string(gpu) + "=" + std::to_string(*share.memory_gib) + "G");
    }
    variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = joined(limits, ",");
  }

  // Clients of MPS count the GPUs of their daemon: those that the layout takes.
  int64_t visible_index(int64_t gpu, const Instance& instance, const Job& job) const {
    if (!job.share || !through_mps(*job.share)) return gpu;
    const std::set<int64_t>& of_daemon = taken_.at(instance.host).gpus;
    return std::distance(of_daemon.begin(), of_daemon.find(gpu));
  }

  void add_gpu_variables(const Instance& instance, const Job& job, std::optional<int64_t> vm,
                         bool one_host, std::map<std::string, std::string>& variables) const {
    std::vector<std::string> visible;
    for (const int64_t gpu : instance.gpus) {
      visible.push_back(std::to_string(visible_index(gpu, instance, job)));
    }
    variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID";
    variables["CUDA_VISIBLE_DEVICES"] = joined(visible, ",");
    if (!vm) return;
    variables["NCCL_HOSTID"] = instance.host + "-vm" + std::to_string(*vm);
    variables["NCCL_NET"] = "Socket";
    variables["NCCL_IB_DISABLE"] = "1";
    variables["NCCL_MNNVL_ENABLE"] = "0";  // NVLink between hosts
    if (one_host) variables["NCCL_SOCKET_IFNAME"] = "=lo";
  }

  std::map<std::string, std::string> with_users(
      std::map<std::string, std::string> variables) const {
    for (const auto& [name, value] : variables_) {
      if (variables.emplace(name, value).second) continue;
      refuse(layout_.source,
             "it sets " + name + " itself; take it out of the launcher's variables");
    }
    return variables;
  }

  // For an emulated VM, an even share for each of its GPUs; else all that the host allows.
  std::string cpus_near(const std::vector<int64_t>& gpus, const Host& host) const {
    if (!layout_.emulate) return host.cpus.value_or("");
    const std::vector<int64_t> all = cpus_of(host);
    if (all.empty()) return "";
    std::vector<NumaNode> nodes = host.numa;
    if (nodes.empty()) {
      NumaNode& whole = nodes.emplace_back(NumaNode{to_cpu_list(all), {}});
      whole.gpus.resize(host.gpus);
      std::iota(whole.gpus.begin(), whole.gpus.end(), 0);
    }
    std::vector<int64_t> cpus;
    for (const NumaNode& node : nodes) {
      const std::vector<int64_t> near = parse_cpu_list(node.cpus);
      const auto parts = std::ssize(node.gpus);
      for (int64_t i = 0; i < parts; ++i) {
        if (find_in(gpus, node.gpus[i])) append(cpus, part_of(near, i, parts));
      }
    }
    std::ranges::sort(cpus);
    if (!cpus.empty()) return to_cpu_list(cpus);
    refuse(layout_.source,
           "'" + host.name + "' has too few CPUs for a part of its own for each GPU");
  }

  const Layout& layout_;
  const std::vector<Host>& hosts_;
  const std::map<std::string, std::string>& variables_;
  std::map<std::string, Taken> taken_;
  int64_t all_ranks_ = 0;
  MigTaken mig_;  // by job of a layout that lists them
  Placement placement_;
};

}  // namespace

std::string share_size(const PlacedJob& job) {
  if (!job.share) return "";
  if (job.share->mode == SharingMode::vgpu) return job.share->profile.value();
  const std::optional<MigDevice>& mig = job.ranks.front().mig;
  return mig ? profile_or_uuid(*mig)
             : std::to_string(job.share->threads_percent.value_or(100)) + " %";
}

int64_t Placement::ranks() const {
  int64_t sum = 0;
  for (const PlacedJob& job : jobs) sum += std::ssize(job.ranks);
  return sum;
}

std::vector<size_t> Placement::training_jobs() const {
  std::vector<size_t> indices;
  for (size_t job = 0; job < jobs.size(); ++job) {
    if (!jobs[job].stress) indices.push_back(job);
  }
  return indices;
}

bool Placement::on_gpus() const { return jobs.front().ranks.front().gpu.has_value(); }

Placement place(const Layout& layout, const std::vector<Host>& hosts,
                const std::map<std::string, std::string>& variables) {
  const std::vector<Job> jobs = layout.shape ? shape_jobs(layout, hosts) : layout.jobs;
  return Placer(layout, hosts, variables).place(jobs);
}

std::vector<Launch> launch_order(size_t layouts, int64_t repeats, bool randomised, int64_t seed) {
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  std::vector<size_t> order(layouts);
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<Launch> launches;
  for (int64_t repeat = 1; repeat <= repeats; ++repeat) {
    if (randomised && layouts == 2 && repeat > 1) {
      std::ranges::reverse(order);
    } else if (randomised) {
      // Fisher and Yates; std::shuffle() may differ between libraries.
      for (size_t i = layouts; i > 1; --i) std::swap(order[i - 1], order[random() % i]);
    }
    for (const size_t layout : order) launches.push_back({layout, repeat});
  }
  return launches;
}

}  // namespace nearmetal
