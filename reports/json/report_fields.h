// The fields of a report, each declared once: here, and for its parts in the *_fields beside.
#pragma once

#include "reports/document/types.h"
#include "reports/json/archive.h"
#include "reports/json/environment_fields.h"
#include "reports/json/run_fields.h"

namespace nearmetal::json {

void fields(Archive& field, Report& report);
void fields(Archive& field, RunConfig& config);
void fields(Archive& field, Executable& executable);
void fields(Archive& field, GridPoint& point);

}  // namespace nearmetal::json
