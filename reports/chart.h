// Charts of runs, as scripts for gnuplot that hold their data.
#pragma once

#include <string>
#include <vector>

#include "reports/run_set.h"

namespace nearmetal {

struct Chart {
  std::string caption;  // what is shown, with n and the interval
  std::string script;   // for gnuplot; draws an SVG to its standard output
};

/// Throughput of each arm: a bar from zero for the geometric mean, a whisker for the interval that
/// tables show, a point for each run. Emulated arms are hatched, predicted ones empty. Names from
/// reports stand in it as data, reduced to characters without meaning to gnuplot.
Chart throughput_chart(const RunSet& set);

}  // namespace nearmetal
