#include "bench/sweep/fractions_found.h"

#include <algorithm>
#include <string>
#include <utility>

#include "bench/sweep/hosts_found.h"
#include "bench/sweep/mig_found.h"
#include "bench/sweep/mps_daemon.h"
#include "comm/layout/mig_placement.h"
#include "models/errors.h"

namespace nearmetal {
namespace {

SharingMode way_of(const Layout& layout) { return layout.jobs.front().share->way; }

bool is_through_mps(const Layout& layout) { return through_mps(*layout.jobs.front().share); }

// Some layouts, each for a reason.
class LeftOut {
 public:
  LeftOut(LayoutFile& file, const Fractions& fractions) : file_(file), fractions_(fractions) {}

  template <class Unwanted, class Reason>
  void layouts(const Unwanted& unwanted, const Reason& reason_of) {
    std::erase_if(file_.layouts, [&](const Layout& layout) {
      if (!unwanted(layout)) return false;
      arms_.push_back({layout.name, reason_of(way_of(layout))});
      return true;
    });
  }
  // Of which no layouts were made.
  void way(const std::string& way, const std::string& reason) {
    for (const std::string& name : fraction_names(fractions_)) {
      arms_.push_back({name + way, reason});
    }
  }
  std::vector<UnsupportedArm> take() { return std::move(arms_); }

 private:
  LayoutFile& file_;
  const Fractions& fractions_;
  std::vector<UnsupportedArm> arms_;
};

void leave_out_mps(LeftOut& left_out, const LayoutFile& file, const std::string& no_mps) {
  const auto reason_of = [&](SharingMode way) {
    return std::string(way == SharingMode::sm ? "they go through MPS: " : "") + no_mps;
  };
  const std::vector<Layout>& layouts = file.layouts;
  if (std::any_of(layouts.begin(), layouts.end(), is_through_mps)) {
    left_out.layouts(is_through_mps, reason_of);
    return;
  }
  left_out.way("MPS", reason_of(SharingMode::mps));
  left_out.way("SMs", reason_of(SharingMode::sm));
}

}  // namespace

std::vector<UnsupportedArm> leave_out_fractions(LayoutFile& file, const Fractions& fractions) {
  const Host& host = file.hosts.front();
  const std::string nowhere = host.gpus == 0                      ? "there is no GPU"
                              : is_this_machine(address_of(host)) ? ""
                                                                  : "it is for this machine alone";
  LeftOut left_out(file, fractions);
  const std::string no_mps = nowhere.empty() ? no_mps_reason() : nowhere;
  if (!no_mps.empty()) leave_out_mps(left_out, file, no_mps);
  const int64_t gpu = first_gpu_of(host);
  if (is_divided(host, gpu)) {
    left_out.layouts([](const Layout& layout) { return way_of(layout) != SharingMode::mig; },
                     [&](SharingMode) { return no_whole_gpu_reason(gpu); });
  }
  const std::string no_mig = nowhere.empty() ? no_mig_reason(host, fractions.jobs) : nowhere;
  if (!no_mig.empty() && file.layouts.empty()) {
    throw NotSupported("--fractions " + std::to_string(fractions.jobs) + ": " + no_mig);
  }
  if (!no_mig.empty()) left_out.way("MIG", no_mig);
  return left_out.take();
}

}  // namespace nearmetal
