// The rules for a report as a whole where its results are imported, and where they are not.
#pragma once

#include "reports/document/types.h"
#include "reports/json/json_writer.h"

namespace nearmetal::json {

/// Results of others stand alone: with sources, without settings, environments and runs of this
/// program; and other reports hold none of them. Throws InvalidReport.
void require_kind_alone(const Report& report);

/// The same, as a part of the report's schema.
Json kind_alone_schema();

}  // namespace nearmetal::json
