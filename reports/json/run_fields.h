// The fields of a run, in the order of the document, with what must hold of them.
#pragma once

#include "reports/json/communication_fields.h"
#include "reports/json/rank_fields.h"

namespace nearmetal::json {

template <class Archive>
void fields(Archive& field, In<Archive, Warning> warning) {
  field.type("warning", "Something that a reader of the numbers should know");
  field("code", warning.code, code, "Stable, for scripts");
  field("text", warning.text);
}

template <class Archive>
void fields(Archive& field, In<Archive, TimedWindow> window) {
  field.type("window", "What was timed");
  field("first_step", window.first_step, at_least(0));
  field("steps", window.steps, at_least(1));
  field(field.words().plural, window.samples, at_least(1), "Those of all ranks");
  field("seconds", window.seconds, above(0), "Time of the slowest rank");
}

template <class Archive>
void fields(Archive& field, In<Archive, WarmUp> warm_up) {
  field.type("warm_up", "How the start of the window was found");
  field("steps", warm_up.steps, at_least(0));
  field("steady", warm_up.steady, "false: the maximum was reached first");
  field("minimum_steps", warm_up.minimum_steps, at_least(1));
  field("maximum_steps", warm_up.maximum_steps, at_least(1));
  field("maximum_seconds", warm_up.maximum_seconds, above(0));
  field("judged_steps", warm_up.judged_steps, at_least(0),
        "The last ones, which the next three speak of");
  field("limit", warm_up.limit, above(0), "Limit for both of the following");
  field("drift", warm_up.drift, "Least-squares change over the judged steps / mean");
  field("halves_difference", warm_up.halves_difference,
        "Difference of the medians of the two halves / mean");
}

template <class Archive>
void fields(Archive& field, In<Archive, Verify> verify) {
  field.type("verify", "Training on a small fixed set, which a network that learns must memorise");
  field("passed", verify.passed);
  field(field.words().plural, verify.samples, at_least(1));
  field("steps", verify.steps, at_least(0), "Taken; the check stops when the bound is reached");
  field("maximum_steps", verify.maximum_steps, at_least(1));
  field("bound", verify.bound, above(0), "The loss must fall below");
  field("first_loss", verify.first_loss);
  field("last_loss", verify.last_loss);
}

template <class Archive>
void fields(Archive& field, In<Archive, Proof> proof) {
  field.type("proof", "That real training took place");
  field("loss_finite", proof.loss_finite);
  field("failed_step", proof.failed_step, at_least(0),
        "The first whose loss is not finite; it is not in the series");
  field("window_start_loss", proof.window_start_loss);
  field("window_end_loss", proof.window_end_loss);
  field("window_start_gradient_norm", proof.window_start_gradient_norm, at_least(0));
  field("window_end_gradient_norm", proof.window_end_gradient_norm, at_least(0));
  field("verify", proof.verify, "null: not asked for");
  field.added("replicas_identical", proof.replicas_identical,
              "Parameters and momentum of all ranks at the end; null: nothing is exchanged");
  field.added("sums_exact", proof.sums_exact,
              "Known values summed through the same buckets; null: nothing is exchanged");
}

template <class Archive>
void fields(Archive& field, In<Archive, Plan> plan) {
  field.type("plan", "The implementation chosen for one operation");
  field("key", plan.key, "Operation, shape, precision");
  field("implementation", plan.implementation);
  field("seconds", plan.seconds, at_least(0), "As timed when it was chosen");
  field("relative_error", plan.relative_error, at_least(0),
        "Error of its result against a reference");
}

template <class Archive>
void fields(Archive& field, In<Archive, ProfileEntry> entry) {
  field.type("profile_entry", "One kernel or primitive of the step, timed alone");
  field("name", entry.name, "Nodes of the model that it computes");
  field("phase", entry.phase);
  field("implementation", entry.implementation);
  field("seconds", entry.seconds, at_least(0));
  field("flops", entry.flops, at_least(0), "Operations of convolutions and matrix products");
  field("bytes", entry.bytes, at_least(0), "Each operand once");
}

template <class Archive>
void fields(Archive& field, In<Archive, StepProfile> profile) {
  field.type("profile", "Where the step goes: each kernel or primitive timed alone");
  field("step_seconds", profile.step_seconds, above(0), "Median of the timed window");
  field("sum_seconds", profile.sum_seconds, at_least(0), "Sum over the entries");
  field("copy_bytes_per_second", profile.copy_bytes_per_second, above(0),
        "Ceiling, measured in the same run");
  field("matrix_flops_per_second", profile.matrix_flops_per_second, above(0),
        "Ceiling, measured in the same run");
  field("roofline_seconds", profile.roofline_seconds, at_least(0),
        "Sum over the entries of max(flops / matrix ceiling, bytes / copy ceiling)");
  field("share_of_roofline", profile.share_of_roofline, at_least(0),
        "roofline_seconds / step_seconds");
  field("entries", profile.entries);
}

template <class Archive>
void fields(Archive& field, In<Archive, ConcurrentJob> job) {
  field.type("concurrent_job",
             "One of several jobs that ran at once, in the time in which all were in their "
             "windows; or, where the arm's share is serial, one after another, each in its own");
  field("ranks", job.ranks, at_least(1), "They follow those of the job before");
  field(field.words().throughput_key, job.throughput, above(0));
  field("start_seconds", job.start_seconds, at_least(0),
        "Start of its window, after that of the first");
  field.added("first_step", job.first_step, at_least(0),
              "First step of its window, counted from 0 with the warm-up; since 1.6");
  field.added("steps", job.steps, at_least(1), "Steps in its window; since 1.6");
}

template <class Archive>
void fields(Archive& field, In<Archive, Neighbour> neighbour) {
  field.type("neighbour",
             "A process that trains nothing and was there to disturb: what it did while the jobs "
             "were in their windows");
  field("load", neighbour.load, "copy, compute or pcie");
  field("runs_per_second", neighbour.runs_per_second, at_least(0));
  field("bytes_per_second", neighbour.bytes_per_second, at_least(0),
        "Read plus written, or over the link; 0: it moves none");
  field("flops_per_second", neighbour.flops_per_second, at_least(0));
}

template <class Archive>
void fields(Archive& field, In<Archive, Run> run) {
  field.type("run", "One launch of one job, or of several at once");
  field("started_at", run.started_at, time_stamp, "RFC 3339, UTC");
  field("status", run.status);
  field("failure", run.failure, "Why it is not complete");
  field("device", run.device, without(Device::automatic));
  field("device_name", run.device_name);
  field("device_reason", run.device_reason, "Why this device");
  field("world_size", run.world_size, at_least(1), "Number of ranks");
  field("parameters", run.parameters, at_least(1), "Trained values of the model");
  field.unit("sample", run.sample);
  field(field.words().throughput_key, run.throughput, above(0),
        "Those in the window / window.seconds; for ranks independent of each other the sum of "
        "theirs");
  field("window", run.window);
  field("warm_up", run.warm_up);
  field(field.words().flops_key, run.flops_per_sample, above(0),
        "Operations of a step (training, or forward alone), 2 for each multiply-add");
  field("flops_per_second", run.flops_per_second, above(0), "throughput x flops of a sample");
  field("peak_flops_per_second", run.peak_flops_per_second, above(0),
        "Sum over all ranks' devices, by the data sheet");
  field("share_of_peak", run.share_of_peak, above(0));
  field("proof", run.proof);
  field.added("communication", run.communication, "null: no gradients are exchanged");
  field.added("jobs", run.jobs, "Empty: one alone");
  field.added("neighbours", run.neighbours, "Empty: none was there to disturb");
  field.added("jain_fairness", run.jain_fairness, within(0, 1),
              "Fairness of the throughputs x of n jobs at once: (sum x)^2 / (n sum x^2)");
  field("warnings", run.warnings);
  field("profile", run.profile, "null: not asked for");
  field("plans", run.plans);
  field("ranks", run.ranks);
}

}  // namespace nearmetal::json
