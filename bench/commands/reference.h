// `nearmetal reference`, and references as a side of commands that judge runs.
#pragma once

#include <optional>
#include <string>

#include "bench/cli/command_line.h"
#include "reports/compare/compare.h"
#include "reports/compare/reference.h"

namespace nearmetal {

/// A reference as the other side, by its name or whichever fits.
struct ReferenceChoice {
  bool asked = false;
  std::optional<std::string> name;
  std::string folder = "references";
};

/// --reference and --references.
void add_reference_options(Options& options, ReferenceChoice& choice);
/// The one that is asked for, of the same work as each arm. Where an arm of `next` has runs of
/// several machines, each becomes an arm.
Reference chosen_reference(const ReferenceChoice& choice, RunSet& next,
                           const CompareOptions& options);
/// Of a comparison with it: its own margin is how machines differ.
CompareOptions with_reference(CompareOptions options, const Reference& reference);

}  // namespace nearmetal
