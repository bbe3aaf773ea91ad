// The fields of a report, each declared once: here, and those of a run in run_fields.h; and of what
// doctor finds.
#pragma once

#include "reports/document/types.h"
#include "reports/document/warning.h"
#include "reports/json/archive.h"
#include "reports/json/run_fields.h"

namespace nearmetal::json {

void fields(Archive& field, Report& report);
void fields(Archive& field, RunConfig& config);
void fields(Archive& field, Executable& executable);
void fields(Archive& field, GridPoint& point);
void fields(Archive& field, Environment& environment);
void fields(Archive& field, Gpu& gpu);
void fields(Archive& field, RdmaDevice& device);
void fields(Archive& field, Finding& finding);
void fields(Archive& field, Tool& tool);
void fields(Archive& field, Neighbour& neighbour);
void fields(Archive& field, DigestGroup& group);

}  // namespace nearmetal::json
