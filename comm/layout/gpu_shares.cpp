#include "comm/layout/gpu_shares.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/errors.h"
#include "base/text.h"
#include "comm/layout/gpu_profiles.h"

namespace nearmetal {
namespace {

// The commands by which an administrator would have these instances on a GPU: "nvidia-smi -i 0
// -mig 1, then nvidia-smi mig -i 0 -cgi 1g.18gb,1g.18gb -C"; the first part where MIG is off.
std::string mig_commands(int64_t gpu, bool is_on, const std::vector<std::string>& profiles) {
  const std::string index = std::to_string(gpu);
  std::string text = is_on ? "" : "nvidia-smi -i " + index + " -mig 1";
  if (profiles.empty()) return text;
  return text + (is_on ? "" : ", then ") + "nvidia-smi mig -i " + index + " -cgi " +
         joined(profiles, ",") + " -C";
}

const Host& host_named(const std::vector<Host>& hosts, const std::string& name) {
  static const Host unknown;  // the placement says that it is not there
  const Host* found = find_in(hosts, name, &Host::name);
  return found != nullptr ? *found : unknown;
}

std::string listed_profiles(const Host& host, int64_t gpu) {
  std::vector<std::string> names;
  for (const MigDevice& device : host.mig) {
    if (device.gpu == gpu) names.push_back(profile_or_uuid(device));
  }
  return names.empty() ? "none" : joined(names);
}

// Compute slices, then gigabytes: "3g.71gb" is larger than "1g.35gb".
std::pair<int64_t, int64_t> size_of(const std::string& profile) {
  const size_t slices = profile.find("g.");
  if (slices == profile.npos || slices == 0) return {0, 0};
  return {profile[slices - 1] - '0', std::atoll(profile.c_str() + slices + 2)};
}

struct DeviceRequest {
  size_t job = 0;
  size_t rank = 0;
  const Host* host = nullptr;
  int64_t gpu = 0;
  const Share* share = nullptr;
  std::string place;

  int order() const { return share->instance ? 0 : share->profile ? 1 : 2; }
};

class MigTaker {
 public:
  MigTaker(const Layout& layout, const std::vector<Host>& hosts) {
    for (size_t j = 0; j < layout.jobs.size(); ++j) {
      const Job& job = layout.jobs[j];
      taken_.emplace_back();
      if (!job.share || job.share->mode != SharingMode::mig) continue;
      for (const Instance& instance : job.instances) {
        for (const int64_t gpu : instance.gpus) {
          const std::string place = layout.source + "/jobs/" + std::to_string(j) + "/share";
          requests_.push_back(
              {j, taken_[j].size(), &host_named(hosts, instance.host), gpu, &*job.share, place});
          taken_[j].emplace_back();
        }
      }
    }
  }

  MigTaken take() {
    std::ranges::stable_sort(requests_, {}, &DeviceRequest::order);
    for (const DeviceRequest& request : requests_)
      taken_[request.job][request.rank] = device_for(request);
    return std::move(taken_);
  }

 private:
  MigDevice device_for(const DeviceRequest& request) {
    const Share& share = *request.share;
    const std::vector<MigDevice>& there = request.host->mig;
    const bool nothing_known = there.empty() && request.host->found.empty();
    if (share.instance) require_free(request);
    if (nothing_known && share.instance) return {request.gpu, *share.instance, ""};
    if (nothing_known) {
      refuse(request.place, "'" + request.host->name +
                                "' is not this machine: list its MIG devices (\"mig\" of the "
                                "host), or name the job's \"instance\"");
    }
    for (const MigDevice& device : there) {
      if (device.gpu != request.gpu || booked_.contains(device.uuid)) continue;
      if (share.instance && device.uuid != *share.instance) continue;
      if (share.profile && device.profile != *share.profile) continue;
      booked_.insert(device.uuid);
      return device;
    }
    if (share.profile) {  // what the driver or the file lists is there, whatever the tables say
      const auto why = no_such_profile(*share.profile, gpu_facts(*request.host, request.gpu).name);
      if (why) refuse(request.place + "/profile", *why);
    }
    throw NotSupported(request.place + ": " + missing(request));
  }

  void require_free(const DeviceRequest& request) {
    const bool again = std::ranges::any_of(requests_, [&](const DeviceRequest& other) {
      return &other != &request && other.share->instance == request.share->instance;
    });
    if (!again) return;
    refuse(request.place + "/instance", "another job has " + *request.share->instance + ", too");
  }

  std::string missing(const DeviceRequest& request) const {
    const Share& share = *request.share;
    const std::string gpu = std::to_string(request.gpu);
    const std::string on = " on GPU " + gpu + " of '" + request.host->name + "'";
    const std::string what = share.instance  ? *share.instance
                             : share.profile ? *share.profile + " that no other job has"
                                             : "that no other job has";
    const std::optional<std::string>& no_mig = gpu_facts(*request.host, request.gpu).no_mig;
    const std::string listed = listed_profiles(*request.host, request.gpu);
    const bool is_on = !no_mig;
    std::string why =
        no_mig.value_or("there is no MIG device " + what) + on + "; it has: " + listed;
    // A UUID cannot be asked for, nor MIG where it is more than off.
    if (is_on ? share.instance.has_value() : no_mig != mig_is_off) return why;
    const bool may_be_full = is_on && listed != "none";
    return why + "; an administrator makes what the layout needs: " +
           mig_commands(request.gpu, is_on, lacking(request)) +
           (may_be_full
                ? " (where there is no room, after nvidia-smi mig -i " + gpu + " -dci and -dgi)"
                : "");
  }

  // The profiles that the jobs of the layout want of this GPU, less what is there.
  std::vector<std::string> lacking(const DeviceRequest& request) const {
    std::vector<const DeviceRequest*> here;
    for (const DeviceRequest& other : requests_) {
      if (other.host == request.host && other.gpu == request.gpu) here.push_back(&other);
    }
    const MigProfile* even = largest_equal_profile(gpu_facts(*request.host, request.gpu).name,
                                                   static_cast<int64_t>(here.size()));
    std::vector<std::string> profiles;
    for (const DeviceRequest* other : here) {
      if (other->share->instance) continue;
      const std::string any = even == nullptr ? "PROFILE" : even->name;
      profiles.push_back(other->share->profile.value_or(any));
    }
    for (const MigDevice& device : request.host->mig) {
      const bool named = std::ranges::any_of(
          here, [&](const DeviceRequest* other) { return other->share->instance == device.uuid; });
      const auto found = std::ranges::find(profiles, device.profile);
      if (device.gpu == request.gpu && !named && found != profiles.end()) profiles.erase(found);
    }
    return profiles;
  }

  MigTaken taken_;
  std::vector<DeviceRequest> requests_;
  std::set<std::string> booked_;
};

// The devices of the first visible GPU for `jobs` jobs: of each profile that has as many, such as
// compute instances beside GPU instances, the largest first; else the largest ones, perhaps fewer.
std::vector<std::vector<MigDevice>> mig_devices_for(const Host& host, int64_t jobs) {
  std::vector<MigDevice> devices;
  for (const MigDevice& device : host.mig) {
    if (device.gpu == first_gpu_of(host)) devices.push_back(device);
  }
  std::ranges::stable_sort(devices, {}, [](const MigDevice& device) {
    const auto [slices, gigabytes] = size_of(device.profile);
    return std::tuple(-slices, -gigabytes, device.profile);
  });
  std::vector<std::vector<MigDevice>> even;
  for (auto first = devices.begin(), last = first; first != devices.end(); first = last) {
    last = std::find_if(first, devices.end(),
                        [&](const MigDevice& device) { return device.profile != first->profile; });
    if (last - first >= jobs) even.emplace_back(first, first + jobs);
  }
  if (!even.empty()) return even;
  if (std::ssize(devices) > jobs) devices.resize(static_cast<size_t>(jobs));
  return {devices};
}

Job job_on(const Host& host, const Share& share) {
  Instance instance{host.name, {}, host.gpus > 0 ? 0 : 1};
  if (host.gpus > 0) instance.gpus = {first_gpu_of(host)};
  return {.instances = {instance}, .share = share};
}

Layout layout_of(const std::string& name, std::vector<Job> jobs) {
  Layout layout;
  layout.name = layout.source = name;
  layout.jobs = std::move(jobs);
  return layout;
}

// Shares that jobs have at once. Names fit into the labels of charts, also beside neighbours.
struct NamedShares {
  std::string name;
  std::vector<Share> shares{};  // by job
};

NamedShares shares_of(const std::vector<MigDevice>& devices) {
  NamedShares named;
  std::vector<std::string> names;
  for (const MigDevice& device : devices) {
    names.push_back(profile_or_uuid(device));
    Share& share = named.shares.emplace_back(Share{.mode = SharingMode::mig});
    (device.profile.empty() ? share.instance : share.profile) = names.back();
  }
  const bool even = std::set(names.begin(), names.end()).size() == 1;
  named.name = "MIG " + (even ? names.front() : joined(names, " + "));
  return named;
}

// Parts of the GPU are even, but for MIG devices.
std::vector<NamedShares> shares_at_once(const Host& host, int64_t jobs) {
  const int64_t part = 100 / jobs;
  const std::string percent = " " + std::to_string(part) + " percent";
  std::vector<NamedShares> all;
  const auto add = [&](const std::string& name, const Share& share) {
    all.push_back({name, std::vector(static_cast<size_t>(jobs), share)});
  };
  add("time slices", {.mode = SharingMode::timeslice});
  if (host.gpus == 0) return all;
  add("MPS", {.mode = SharingMode::mps});
  add("MPS" + percent, {.mode = SharingMode::mps, .threads_percent = part});
  add("SMs" + percent, {.mode = SharingMode::sm, .threads_percent = part});
  for (const std::vector<MigDevice>& devices : mig_devices_for(host, jobs)) {
    if (std::ssize(devices) == jobs) all.push_back(shares_of(devices));
  }
  return all;
}

// One job alone on each part that some job has: the cost of neighbours is told from that of a
// smaller share.
std::vector<Layout> alone_on_parts(const Host& host, const std::vector<NamedShares>& all) {
  std::vector<Layout> layouts;
  for (const NamedShares& named : all) {
    std::map<std::string, Share> parts;
    for (const Share& share : named.shares) {
      if (share.threads_percent) parts.emplace(named.name, share);
      const auto& device = share.profile ? share.profile : share.instance;
      if (device) parts.emplace("MIG " + *device, share);
    }
    for (const auto& [name, share] : parts) {
      layouts.push_back(layout_of("alone, " + name, {job_on(host, share)}));
    }
  }
  return layouts;
}

}  // namespace

MigTaken take_mig_devices(const Layout& layout, const std::vector<Host>& hosts) {
  return MigTaker(layout, hosts).take();
}

std::optional<std::string> no_mig_reason(const Host& host, int64_t jobs) {
  const int64_t first = first_gpu_of(host);
  const std::optional<std::string>& why = gpu_facts(host, first).no_mig;
  const auto there = std::ssize(mig_devices_for(host, jobs).front());
  if (!why && there >= jobs) return std::nullopt;
  const std::string gpu = gpu_facts(host, first).name;
  const MigProfile* even = largest_equal_profile(gpu, jobs);
  if (even == nullptr && !mig_profiles_of(gpu).empty()) {
    return "an " + gpu + " has no " + std::to_string(jobs) + " MIG devices of one kind";
  }
  if (even == nullptr && why) return why;
  const std::string profile = even == nullptr ? "PROFILE" : even->name;
  const std::vector<std::string> profiles(static_cast<size_t>(jobs), profile);
  const std::string found =
      why.value_or("of MIG devices there are: " + listed_profiles(host, first));
  const std::string room =
      there > 0 ? "nvidia-smi mig -i " + std::to_string(first) + " -dci, -dgi, then " : "";
  return found + "; an administrator makes " + std::to_string(jobs) + " even ones: " + room +
         mig_commands(first, !why, profiles);
}

std::vector<Layout> fraction_layouts(const Host& host, const Fractions& fractions) {
  const std::vector<NamedShares> all = shares_at_once(host, fractions.jobs);
  const std::vector<std::string> names = fraction_names(fractions);
  const std::vector<NeighbourLoad>& loads = fractions.neighbours;
  std::vector<Layout> layouts = {layout_of("alone", {job_on(host, {.mode = SharingMode::alone})})};
  if (loads.empty()) {
    const Job turn = job_on(host, {.mode = SharingMode::serial});
    layouts.push_back(layout_of(names[0] + "serial", {static_cast<size_t>(fractions.jobs), turn}));
  }
  for (size_t i = 0; i < names.size(); ++i) {
    for (const NamedShares& named : all) {
      std::vector<Job> jobs =
          transformed(named.shares, [&](const Share& share) { return job_on(host, share); });
      for (size_t job = 1; job < jobs.size() && !loads.empty(); ++job) jobs[job].stress = loads[i];
      layouts.push_back(layout_of(names[i] + named.name, std::move(jobs)));
    }
  }
  append(layouts, alone_on_parts(host, all));
  return layouts;
}

std::vector<std::string> fraction_names(const Fractions& fractions) {
  if (fractions.neighbours.empty()) return {std::to_string(fractions.jobs) + " jobs, "};
  return transformed(fractions.neighbours, [&](NeighbourLoad load) {
    return "1 job, " + std::to_string(fractions.jobs - 1) + " " + to_string(load) + ", ";
  });
}

}  // namespace nearmetal
