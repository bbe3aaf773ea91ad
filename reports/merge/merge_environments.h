// The hosts of several reports as one list.
#pragma once

#include <vector>

#include "reports/document/types.h"

namespace nearmetal {

/// Appends what `all` does not have of `found` and makes `ranks`, which index `found`, index `all`.
/// An environment is that of a host; GPUs are known by their UUID, and one without is another.
void merge_environments(const std::vector<Environment>& found, std::vector<Rank>& ranks,
                        std::vector<Environment>& all);

}  // namespace nearmetal
