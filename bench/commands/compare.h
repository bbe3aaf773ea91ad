// `nearmetal compare`: two sets of runs.
#pragma once

#include <string>
#include <vector>

#include "bench/cli/command.h"
#include "bench/commands/compare_request.h"

namespace nearmetal {

struct CompareForm {
  CompareRequest request;
  std::vector<std::string> both;  // one place of each side
  std::vector<std::string> bare;  // sides of their own names
  std::vector<std::string> vm;
  std::vector<std::string> container;
};

/// One of the forms fills the sides of `judging`.
void add_compare_options(Options& options, CompareForm& form);

}  // namespace nearmetal
