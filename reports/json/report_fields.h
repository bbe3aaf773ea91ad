// A report as a field of another document. Compiled once, in json.cpp, as it is the largest of all.
#pragma once

#include "reports/json/json_archive.h"
#include "reports/json/json_reader.h"

namespace nearmetal::json {

void fields(Writer& field, const Report& report);
void fields(Reader& field, Report& report);

}  // namespace nearmetal::json
