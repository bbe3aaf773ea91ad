// The fields of every struct of a report, in the order of the document, with what must hold of
// them.
#pragma once

#include "reports/json/communication_fields.h"
#include "reports/json/config_fields.h"
#include "reports/json/environment_fields.h"
#include "reports/json/forms.h"
#include "reports/json/json_archive.h"
#include "reports/json/neighbour_fields.h"
#include "reports/json/probe_fields.h"

namespace nearmetal::json {

template <class Archive>
void fields(Archive& field, In<Archive, Warning> warning) {
  field("code", warning.code, code);
  field("text", warning.text);
}

template <class Archive>
void fields(Archive& field, In<Archive, Tool> tool) {
  field("version", tool.version);
  field("git_commit", tool.git_commit, commit);
  field("dirty", tool.dirty);
  field("build_type", tool.build_type);
  field("compiler", tool.compiler);
}

template <class Archive>
void fields(Archive& field, In<Archive, Invocation> invocation) {
  field("argv", invocation.argv);
  field("started_at", invocation.started_at, time_stamp);
  field.settings("config", invocation.config, invocation.origins);
  field("config_sha256", invocation.config_sha256, hash);
}

template <class Archive>
void fields(Archive& field, In<Archive, SetUp> set_up) {
  field("clock", set_up.clock);
  field("start_seconds", set_up.start_seconds, at_least(0));
  field("backend_seconds", set_up.backend_seconds, at_least(0));
  field("prepare_seconds", set_up.prepare_seconds, at_least(0));
  field("first_step_seconds", set_up.first_step_seconds, at_least(0));
  field("total_seconds", set_up.total_seconds, at_least(0));
}

template <class Archive>
void fields(Archive& field, In<Archive, StepTime> step) {
  field("median_seconds", step.median_seconds, above(0));
  field("p95_seconds", step.p95_seconds, above(0));
  field("p99_seconds", step.p99_seconds, above(0));
  field("jitter_seconds", step.jitter_seconds, at_least(0));
  field("drift", step.drift);
  field("autocorrelation", step.autocorrelation, within(-1, 1));
  field("relative_standard_error", step.relative_standard_error, at_least(0));
  field("effective_steps", step.effective_steps, above(0));
}

template <class Archive>
void fields(Archive& field, In<Archive, MonitoredSeries> series) {
  field("name", series.name);
  field("minimum", series.minimum);
  field("mean", series.mean);
  field("maximum", series.maximum);
  field("values", series.values);
}

template <class Archive>
void fields(Archive& field, In<Archive, Monitoring> monitoring) {
  field("interval_seconds", monitoring.interval_seconds, above(0));
  field("samples", monitoring.samples, at_least(0));
  field("verdict", monitoring.verdict);
  field("seen", monitoring.seen);
  field("joules", monitoring.joules, at_least(0));
  field(field.words().per_joule_key, monitoring.samples_per_joule, at_least(0));
  field("not_monitored", monitoring.not_monitored);
  field("series", monitoring.series);
}

template <class Archive>
void fields(Archive& field, In<Archive, Binding> binding) {
  field("cpus", binding.cpus);
  field("numa_node", binding.numa_node, at_least(0));
  field("memory_node", binding.memory_node, at_least(0));
}

template <class Archive>
void fields(Archive& field, In<Archive, Rank> rank) {
  field("rank", rank.rank, at_least(0));
  field("environment", rank.environment, at_least(0));
  field("gpu", rank.gpu, at_least(0));
  field.added("binding", rank.binding);
  field("set_up", rank.set_up);
  field("skipped_updates", rank.skipped_updates, at_least(0));
  field("step_time", rank.step_time);
  field("host_window_seconds", rank.host_window_seconds, at_least(0));
  field("device_bytes", rank.device_bytes, at_least(0));
  field("plans_sha256", rank.plans_sha256, hash);
  field.added("window_start_unix_seconds", rank.window_start_unix_seconds, at_least(0));
  field.added("monitoring", rank.monitoring);
  field.added("exposed_communication_seconds", rank.exposed_communication_seconds, at_least(0));
  field.added("probes", rank.probes);
  field("step_seconds", rank.step_seconds, above(0));
  field("loss", rank.loss);
}

template <class Archive>
void fields(Archive& field, In<Archive, TimedWindow> window) {
  field("first_step", window.first_step, at_least(0));
  field("steps", window.steps, at_least(1));
  field(field.words().plural, window.samples, at_least(1));
  field("seconds", window.seconds, above(0));
}

template <class Archive>
void fields(Archive& field, In<Archive, WarmUp> warm_up) {
  field("steps", warm_up.steps, at_least(0));
  field("steady", warm_up.steady);
  field("minimum_steps", warm_up.minimum_steps, at_least(1));
  field("maximum_steps", warm_up.maximum_steps, at_least(1));
  field("maximum_seconds", warm_up.maximum_seconds, above(0));
  field("judged_steps", warm_up.judged_steps, at_least(0));
  field("limit", warm_up.limit, above(0));
  field("drift", warm_up.drift);
  field("halves_difference", warm_up.halves_difference);
}

template <class Archive>
void fields(Archive& field, In<Archive, Verify> verify) {
  field("passed", verify.passed);
  field(field.words().plural, verify.samples, at_least(1));
  field("steps", verify.steps, at_least(0));
  field("maximum_steps", verify.maximum_steps, at_least(1));
  field("bound", verify.bound, above(0));
  field("first_loss", verify.first_loss);
  field("last_loss", verify.last_loss);
}

template <class Archive>
void fields(Archive& field, In<Archive, Proof> proof) {
  field("loss_finite", proof.loss_finite);
  field("failed_step", proof.failed_step, at_least(0));
  field("window_start_loss", proof.window_start_loss);
  field("window_end_loss", proof.window_end_loss);
  field("window_start_gradient_norm", proof.window_start_gradient_norm, at_least(0));
  field("window_end_gradient_norm", proof.window_end_gradient_norm, at_least(0));
  field("verify", proof.verify);
  field.added("replicas_identical", proof.replicas_identical);
  field.added("sums_exact", proof.sums_exact);
}

template <class Archive>
void fields(Archive& field, In<Archive, Plan> plan) {
  field("key", plan.key);
  field("implementation", plan.implementation);
  field("seconds", plan.seconds, at_least(0));
  field("relative_error", plan.relative_error, at_least(0));
}

template <class Archive>
void fields(Archive& field, In<Archive, ProfileEntry> entry) {
  field("name", entry.name);
  field("phase", entry.phase, phase_kind);
  field("implementation", entry.implementation);
  field("seconds", entry.seconds, at_least(0));
  field("flops", entry.flops, at_least(0));
  field("bytes", entry.bytes, at_least(0));
}

template <class Archive>
void fields(Archive& field, In<Archive, StepProfile> profile) {
  field("step_seconds", profile.step_seconds, above(0));
  field("sum_seconds", profile.sum_seconds, at_least(0));
  field("copy_bytes_per_second", profile.copy_bytes_per_second, above(0));
  field("matrix_flops_per_second", profile.matrix_flops_per_second, above(0));
  field("roofline_seconds", profile.roofline_seconds, at_least(0));
  field("share_of_roofline", profile.share_of_roofline, at_least(0));
  field("entries", profile.entries);
}

template <class Archive>
void fields(Archive& field, In<Archive, ConcurrentJob> job) {
  field("ranks", job.ranks, at_least(1));
  field(field.words().throughput_key, job.throughput, above(0));
  field("start_seconds", job.start_seconds, at_least(0));
  field.added("first_step", job.first_step, at_least(0));
  field.added("steps", job.steps, at_least(1));
}

template <class Archive>
void fields(Archive& field, In<Archive, Run> run) {
  field("started_at", run.started_at, time_stamp);
  field("status", run.status);
  field("failure", run.failure);
  field("device", run.device, without(Device::automatic));
  field("device_name", run.device_name);
  field("device_reason", run.device_reason);
  field("world_size", run.world_size, at_least(1));
  field("parameters", run.parameters, at_least(1));
  field.unit("sample", run.sample);
  field(field.words().throughput_key, run.throughput, above(0));
  field("window", run.window);
  field("warm_up", run.warm_up);
  field(field.words().flops_key, run.flops_per_sample, above(0));
  field("flops_per_second", run.flops_per_second, above(0));
  field("peak_flops_per_second", run.peak_flops_per_second, above(0));
  field("share_of_peak", run.share_of_peak, above(0));
  field("proof", run.proof);
  field.added("communication", run.communication);
  field.added("jobs", run.jobs);
  field.added("neighbours", run.neighbours);
  field.added("jain_fairness", run.jain_fairness, within(0, 1));
  field("warnings", run.warnings);
  field("profile", run.profile);
  field("plans", run.plans);
  field("ranks", run.ranks);
}

template <class Archive>
void fields(Archive& field, In<Archive, ArmShare> share) {
  field("way", share.way);
  field("jobs", share.jobs, at_least(1));
  field("threads_percent", share.threads_percent, within(1, 100));
  field("memory_gib", share.memory_gib, at_least(0));
  field.added("profiles", share.profiles);
  field.added("neighbours", share.neighbours);
}

template <class Archive>
void fields(Archive& field, In<Archive, Arm> arm) {
  field("name", arm.name);
  field("kind", arm.kind);
  field.added("config", arm.config);
  field.added("scaling", arm.scaling);
  field.added("share", arm.share);
  field.added("unsupported", arm.unsupported);
  field("runs", arm.runs);
}

template <class Archive>
void fields(Archive& field, In<Archive, Report> report) {
  field("schema", report.schema, report_schema_name);
  field("schema_version", report.schema_version, readable_version);
  field("kind", report.kind);
  field("status", report.status);
  field("exit_code", report.exit_code, within(0, 255));
  field("tool", report.tool);
  field("invocation", report.invocation);
  field("environments", report.environments);
  field("arms", report.arms);
}

}  // namespace nearmetal::json
