// Finds hosts and GPUs for the jobs of a short form.
#pragma once

#include <vector>

#include "comm/layout/layout.h"

namespace nearmetal {

/// The jobs of `layout.shape`, as if they had been listed; placement.h says which hosts and GPUs
/// they take. Throws std::invalid_argument, beginning with Layout::source, where there are too few.
std::vector<Job> shape_jobs(const Layout& layout, const std::vector<Host>& hosts);

}  // namespace nearmetal
