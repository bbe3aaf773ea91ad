// The fields of a run and of its parts.
#pragma once

#include "reports/document/types.h"
#include "reports/json/archive.h"

namespace nearmetal::json {

void fields(Archive& field, Run& run);
void fields(Archive& field, Warning& warning);
void fields(Archive& field, KernelChoice& choice);

}  // namespace nearmetal::json
