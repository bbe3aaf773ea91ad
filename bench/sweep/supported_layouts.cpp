#include "bench/sweep/supported_layouts.h"

#include <algorithm>
#include <functional>
#include <map>

#include "base/errors.h"
#include "base/text.h"
#include "bench/environment/child_process.h"
#include "bench/sweep/mps_daemon.h"
#include "comm/layout/mig_config.h"

namespace nearmetal {
namespace {

// Why no GPU of the host can be shared by what has to be set up there; none: one may be.
std::optional<std::string> why_no_gpu(const Host& host) {
  if (host.gpus == 0) return "there is no GPU";
  if (!is_this_machine(address_of(host))) return "it is for this machine alone";
  return std::nullopt;
}

std::optional<std::string> why_no_mps(const Host& host, SharingMode mode) {
  std::optional<std::string> reason = why_no_gpu(host);
  if (!reason) reason = no_mps_reason();
  if (!reason || mode == SharingMode::mps) return reason;
  return "SMs are reserved through MPS: " + *reason;
}

// Whether MIG divides the GPU, as the driver tells.
bool is_divided(const Host& host, int64_t gpu) {
  return gpu < std::ssize(host.found) && !host.found[gpu].no_mig;
}

// With what an administrator would run.
std::string no_whole_gpu_reason(int64_t gpu) {
  return "MIG is on, so that there is no whole GPU; an administrator turns it off: nvidia-smi -i " +
         std::to_string(gpu) + " -mig 0. `nearmetal report` of both reports compares them";
}

// Why the host does not support a layout of --fractions, or one that names no GPUs; none: it may.
std::optional<std::string> why_unsupported(const Layout& layout, const Host& host,
                                           bool of_fractions) {
  const Share& share = *layout.jobs.front().share;
  auto no_mps = through_mps(share) ? why_no_mps(host, share.mode) : std::nullopt;
  if (no_mps || !of_fractions || share.mode == SharingMode::mig) return no_mps;
  const int64_t gpu = first_gpu_of(host);
  return is_divided(host, gpu) ? std::optional(no_whole_gpu_reason(gpu)) : std::nullopt;
}

// The rule that ranks hold as they meet, before any of them starts: where this machine has GPUs of
// several models, a job takes those of one.
std::optional<std::string> why_unlike(const Layout& layout, const std::vector<Host>& hosts) try {
  const auto is_mixed = [](const Host& host) {
    return std::ranges::adjacent_find(host.models, std::not_equal_to()) != host.models.end();
  };
  if (std::ranges::none_of(hosts, is_mixed)) return std::nullopt;
  for (const PlacedJob& job : place(layout, hosts).jobs) {
    std::map<std::string, std::string> gpus;  // by model, the first of each
    for (const PlacedRank& rank : job.ranks) {
      const Host& host = *std::ranges::find(hosts, rank.host, &Host::name);
      if (!rank.gpu || *rank.gpu >= std::ssize(host.models)) continue;
      const std::string& model = host.models[*rank.gpu];
      if (!model.empty()) gpus.try_emplace(model, "GPU " + std::to_string(*rank.gpu));
    }
    if (gpus.size() <= 1) continue;
    return "its GPUs differ, and a job takes those of one model: " +
           joined(
               transformed(gpus, [](const auto& one) { return one.second + " is " + one.first; }));
  }
  return std::nullopt;
} catch (const std::invalid_argument&) {
  return std::nullopt;  // the plan says what is wrong with it
}

// The modes of --fractions of which there are no layouts, as the host supports none.
std::vector<UnsupportedArm> absent_fractions(const Fractions& fractions, const Host& host,
                                             const std::optional<std::string>& no_mig) {
  std::vector<UnsupportedArm> absent;
  const auto add = [&](const char* mode, const std::optional<std::string>& reason) {
    for (const std::string& name : fraction_names(fractions)) {
      if (reason) absent.push_back({name + mode, *reason});
    }
  };
  if (host.gpus == 0) {
    add("MPS", why_no_mps(host, SharingMode::mps));
    add("SMs", why_no_mps(host, SharingMode::sm));
  }
  add("MIG", no_mig);
  return absent;
}

// The first device that is not there as planned, in a layout whose jobs share by MIG.
std::string missing_device(const Placement& placement, const Host& host) {
  for (const PlacedRank* rank : ranks_of(placement)) {
    if (!rank->mig || rank->host != host.name) continue;
    const MigDevice& planned = *rank->mig;
    const auto there = std::ranges::any_of(host.mig, [&](const MigDevice& one) {
      const bool same_kind = planned.profile.empty() || one.profile == planned.profile;
      return one.uuid == planned.uuid && one.gpu == planned.gpu && same_kind;
    });
    if (there) continue;
    const std::string kind = planned.profile.empty() ? "" : planned.profile + ", ";
    return "GPU " + std::to_string(planned.gpu) + " has no MIG device " + kind + planned.uuid;
  }
  return "";
}

// The advice where the layout lacks devices: those of the driver in place of those of the file. An
// instance can be asked for by its profile alone. Jobs on other hosts keep their places, without
// ranks.
std::string what_to_do(Layout layout, const Placement& placement, const Host& found) {
  for (size_t j = 0; j < layout.jobs.size(); ++j) {
    Share& share = *layout.jobs[j].share;
    const std::string& profile = placement.jobs[j].ranks.front().mig->profile;
    if (share.instance && !profile.empty()) share.profile = profile;
    share.instance.reset();
    std::erase_if(layout.jobs[j].instances,
                  [&](const Instance& instance) { return instance.host != found.name; });
  }
  try {
    take_mig_devices(layout, {found});
  } catch (const NotSupported& error) {
    return std::string(": ") + error.what();
  }
  return "; there are others that would do: give those (nvidia-smi -L), or leave \"mig\" of this "
         "host out of the file";
}

// Where MIG divides the GPU, CUDA shows a job that wants all of it the first device.
void require_whole_gpus(const LaunchPlan& plan, size_t i, const Host& found) {
  for (const PlacedJob& job : plan.placements[i].jobs) {
    if (!job.share || job.share->mode == SharingMode::mig) continue;
    for (const PlacedRank& rank : job.ranks) {
      if (rank.host != found.name || !rank.gpu || !is_divided(found, *rank.gpu)) continue;
      throw NotSupported(plan.source + plan.file.layouts[i].source + ": GPU " +
                         std::to_string(*rank.gpu) + ": " + no_whole_gpu_reason(*rank.gpu));
    }
  }
}

bool needs_gpus(const Placement& placement, const std::string& host) {
  return std::ranges::any_of(placement.jobs, [&](const PlacedJob& job) {
    return job.share && std::ranges::any_of(job.ranks, [&](const PlacedRank& rank) {
             return rank.host == host && rank.gpu;
           });
  });
}

void require_mig_devices(const LaunchPlan& plan) {
  std::map<std::string, Host> found;
  for (size_t i = 0; i < plan.placements.size(); ++i) {
    const Layout& layout = plan.file.layouts[i];
    for (const Host& planned : plan.file.hosts) {
      if (!needs_gpus(plan.placements[i], planned.name)) continue;
      if (!is_this_machine(address_of(planned))) continue;
      if (!found.contains(planned.name)) {
        found.emplace(planned.name, with_mig_devices(planned));
      }
      const Host& host = found.at(planned.name);
      const Placement& placement = plan.placements[i];
      require_whole_gpus(plan, i, host);
      const std::string why = missing_device(placement, host);
      if (why.empty()) continue;
      throw NotSupported(plan.source + layout.source + ": " + why +
                         what_to_do(layout, placement, host));
    }
    if (!layout.expect.mig_config) continue;
    const std::string place = plan.source + layout.source + "/expect/mig_config: ";
    if (const auto other = address_elsewhere(plan.placements[i])) {
      throw std::invalid_argument(place + "it can be checked on this machine alone, not on '" +
                                  *other + "'");
    }
    const std::vector<Gpu> gpus = gpus_by_bus();
    const MigConfig wanted = read_mig_config(*layout.expect.mig_config);
    const std::string why = joined(mig_differences(wanted, gpus), "; ");
    if (why.empty()) continue;
    throw NotSupported(place + why + "; an administrator applies it: " + apply_command(wanted));
  }
}

}  // namespace

std::optional<std::string> address_elsewhere(const Placement& placement) {
  for (const PlacedRank* rank : ranks_of(placement)) {
    if (!is_this_machine(rank->address)) return rank->address;
  }
  return std::nullopt;
}

SupportedLayouts supported_layouts(const std::vector<Layout>& layouts,
                                   const std::vector<Host>& hosts,
                                   const std::optional<Fractions>& fractions) {
  SupportedLayouts found;
  for (const Layout& layout : layouts) {
    std::optional<std::string> why = why_unlike(layout, hosts);
    if (!why && (fractions || layout.portable) && layout.jobs.front().share) {
      const std::string& name = layout.jobs[0].instances[0].host;
      const auto host = std::ranges::find(hosts, name, &Host::name);
      if (host != hosts.end()) why = why_unsupported(layout, *host, fractions.has_value());
    }
    if (!why) found.layouts.push_back(layout);
    if (why) found.left_out.push_back({layout.name, *why});
  }
  std::optional<std::string> no_mig;
  if (fractions) {
    const Host& host = hosts.front();
    no_mig = why_no_gpu(host);
    if (!no_mig) no_mig = no_mig_reason(host, fractions->jobs);
    append(found.left_out, absent_fractions(*fractions, host, no_mig));
  }
  if (!found.layouts.empty()) return found;
  throw NotSupported(fractions ? "--fractions " + std::to_string(fractions->jobs) + ": " +
                                     no_mig.value_or("")
                               : found.left_out[0].name + ": " + found.left_out[0].reason);
}

void require_shares(const LaunchPlan& plan) {
  require_mig_devices(plan);
  for (size_t i = 0; i < plan.placements.size(); ++i) {
    const Placement& placement = plan.placements[i];
    if (!placement.share() || !through_mps(*placement.share())) continue;
    const std::string place = plan.source + plan.file.layouts[i].source;
    if (const auto other = address_elsewhere(placement)) {
      throw std::invalid_argument(
          place + ": an MPS daemon is started on this machine alone, not on '" + *other + "'");
    }
    if (!placement.on_gpus()) throw NotSupported(place + ": MPS needs a GPU");
    if (const auto reason = no_mps_reason()) throw NotSupported(place + ": " + *reason);
  }
}

void require_mpirun(const LaunchPlan& plan) {
  const bool plain = std::ranges::all_of(
      plan.placements, [&](const Placement& placement) { return starts_plainly(plan, placement); });
  if (plain) return;
  if (!is_on_path("mpirun")) {
    throw NotSupported("mpirun, which starts the ranks of jobs, is not on PATH: install Open MPI");
  }
  if (plan.file.launcher.mpi != MpiTransport::ucx) return;
  const ChildOutput found = run_child({"ompi_info", "--parsable", "--param", "pml", "ucx"}, 30);
  if (found.exit_status != 0 || !found.text.empty()) return;  // else it is not there to tell
  throw NotSupported("Open MPI here has no component for UCX (pml ucx), which --mpi asks for");
}

}  // namespace nearmetal
