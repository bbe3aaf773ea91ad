#include "bench/sweep/layouts_left_out.h"

#include <algorithm>

#include "bench/sweep/hosts_found.h"
#include "bench/sweep/mig_found.h"
#include "bench/sweep/mps_daemon.h"
#include "comm/layout/mig_placement.h"
#include "models/errors.h"

namespace nearmetal {
namespace {

SharingMode way_of(const Layout& layout) { return layout.jobs.front().share->mode; }

bool is_through_mps(const Layout& layout) { return through_mps(*layout.jobs.front().share); }

// Why no GPU of the host can be shared in a way that has to be set up there; empty: one may be.
std::string why_no_gpu(const Host& host) {
  if (host.gpus == 0) return "there is no GPU";
  return is_this_machine(address_of(host)) ? "" : "it is for this machine alone";
}

std::string why_no_mps(const Host& host) {
  const std::string reason = why_no_gpu(host);
  return reason.empty() ? no_mps_reason() : reason;
}

std::string why_not(SharingMode way, const std::string& no_mps) {
  return (way == SharingMode::sm ? "SMs are reserved through MPS: " : "") + no_mps;
}

}  // namespace

std::vector<UnsupportedArm> leave_out_portable(LayoutFile& file) {
  std::vector<UnsupportedArm> left_out;
  std::erase_if(file.layouts, [&](const Layout& layout) {
    if (!layout.portable || !layout.jobs.front().share || !is_through_mps(layout)) return false;
    const auto host = std::ranges::find(file.hosts, layout.jobs[0].instances[0].host, &Host::name);
    if (host == file.hosts.end()) return false;
    const std::string no_mps = why_no_mps(*host);
    if (!no_mps.empty()) left_out.push_back({layout.name, why_not(way_of(layout), no_mps)});
    return !no_mps.empty();
  });
  if (!file.layouts.empty()) return left_out;
  throw NotSupported(left_out.front().name + ": " + left_out.front().reason);
}

std::vector<UnsupportedArm> leave_out_fractions(LayoutFile& file, const Fractions& fractions) {
  const Host& host = file.hosts.front();
  const std::string nowhere = why_no_gpu(host);
  std::vector<UnsupportedArm> left_out;
  const auto leave_out = [&](const auto& unwanted, const auto& reason_of) {
    std::erase_if(file.layouts, [&](const Layout& layout) {
      if (!unwanted(layout)) return false;
      left_out.push_back({layout.name, reason_of(way_of(layout))});
      return true;
    });
  };
  const auto leave_out_way = [&](const char* way, const std::string& reason) {
    for (const std::string& name : fraction_names(fractions)) {
      left_out.push_back({name + way, reason});
    }
  };
  const std::string no_mps = why_no_mps(host);
  const auto why_not_mps = [&](SharingMode way) { return why_not(way, no_mps); };
  if (!no_mps.empty() && std::ranges::any_of(file.layouts, is_through_mps)) {
    leave_out(is_through_mps, why_not_mps);
  } else if (!no_mps.empty()) {
    leave_out_way("MPS", why_not_mps(SharingMode::mps));
    leave_out_way("SMs", why_not_mps(SharingMode::sm));
  }
  const int64_t gpu = first_gpu_of(host);
  if (is_divided(host, gpu)) {
    leave_out([](const Layout& layout) { return way_of(layout) != SharingMode::mig; },
              [&](SharingMode) { return no_whole_gpu_reason(gpu); });
  }
  const std::string no_mig = nowhere.empty() ? no_mig_reason(host, fractions.jobs) : nowhere;
  if (!no_mig.empty() && file.layouts.empty()) {
    throw NotSupported("--fractions " + std::to_string(fractions.jobs) + ": " + no_mig);
  }
  if (!no_mig.empty()) leave_out_way("MIG", no_mig);
  return left_out;
}

}  // namespace nearmetal
