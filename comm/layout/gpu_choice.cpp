#include "comm/layout/gpu_choice.h"

#include <algorithm>
#include <map>
#include <utility>

#include "reports/text/text.h"

namespace nearmetal {
namespace {

constexpr size_t most_free = 16;  // all choices of so many are looked at

const GpuPlace& place_of(const Host& host, int64_t gpu) {
  static const GpuPlace unknown;
  return gpu < std::ssize(host.places) ? host.places[static_cast<size_t>(gpu)] : unknown;
}

int64_t connected_pairs(const Host& host, const std::vector<int64_t>& gpus) {
  int64_t pairs = 0;
  for (const int64_t gpu : gpus) {
    for (const int64_t other : place_of(host, gpu).nvlinks) {
      if (other > gpu && std::ranges::count(gpus, other) > 0) ++pairs;
    }
  }
  return pairs;
}

int64_t way_to_nics(const Host& host, const std::vector<int64_t>& gpus) {
  constexpr int64_t unknown = static_cast<int64_t>(PciDistance::sys) + 1;
  int64_t way = 0;
  for (const int64_t gpu : gpus) {
    const std::optional<PciDistance>& nearest = place_of(host, gpu).nearest_nic;
    way += nearest ? static_cast<int64_t>(*nearest) : unknown;
  }
  return way;
}

// The larger, the better.
std::pair<int64_t, int64_t> worth_of(const Host& host, const std::vector<int64_t>& gpus,
                                     bool network) {
  return {connected_pairs(host, gpus), network ? -way_to_nics(host, gpus) : 0};
}

std::string nvlink_text(const Host& host, const std::vector<int64_t>& gpus) {
  const auto count = std::ssize(gpus);
  const int64_t pairs = connected_pairs(host, gpus), all = count * (count - 1) / 2;
  if (pairs == 0) return "";
  if (pairs == all) return "NVLink connects them all";
  return "NVLink connects " + std::to_string(pairs) + " of " + counted(all, "pair");
}

// "nearest NICs: mlx5_0 (PIX), mlx5_3 (PHB)"
std::string nic_text(const Host& host, const std::vector<int64_t>& gpus) {
  std::vector<std::string> nics;
  for (const int64_t gpu : gpus) {
    const GpuPlace& place = place_of(host, gpu);
    if (!place.nearest_nic) continue;
    const std::string nic = place.nic + " (" + to_string(*place.nearest_nic) + ")";
    if (std::ranges::find(nics, nic) == nics.end()) nics.push_back(nic);
  }
  if (nics.empty()) return "";
  return (nics.size() > 1 ? "nearest NICs: " : "nearest NIC: ") + joined(nics);
}

}  // namespace

std::vector<int64_t> choose_gpus(const Host& host, const std::vector<int64_t>& free, int64_t count,
                                 bool network) {
  std::vector<int64_t> best(free.begin(), free.begin() + count);
  if (host.places.empty() || free.size() > most_free) return best;
  std::vector<bool> taken(free.size());
  std::fill_n(taken.begin(), count, true);
  while (std::prev_permutation(taken.begin(), taken.end())) {  // GPUs of low index come first
    std::vector<int64_t> other;
    for (size_t i = 0; i < free.size(); ++i) {
      if (taken[i]) other.push_back(free[i]);
    }
    if (worth_of(host, other, network) > worth_of(host, best, network)) best = other;
  }
  return best;
}

std::string choice_text(const Host& host, const std::vector<int64_t>& gpus, bool network) {
  std::vector<std::string> names, reasons;
  for (const int64_t gpu : gpus) names.push_back(std::to_string(gpu));
  for (const std::string& reason :
       {nvlink_text(host, gpus), network ? nic_text(host, gpus) : std::string()}) {
    if (!reason.empty()) reasons.push_back(reason);
  }
  if (reasons.empty()) return "";
  return (gpus.size() > 1 ? "GPUs " : "GPU ") + joined(names) + " of " + host.name + ": " +
         joined(reasons, "; ");
}

std::vector<std::string> choice_texts(const Placement& placement, const std::vector<Host>& hosts) {
  std::vector<std::string> texts;
  for (const PlacedJob& job : placement.jobs) {
    std::map<std::string, std::vector<int64_t>> gpus;
    for (const PlacedRank& rank : job.ranks) {
      if (rank.gpu) gpus[rank.host].push_back(*rank.gpu);
    }
    for (const Host& host : hosts) {
      const auto taken = gpus.find(host.name);
      if (taken == gpus.end() || taken->second.size() == visible_gpus_of(host).size()) continue;
      const std::string text = choice_text(host, taken->second, gpus.size() > 1);
      if (!text.empty()) texts.push_back(text);
    }
  }
  return texts;
}

}  // namespace nearmetal
