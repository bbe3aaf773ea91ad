// The fields of what a neighbour did, in the report and in a job's words to its sweep.
#pragma once

#include "reports/json/json_archive.h"

namespace nearmetal::json {

template <class Archive>
void fields(Archive& field, In<Archive, Neighbour> neighbour) {
  field("load", neighbour.load);
  field("runs_per_second", neighbour.runs_per_second, at_least(0));
  field("bytes_per_second", neighbour.bytes_per_second, at_least(0));
  field("flops_per_second", neighbour.flops_per_second, at_least(0));
}

}  // namespace nearmetal::json
