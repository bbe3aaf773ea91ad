// Tables of runs: how throughput scales, the knees of a grid, and the stages of pipelines.
#pragma once

#include <string>
#include <vector>

#include "base/text_table.h"
#include "reports/compare/run_set.h"
#include "reports/document/metric.h"

namespace nearmetal {

/// Where batches vary, the knee of each curve; else no row.
TitledTable knee_table(const RunSet& set);

/// The bubble: measured, simulated with the times of these stages, and that of equal ones.
std::string bubble_text(const PipelineBubble& bubble);

/// Where the time of a step goes in each stage of the first replica; the memory of each schedule.
TextTable stage_table(const Run& run);

/// The tables that some sets have beside their figures: the knees of a grid; where an arm is a
/// pipeline all arms for each GPU or process, and the stages of each such arm.
std::vector<TitledTable> tables_beside_figures(const RunSet& set);

/// One row for each arm with runs that shares no GPU: ranks, runs, throughput, of inference
/// latency, speedup and efficiency with what they are against, or why there is nothing.
TextTable scaling_table(const RunSet& set);

/// What must be known beside the tables: that ranks on CPUs divide them; a line for each arm that
/// cannot run, and one for the arms that a sweep did not reach.
std::vector<std::string> arm_remarks(const RunSet& set);

/// The metrics that tables show of runs: metrics_of() their units, and latency where one has it.
std::vector<const Metric*> shown_metrics(const SomeRuns& runs);

/// Whether it has a speedup to show.
bool shows_speedup(const RunSet& set);

}  // namespace nearmetal
