// The fields of what a survey found, and what must hold of it.
#pragma once

#include "reports/document/types.h"
#include "reports/json/archive.h"

namespace nearmetal {

/// Throws InvalidReport where a unit is on a machine, or a GPU, that the report does not have.
void require_consistent_survey(const Report& report);

namespace json {
void fields(Archive& field, Survey& survey);
}  // namespace json

}  // namespace nearmetal
