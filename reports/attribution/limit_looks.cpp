// The limits of a container, or of its user.
#include <algorithm>
#include <optional>

#include "reports/attribution/known_causes.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

using Side = ExplainedSide;

bool is_held_by_quota(const Environment& environment) {
  return environment.cpu_quota &&
         *environment.cpu_quota < static_cast<double>(environment.usable_cpus);
}

double cpus_of(const Environment& environment) {
  return is_held_by_quota(environment) ? *environment.cpu_quota
                                       : static_cast<double>(environment.usable_cpus);
}

// Null where there is none.
const Environment* with_fewest_cpus(const Side& side) {
  const auto fewest = std::ranges::min_element(
      side.environments, {}, [](const Environment* environment) { return cpus_of(*environment); });
  return fewest == side.environments.end() ? nullptr : *fewest;
}

Seen fewer(const Side& base, const Side& next, bool by_quota) {
  const Environment* there = with_fewest_cpus(base);
  const Environment* here = with_fewest_cpus(next);
  if (there == nullptr || here == nullptr || is_held_by_quota(*here) != by_quota) {
    return std::nullopt;
  }
  const std::string what = by_quota ? "the control group's quota of CPUs, of " +
                                          std::to_string(here->usable_cpus) + " that are usable:"
                                    : std::string("usable CPUs:");
  return if_less(what, cpus_of(*there), cpus_of(*here));
}

struct Smallest {
  std::optional<int64_t> bytes{};
  bool known = false;  // of any machine: also that there is no limit
};

Smallest smallest_of(const Side& side, Maybe<int64_t> Limits::*limit) {
  Smallest smallest;
  for (const Environment* environment : side.environments) {
    const Maybe<int64_t>& found = environment->limits.*limit;
    smallest.known = smallest.known || found || found.reason == no_limit;
    if (found) smallest.bytes = std::min(smallest.bytes.value_or(*found), *found);
  }
  return smallest;
}

// A limit that is below `small_bytes` on the new side alone.
Seen if_small(const char* what, const Side& base, const Side& next, Maybe<int64_t> Limits::*limit,
              int64_t small_bytes) {
  const Smallest there = smallest_of(base, limit), here = smallest_of(next, limit);
  if (!there.known || !here.bytes || *here.bytes >= small_bytes) return std::nullopt;
  if (there.bytes && *there.bytes < small_bytes) return std::nullopt;
  const auto text = [](int64_t bytes) {
    return readable_fact("limit_bytes", std::to_string(bytes));
  };
  return std::string(what) + " " + text(*here.bytes) + " instead of " +
         (there.bytes ? text(*there.bytes) : "no limit");
}

}  // namespace

Seen fewer_cpus(const Side& base, const Side& next) { return fewer(base, next, false); }

Seen lower_quota(const Side& base, const Side& next) { return fewer(base, next, true); }

Seen lower_quota_of_work(const Side& base, const Side& next) {
  return next.runs.front()->device == Device::cpu ? lower_quota(base, next) : std::nullopt;
}

Seen small_shared_memory(const Side& base, const Side& next) {
  return if_small("/dev/shm:", base, next, &Limits::shared_memory_bytes, small_shared_memory_bytes);
}

Seen small_locked_memory(const Side& base, const Side& next) {
  return if_small("locked memory, at most:", base, next, &Limits::locked_memory_bytes,
                  small_locked_memory_bytes);
}

}  // namespace nearmetal
