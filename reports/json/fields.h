// The fields of a report, each declared once: in the *_fields.cpp beside.
#pragma once

#include "reports/document/finding.h"
#include "reports/document/types.h"
#include "reports/json/archive.h"

namespace nearmetal::json {

void fields(Archive& field, Report& report);
void fields(Archive& field, RunConfig& config);
void fields(Archive& field, Executable& executable);
void fields(Archive& field, GridPoint& point);
void fields(Archive& field, ImportedSource& source);
void fields(Archive& field, ImportedRun& run);
void fields(Archive& field, Environment& environment);
void fields(Archive& field, Gpu& gpu);
void fields(Archive& field, RdmaDevice& device);
void fields(Archive& field, Run& run);
void fields(Archive& field, Tool& tool);
void fields(Archive& field, Warning& warning);
void fields(Archive& field, KernelChoice& choice);
void fields(Archive& field, Neighbour& neighbour);
void fields(Archive& field, Communication& communication);
void fields(Archive& field, PipelineFigures& pipeline);
void fields(Archive& field, RankStage& stage);
void fields(Archive& field, RdmaTraffic& traffic);
void fields(Archive& field, NicPath& path);
void fields(Archive& field, Finding& finding);

}  // namespace nearmetal::json
