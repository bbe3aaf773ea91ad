// The fields of step times and latency.
#pragma once

#include "reports/document/step_time.h"
#include "reports/json/json_archive.h"

namespace nearmetal::json {

template <class Archive>
void fields(Archive& field, In<Archive, StepTime> step) {
  field.type("step_time", "Times of the steps in the timed window; they say nothing of other runs");
  field("median_seconds", step.median_seconds, above(0));
  field("p95_seconds", step.p95_seconds, above(0));
  field("p99_seconds", step.p99_seconds, above(0));
  field("jitter_seconds", step.jitter_seconds, at_least(0), "1.4826 x median absolute deviation");
  field("drift", step.drift, "Least-squares change over the window / mean");
  field("autocorrelation", step.autocorrelation, within(-1, 1), "Between neighbouring steps");
  field("relative_standard_error", step.relative_standard_error, at_least(0),
        "Error of the mean, by batch means");
  field("effective_steps", step.effective_steps, above(0),
        "Number of independent steps that would give the same error");
}

template <class Archive>
void fields(Archive& field, In<Archive, Latency> latency) {
  field.type("latency", "Times of steps taken one at a time after the window, by the host's clock");
  field("steps", latency.steps, at_least(1));
  field("median_seconds", latency.median_seconds, above(0));
  field("p95_seconds", latency.p95_seconds, above(0));
  field("p99_seconds", latency.p99_seconds, above(0));
}

}  // namespace nearmetal::json
