// Runs as tf_cnn_benchmarks prints them.
#pragma once

#include <ostream>

#include "reports/compare/run_set.h"

namespace nearmetal {

/// Prints each run's header and its steps, where they are kept, and where it is complete
/// "total images/sec:". A step's images/s are those of all ranks, by the slowest of them, since the
/// warm-up: mean, standard error as if steps were independent, and 1.4826 x the median absolute
/// deviation of single steps. Its loss is the mean of the ranks', without weight decay. Throws
/// NotComparable for runs of several jobs at once.
void print_tf_cnn_benchmarks(std::ostream& out, const RunSet& set);

}  // namespace nearmetal
