// The fields of what one rank measured, in the order of the document, with what must hold of them.
#pragma once

#include "reports/json/forms.h"

namespace nearmetal::json {

template <class Archive>
void fields(Archive& field, In<Archive, SetUp> set_up) {
  field.type("set_up", "From the start of the process to the end of the first training step");
  field("clock", set_up.clock, "Where the start comes from");
  field("start_seconds", set_up.start_seconds, at_least(0), "Until the program's own first line");
  field("backend_seconds", set_up.backend_seconds, at_least(0),
        "Loading the backend, finding the device");
  field("prepare_seconds", set_up.prepare_seconds, at_least(0),
        "Memory, plans and their tuning, initial parameters");
  field("first_step_seconds", set_up.first_step_seconds, at_least(0));
  field("total_seconds", set_up.total_seconds, at_least(0));
}

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
  field("effective_steps", step.effective_steps, above(0), "Independent steps worth the same");
}

template <class Archive>
void fields(Archive& field, In<Archive, MonitoredSeries> series) {
  field.type("monitored_series",
             "What one quantity did in the timed window, in the unit that its name ends with");
  field("name", series.name);
  field("minimum", series.minimum);
  field("mean", series.mean);
  field("maximum", series.maximum);
  field("values", series.values, "Neighbours averaged where there were many");
}

template <class Archive>
void fields(Archive& field, In<Archive, Monitoring> monitoring) {
  field.type("monitoring", "What was seen of a rank's GPU and CPUs while its window was timed");
  field("interval_seconds", monitoring.interval_seconds, above(0), "Between values of the series");
  field("samples", monitoring.samples, at_least(0));
  field("verdict", monitoring.verdict);
  field("seen", monitoring.seen, "What led to the verdict, and what else a reader should know");
  field("joules", monitoring.joules, at_least(0), "Energy that the GPU took in the window");
  field(field.words().per_joule_key, monitoring.samples_per_joule, at_least(0));
  field("not_monitored", monitoring.not_monitored, "Name to reason");
  field("series", monitoring.series);
}

template <class Archive>
void fields(Archive& field, In<Archive, Binding> binding) {
  field.type("binding", "Where the threads of a rank run and what it allocates lies");
  field("cpus", binding.cpus, "CPUs that it may use, such as 0-15,32-47");
  field("numa_node", binding.numa_node, at_least(0), "Node to whose CPUs it bound itself");
  field("memory_node", binding.memory_node, at_least(0), "Node whose memory it prefers");
}

template <class Archive>
void fields(Archive& field, In<Archive, ProbeTime> probe) {
  field.type("probe_time", "A small piece of work, timed right after the window");
  field("name", probe.name, "As in `nearmetal micro`, where it has it, too");
  field("work", probe.work, "What one run does");
  field("bytes", probe.bytes, at_least(0), "Moved by one run");
  field("flops", probe.flops, at_least(0), "Done by one run");
  field("runs", probe.runs, at_least(0), "Number of timed runs");
  field("median_seconds", probe.median_seconds, above(0));
  field("mean_seconds", probe.mean_seconds, above(0));
  field("p99_seconds", probe.p99_seconds, above(0));
}

template <class Archive>
void fields(Archive& field, In<Archive, StepNeeds> needs) {
  field.type("step_needs", "What one step asks of the rank's machine");
  field("kernels", needs.kernels, at_least(0), "Kernels or primitives");
  field("input_bytes", needs.input_bytes, at_least(0),
        "Copied from the host; 0: images stay on the device");
  field.added("input_pageable", needs.input_pageable,
              "Copied from memory that the GPU cannot read by itself; since 1.5");
  field("launch", needs.launch, "call: the CPU computes");
  field("memory_seconds", needs.memory_seconds, at_least(0),
        "Floors at the rates of this rank's probes, summed over the kernels that their bytes bind");
  field("compute_seconds", needs.compute_seconds, at_least(0),
        "The same for the kernels that their operations bind");
}

template <class Archive>
void fields(Archive& field, In<Archive, RankProbes> probes) {
  field.type("rank_probes", "What a difference between two runs can be explained by");
  field("needs", probes.needs);
  field("probes", probes.probes);
}

template <class Archive>
void fields(Archive& field, In<Archive, Rank> rank) {
  field.type("rank", "One process and its device");
  field("rank", rank.rank, at_least(0));
  field("environment", rank.environment, at_least(0), "Index into environments");
  field("gpu", rank.gpu, at_least(0), "Index into its gpus; null: on the CPU");
  field.added("binding", rank.binding, "null: the version does not bind");
  field("set_up", rank.set_up);
  field("skipped_updates", rank.skipped_updates, at_least(0),
        "Steps of the window without an update, as the gradient was not finite");
  field("step_time", rank.step_time);
  field("host_window_seconds", rank.host_window_seconds, at_least(0),
        "The window by the host's clock, a cross-check");
  field("device_bytes", rank.device_bytes, at_least(0), "Held by the training program");
  field("plans_sha256", rank.plans_sha256, hash, "Hash of keys and implementations of the plans");
  field.added("window_start_unix_seconds", rank.window_start_unix_seconds, at_least(0));
  field.added("monitoring", rank.monitoring, "null: not asked for, or the window did not open");
  field.added("exposed_communication_seconds", rank.exposed_communication_seconds, at_least(0),
              "Time in a step, the median over the window, in which gradients are on their way and "
              "there is nothing else to do");
  field.added("probes", rank.probes, "null: not asked for (--attribute)");
  field("step_seconds", rank.step_seconds, above(0), "Every step, warm-up included");
  field("loss", rank.loss, "Mean over the batch, for each of the same steps");
}

}  // namespace nearmetal::json
