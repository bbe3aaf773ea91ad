// How the machines of two sides differ, by facts and monitors, and whether they are what is
// claimed.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reports/compare/run_set.h"
#include "reports/document/types.h"

namespace nearmetal {

struct EnvironmentDifference {
  std::string name;  // place in the environment, as in the report: "gpus/0/driver_version"
  std::string base;  // distinct values of the side's machines
  std::string other;

  bool operator==(const EnvironmentDifference&) const = default;
};

/// Every recorded fact of several machines in the document's order, its distinct values joined.
std::vector<std::pair<std::string, std::string>> joined_facts(const std::vector<Environment>& side);

/// Every recorded fact that differs, but serial numbers and bus addresses, in the document's order.
std::vector<EnvironmentDifference> environment_differences(const std::vector<Environment>& base,
                                                           const std::vector<Environment>& other);

/// What all machines of a side show that they are: "vm, vgpu".
std::string kinds_text(const RunSet& set);

/// Whether a machine of these runs is a VM, by what was found there.
bool shows_hypervisor(const RunSet& set);

/// The doubts where what was found, or what --environment said, contradicts that the base is bare
/// metal and the other side a VM, or by this form a container, or where nothing confirms it; or, of
/// imported results, that their machines are as they were published.
std::vector<Warning> doubts_of_claim(const RunSet& bare, const RunSet& next, ComparisonForm form);

/// What these look at, of one run: series and means.
std::vector<std::pair<std::string, double>> monitored_means(const Run& run);

/// Figures by which the sides differ more than the runs within them do, each in words: "CPU clock
/// 2.60 GHz instead of 3.50 GHz (-25.7 %)".
struct MonitoredDifferences {
  std::vector<std::string> causes;  // that slow the side which is slower
  std::vector<std::string> others;
};

/// Of complete runs. What a run lacks is left out, and the clock of CPUs beside a GPU, which wait.
MonitoredDifferences monitored_differences(std::span<const Run* const> base,
                                           std::span<const Run* const> next, bool next_is_slower);

}  // namespace nearmetal
