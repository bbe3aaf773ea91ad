// The fields of a rank's probes, with what must hold of them.
#pragma once

#include "reports/document/rank_probes.h"
#include "reports/json/json_archive.h"

namespace nearmetal::json {

template <class Archive>
void fields(Archive& field, In<Archive, ProbeTime> probe) {
  field("name", probe.name);
  field("work", probe.work);
  field("bytes", probe.bytes, at_least(0));
  field("flops", probe.flops, at_least(0));
  field("runs", probe.runs, at_least(0));
  field("median_seconds", probe.median_seconds, above(0));
  field("mean_seconds", probe.mean_seconds, above(0));
  field("p99_seconds", probe.p99_seconds, above(0));
}

template <class Archive>
void fields(Archive& field, In<Archive, StepNeeds> needs) {
  field("kernels", needs.kernels, at_least(0));
  field("input_bytes", needs.input_bytes, at_least(0));
  field.added("input_pageable", needs.input_pageable);
  field("launch", needs.launch);
  field("memory_seconds", needs.memory_seconds, at_least(0));
  field("compute_seconds", needs.compute_seconds, at_least(0));
}

template <class Archive>
void fields(Archive& field, In<Archive, RankProbes> probes) {
  field("needs", probes.needs);
  field("probes", probes.probes);
}

}  // namespace nearmetal::json
