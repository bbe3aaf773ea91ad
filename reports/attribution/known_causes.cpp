#include "reports/attribution/known_causes.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/text.h"
#include "reports/conditions/machine_conditions.h"
#include "reports/conditions/network_conditions.h"
#include "reports/conditions/path_conditions.h"

namespace nearmetal {
namespace {

// Those that are specific come first, those that fit many layers last.
std::vector<const Condition*> all_conditions() {
  // Beside it nothing else of the machine counts.
  std::vector<const Condition*> all = {&condition_of(system_conditions(), "cpu_emulated")};
  for (const Conditions* table :
       {&limit_conditions(), &peer_conditions(), &gpu_conditions(), &exchange_conditions(),
        &gpu_direct_conditions(), &nic_conditions(), &system_conditions()}) {
    for (const Condition& condition : *table) all.push_back(&condition);
  }
  return all;
}

bool may_slow(const Slowed& slowed, Layer layer, const ExplainedSide& side) {
  if (slowed.over_network && !uses_network(side)) return false;
  return std::ranges::count(slowed.layers, layer) > 0 ||
         (side.runs.front()->device == Device::cpu &&
          std::ranges::count(slowed.of_cpu_work, layer) > 0);
}

// By layer.
constexpr std::array where_to_look = {
    "watch clocks, power and temperature while it runs",
    "look for another user of the device, or a smaller share of it",
    "look for another user of the memory, ECC, and the node on which it lies",
    "look for what else runs on these CPUs: processes, interrupts, other VMs",
    "look at the driver's version and the CPUs' power states",
    "look at the way of PCIe: IOMMU, switches, NUMA node of the pinned memory",
    "time the links (nearmetal micro); communication.nccl of the reports has the transports"};
static_assert(where_to_look.size() == names_of(Layer{}).size());

}  // namespace

std::vector<Finding> conditions_between(const ExplainedSide& base, const ExplainedSide& next) {
  std::vector<Finding> found;
  for (const Condition* condition : all_conditions()) {
    if (condition->slowed.layers.empty()) continue;
    std::optional<Finding> seen = found_between(*condition, base, next);
    if (!seen) continue;
    seen->code = condition->codes.attribution.value_or(condition->codes.doctor);
    if (find_in(found, seen->code, &Finding::code) == nullptr) found.push_back(std::move(*seen));
  }
  return found;
}

std::vector<KnownCause> known_causes(const ExplainedSide& base, const ExplainedSide& next,
                                     const std::vector<LayerShare>& layers) {
  std::vector<KnownCause> causes;
  std::set<std::string> named;
  const std::vector<const Condition*> conditions = all_conditions();
  for (const LayerShare& share : layers) {
    if (!share.counts() || *share.seconds <= 0) continue;
    bool found = false;
    for (const Condition* condition : conditions) {
      if (!may_slow(condition->slowed, share.layer, next)) continue;
      const std::optional<Finding> cause = found_between(*condition, base, next);
      if (!cause) continue;
      found = true;
      const auto& [of_doctor, own] = condition->codes;
      const std::string code = own.value_or(of_doctor);
      if (named.insert(code).second) causes.push_back({code, share.layer, cause->seen, cause->fix});
    }
    if (!found) {
      causes.push_back({"not_seen", share.layer, "nothing in the reports shows why",
                        where_to_look.at(static_cast<size_t>(share.layer))});
    }
  }
  return causes;
}

}  // namespace nearmetal
