// What two sides of a comparison ran on, as far as it differs.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "reports/document/types.h"

namespace nearmetal {

struct EnvironmentDifference {
  std::string name;  // place in the environment, as in the report: "gpus/0/driver_version"
  std::string base;  // distinct values of the side's machines
  std::string other;

  bool operator==(const EnvironmentDifference&) const = default;
};

/// Every recorded fact of several machines in the order of the document, its distinct values
/// joined.
std::vector<std::pair<std::string, std::string>> joined_facts(const std::vector<Environment>& side);

/// Every recorded fact that differs, but serial numbers and bus addresses, in the order of the
/// document.
std::vector<EnvironmentDifference> environment_differences(const std::vector<Environment>& base,
                                                           const std::vector<Environment>& other);

/// Where what was found, or what --environment said, contradicts that the base is bare metal and
/// the other side a VM, or where nothing confirms it.
std::vector<Warning> doubts_of_claim(const std::vector<Environment>& bare,
                                     const std::vector<Environment>& vm);

}  // namespace nearmetal
