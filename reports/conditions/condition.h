// Conditions of machines and runs that cost speed or trust, each told once: doctor finds those of
// the machine that it runs on, attribution those of the slower one of two sides alone.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reports/document/types.h"
#include "reports/document/warning.h"

namespace nearmetal {

/// clock: of the GPU's multiprocessors, or of the CPU that computes; compute: matrix products;
/// memory: of the device; cpu: time that the CPUs do not give to this process; launch: the path on
/// which kernels are queued; input: images on their way to the device; communication: gradients.
enum class Layer { clock, compute, memory, cpu, launch, input, communication };
constexpr auto names_of(Layer) {
  return std::array{"clock", "compute", "memory", "cpu", "launch", "input", "communication"};
}

/// One side of a comparison: complete runs of one arm, and the machines they ran on.
struct ExplainedSide {
  std::vector<const Run*> runs;
  std::vector<const Environment*> environments;
};

/// The evidence in words; none where nothing was seen.
using Seen = std::optional<std::string>;
/// The evidence that the new side shows and the base does not.
using Between = std::function<Seen(const ExplainedSide& base, const ExplainedSide& next)>;

/// The evidence of a condition on one machine.
struct Sign {
  std::string seen;
  std::optional<Urgency> severity{};           // where it is not that of the condition
  std::optional<std::string> why{};            // the same
  std::optional<std::string> fix{};            // the same, of the advice
  std::map<std::string, std::string> names{};  // of words in the advice: DEVICE is mlx5_0
  size_t gpu = 0;                              // whose it is
};
using Signs = std::vector<Sign>;

/// One that lists the names, where there are any.
Signs signs_naming(const std::vector<std::string>& names, const std::string& before,
                   const std::string& after = "");

/// The remedy, by kind of machine. Where the first text stands alone, it is for all kinds.
struct Advice {
  std::string kvm{};  // and of hypervisors other than ESXi
  std::string esxi{};
  std::string bare_metal{};
  std::string container{};  // for whoever starts it; empty: the same as outside of one
};
Advice on_host(const std::string& text);

/// The layers that a condition can slow.
struct Slowed {
  std::vector<Layer> layers{};
  std::vector<Layer> of_cpu_work{};  // more, where the CPU computes
  bool over_network = false;         // where ranks exchange over a network alone
};
inline const Slowed nothing{}, exchange{{Layer::communication}},
    network{{Layer::communication}, {}, true};

using Here = std::function<Signs(const Environment&)>;

/// Stable, for scripts.
struct Codes {
  std::string doctor;
  std::optional<std::string> attribution{};  // else the same
};

/// A row of the tables.
struct Condition {
  Codes codes;
  Slowed slowed;  // nothing: attribution does not tell it
  Urgency severity = Urgency::warning;
  Here here;        // none: doctor has a check of its own, or does not tell it
  Between between;  // none: what is seen `here` on the new side alone
  std::string why;  // it matters, for doctor
  Advice advice;
};
using Conditions = std::vector<Condition>;

/// A row for doctor alone.
Condition of_machine(const char* code, const Here& here, const char* why, const Advice& advice,
                     Urgency severity = Urgency::warning);
/// A row for attribution alone.
Condition of_sides(const char* code, const Slowed& slowed, const Between& between,
                   const Advice& advice);
/// A row for both.
Condition of_both(const Codes& codes, const Slowed& slowed, const Here& here,
                  const Between& between, const char* why, const Advice& advice,
                  Urgency severity = Urgency::warning);

/// Throws std::logic_error where there is none of that code.
const Condition& condition_of(const Conditions& conditions, const std::string& code);

/// The advice for the kind of machine; for all kinds, where it is not known.
std::string advice_for(const Environment& machine, const Advice& advice);

/// Where NVML, or a GPU by it, ends with this status (NvmlStatus).
Advice advice_on_nvml(int status);

/// Empty where the condition has no `here`.
Signs signs_of(const Condition& condition, const Environment& machine);

Finding finding_of(const Condition& condition, const Environment& machine, const Sign& sign);
std::vector<Finding> findings_of(const Conditions& conditions, const Environment& machine);

/// The finding of attribution: the evidence as `seen`, and the advice as `fix`.
std::optional<Finding> found_between(const Condition& condition, const ExplainedSide& base,
                                     const ExplainedSide& next);

/// A fact of a machine; none where it is not known.
using Number = std::function<std::optional<double>(const Environment&)>;
/// The least that a GPU of the machine has. `Owner`: Gpu, or what it is, too.
template <class T, class Owner>
Number of_gpus(Maybe<T> Owner::*fact) {
  return [fact](const Environment& machine) {
    std::optional<double> least;
    for (const Gpu& gpu : machine.gpus) {
      if (!(gpu.*fact)) continue;
      const auto number = static_cast<double>(*(gpu.*fact));
      least = std::min(least.value_or(number), number);
    }
    return least;
  };
}

/// "1.50", of all digits that matter.
std::string three_digits(double number);

/// Both sides know the fact, the new one's least is less than the base's, and below `small`.
Between less(const std::string& what, const Number& number,
             std::string (*text)(double) = three_digits, std::optional<double> small = {});
/// Both know the fact, and have other values.
Between other(const std::string& what, Seen (*fact)(const Environment&));
/// `what`, where a rank, or a machine, of the new side is so, and none of the base.
Between of_ranks(const std::string& what, bool (*is_so)(const Rank&));
Between of_machines(const std::string& what, bool (*is_so)(const Environment&));

inline bool is_vm(const Environment& machine) {
  return machine.virtualisation.machine.value == MachineKind::vm;
}

inline bool is_bare_metal(const Environment& machine) {
  return machine.virtualisation.machine.value == MachineKind::bare_metal;
}

/// Both are known, and the first is less.
template <class T>
bool is_below(const Maybe<T>& value, const Maybe<T>& limit) {
  return value && limit && *value < *limit;
}

}  // namespace nearmetal
