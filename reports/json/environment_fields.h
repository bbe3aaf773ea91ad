// The fields of what is found on a host.
#pragma once

#include "reports/document/environment.h"
#include "reports/json/archive.h"

namespace nearmetal::json {

void fields(Archive& field, Environment& environment);
void fields(Archive& field, Gpu& gpu);
void fields(Archive& field, RdmaDevice& device);

}  // namespace nearmetal::json
