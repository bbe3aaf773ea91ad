#include <algorithm>
#include <iterator>
#include <set>
#include <vector>

#include "reports/attribution/known_causes.h"
#include "reports/text/text.h"
#include "reports/text/warning_text.h"

namespace nearmetal {
namespace {

using Side = ExplainedSide;

constexpr double steal_may_grow_by = 0.05;   // of the CPUs' time
constexpr double pinned_is_faster_by = 1.3;  // than pageable memory, at least

template <class T>
std::optional<double> least_of_gpus(const Side& side, Maybe<T> Gpu::*fact) {
  std::optional<double> least;
  for (const Environment* environment : side.environments) {
    for (const Gpu& gpu : environment->gpus) {
      if (!(gpu.*fact)) continue;
      const auto number = static_cast<double>(*(gpu.*fact));
      least = std::min(least.value_or(number), number);
    }
  }
  return least;
}

template <class Visit>
void each_rank(const Side& side, const Visit& visit) {
  for (const Run* run : side.runs) {
    for (const Rank& rank : run->ranks) visit(rank);
  }
}

// The largest mean of a monitored quantity.
double most_monitored(const Side& side, const std::string& name) {
  double largest = 0;
  each_rank(side, [&](const Rank& rank) {
    largest = std::max(largest, monitored(rank, name).value.value_or(0));
  });
  return largest;
}

Seen seen_of_clocks(const Side& side) {
  Seen found;
  each_rank(side, [&](const Rank& rank) {
    if (!rank.monitoring) return;
    for (const MonitorReason& reason : rank.monitoring->reasons) {
      if (reason.code.starts_with("clocks_")) found = text_of(reason);
    }
  });
  return found;
}

bool any_peer_lacks(const Side& side, Maybe<bool> GpuPeer::*fact) {
  for (const Environment* environment : side.environments) {
    for (const Gpu& gpu : environment->gpus) {
      for (const GpuPeer& peer : gpu.peers) {
        if ((peer.*fact).value == false) return true;
      }
    }
  }
  return false;
}

std::set<std::string> texts_of(const Side& side, const TextFact& fact) {
  std::set<std::string> texts;
  for (const Environment* environment : side.environments) {
    if (const Seen text = fact(*environment)) texts.insert(*text);
  }
  return texts;
}

std::string list_of(const std::set<std::string>& texts) {
  return joined({texts.begin(), texts.end()});
}

// A difference where both are known.
Seen if_other(const char* what, const std::set<std::string>& base,
              const std::set<std::string>& next) {
  if (base.empty() || next.empty() || base == next) return std::nullopt;
  return std::string(what) + " " + list_of(next) + " instead of " + list_of(base);
}

template <class Holds>
bool any_rank(const Side& side, const Holds& holds) {
  bool any = false;
  each_rank(side, [&](const Rank& rank) { any = any || holds(rank); });
  return any;
}

bool is_unbound(const Rank& rank) { return !rank.binding || !rank.binding->numa_node; }
bool takes_pageable(const Rank& rank) { return rank.probes && rank.probes->needs.input_pageable; }

bool copies_alike(const Rank& rank) {
  if (!rank.probes) return false;
  double pinned = 0, pageable = 0;
  for (const ProbeTime& probe : rank.probes->probes) {
    if (probe.name == input_probe) pinned = probe.median_seconds.value.value_or(0);
    if (probe.name == pageable_probe) pageable = probe.median_seconds.value.value_or(0);
  }
  return pinned > 0 && pageable > 0 && pageable < pinned_is_faster_by * pinned;
}

template <class Holds>
bool any_machine(const Side& side, const Holds& holds) {
  return std::ranges::any_of(side.environments, [&](const Environment* environment) {
    return holds(environment->virtualisation);
  });
}

bool is_vm(const Virtualisation& found) { return found.machine.value == MachineKind::vm; }
// QEMU names itself in CPUID where it emulates the CPU; by KVM the signature is that of KVM.
bool emulates_cpu(const Virtualisation& found) { return found.hypervisor.value == "qemu"; }

}  // namespace

Seen if_less(const std::string& what, std::optional<double> base, std::optional<double> next,
             double scale) {
  if (!base || !next || *next >= *base) return std::nullopt;
  return what + " " + significant(scale * *next, 3) + " instead of " +
         significant(scale * *base, 3);
}

Seen if_new(bool on_base, bool on_new, const std::string& what) {
  if (on_base || !on_new) return std::nullopt;
  return what;
}

Look less_of_gpus(const char* what, Maybe<int64_t> Gpu::*fact, double scale) {
  return [=](const Side& base, const Side& next) {
    return if_less(what, least_of_gpus(base, fact), least_of_gpus(next, fact), scale);
  };
}

Look less_of_gpus(const char* what, Maybe<double> Gpu::*fact) {
  return [=](const Side& base, const Side& next) {
    return if_less(what, least_of_gpus(base, fact), least_of_gpus(next, fact));
  };
}

Look peers_lack(const char* what, Maybe<bool> GpuPeer::*fact) {
  return [=](const Side& base, const Side& next) {
    return if_new(any_peer_lacks(base, fact), any_peer_lacks(next, fact), what);
  };
}

Look other_text(const char* what, const TextFact& fact) {
  return [=](const Side& base, const Side& next) {
    return if_other(what, texts_of(base, fact), texts_of(next, fact));
  };
}

Seen lowered_clocks(const Side& base, const Side& next) {
  return seen_of_clocks(base) ? std::nullopt : seen_of_clocks(next);
}

Seen stolen_time(const Side& base, const Side& next) {
  const double there = most_monitored(base, "cpu_steal_share");
  const double here = most_monitored(next, "cpu_steal_share");
  if (here - there < steal_may_grow_by) return std::nullopt;
  return "the hypervisor gave " + significant(100 * here, 3) + " % of the CPUs' time to others";
}

Seen other_processes(const Side& base, const Side& next) {
  const double there = most_monitored(base, busy_with_others_series);
  const double here = most_monitored(next, busy_with_others_series);
  if (here - there < others_may_use) return std::nullopt;
  return "other processes kept " + significant(here, 2) + " CPUs busy, " + significant(there, 2) +
         " on the other side";
}

Seen transport_variables(const Side& base, const Side& next) {
  const auto variables_of = [](const Side& side) {
    std::set<std::string> set;
    for (const Environment* environment : side.environments) {
      for (const char* name : {"NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE",
                               "NCCL_IB_DISABLE", "NCCL_NET", "NCCL_NVLS_ENABLE", "NCCL_ALGO"}) {
        const auto found = environment->variables.find(name);
        if (found != environment->variables.end()) set.insert(found->first + "=" + found->second);
      }
    }
    return set;
  };
  const std::set<std::string> there = variables_of(base), here = variables_of(next);
  std::set<std::string> added;
  std::set_difference(here.begin(), here.end(), there.begin(), there.end(),
                      std::inserter(added, added.end()));
  if (added.empty()) return std::nullopt;
  return list_of(added);
}

Seen not_bound(const Side& base, const Side& next) {
  return if_new(any_rank(base, is_unbound), any_rank(next, is_unbound),
                "not bound to the CPUs and memory of a NUMA node");
}

Seen pageable_input(const Side& base, const Side& next) {
  return if_new(
      any_rank(base, takes_pageable), any_rank(next, takes_pageable),
      std::string(words_of(next.runs.front()->sample).plural) + " come from pageable memory");
}

Seen copies_as_if_pageable(const Side& base, const Side& next) {
  return if_new(any_rank(base, copies_alike), any_rank(next, copies_alike),
                "copies from pinned memory are hardly faster than from pageable memory");
}

Seen virtual_machine(const Side& base, const Side& next) {
  return if_new(any_machine(base, is_vm), any_machine(next, is_vm), "a virtual machine");
}

Seen emulated_cpu(const Side& base, const Side& next) {
  return if_new(any_machine(base, emulates_cpu), any_machine(next, emulates_cpu),
                "QEMU emulates the CPU in software");
}

}  // namespace nearmetal
