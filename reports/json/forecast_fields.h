// The fields of what a report of kind predicted holds, and what must hold of it.
#pragma once

#include "reports/document/types.h"
#include "reports/json/archive.h"

namespace nearmetal {

/// Throws InvalidReport where forecasts contradict themselves.
void require_consistent_forecasts(const Report& report);

namespace json {
void fields(Archive& field, ForecastBasis& basis);
void fields(Archive& field, ForecastPoint& point);
}  // namespace json

}  // namespace nearmetal
