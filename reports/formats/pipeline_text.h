// The stages of pipelines, and pipelines beside other arms, as tables.
#pragma once

#include <string>
#include <vector>

#include "reports/compare/run_set.h"
#include "reports/text/text_table.h"

namespace nearmetal {

/// "pipeline of 2 stages by 1f1b, 8 micro-batches", or with one micro-batch "model parallel over 2
/// stages".
std::string pipeline_text(const RunConfig& config);

/// The bubble: measured, simulated with the times of these stages, and that of equal ones.
std::string bubble_text(const PipelineBubble& bubble);

/// Where the time of a step goes in each stage of the first replica, and the memory of each
/// schedule.
TextTable stage_table(const Run& run);

/// The tables that some sets have beside their figures: the knees of a grid; where an arm is a
/// pipeline all arms for each GPU or process, and the stages of each such arm.
std::vector<TitledTable> tables_beside_figures(const RunSet& set);

}  // namespace nearmetal
