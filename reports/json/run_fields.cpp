// The fields of a run, in the order of the document, with what must hold of them.
#include "reports/json/run_fields.h"

#include "base/text.h"
#include "reports/document/steps.h"
#include "reports/document/warning.h"
#include "reports/json/report_fields.h"

namespace nearmetal::json {

void fields(Archive& field, Bucket& bucket) {
  field.type("bucket", "A part of the gradient that is summed over the ranks at once");
  field("bytes", bucket.bytes, at_least(1));
  field.added("type", bucket.type, "Type of the elements on their way; null: an earlier report");
  field("seconds", bucket.seconds, above(0),
        "Time of one sum on the slowest rank, with nothing else going on");
  field("bus_bandwidth_bytes_per_second", bucket.bus_bandwidth_bytes_per_second, at_least(0),
        "2 (ranks - 1) / ranks x bytes / seconds: what a link of a ring carries; where all_reduce "
        "is hierarchical or host only the rate of a ring that takes as long");
}

void fields(Archive& field, TriedBucket& tried) {
  field.type("tried_bucket", "The step with gradients sent in buckets of this size");
  field("bucket_mib", tried.bucket_mib, at_least(0));
  field("step_seconds", tried.step_seconds, above(0), "Median of a few steps, on the slowest rank");
}

void fields(Archive& field, TriedAllReduce& tried) {
  field.type("tried_all_reduce", "The step with gradients summed in this way");
  field("all_reduce", tried.all_reduce, without(AllReduceKind::automatic));
  field("step_seconds", tried.step_seconds, above(0),
        "Median of many steps, on the slowest rank; the mean of all turns");
}

void fields(Archive& field, SumChoice& sum) {
  field.type("sum_choice", "How NCCL sums so many bytes over the ranks");
  field("bytes", sum.bytes, at_least(1));
  field("algorithm", sum.algorithm, "ring, tree, nvls, ...");
  field("protocol", sum.protocol, "ll, ll128 or simple");
  field("channels", sum.channels, at_least(1));
  field.added("operation", sum.operation,
              "allreduce, or its parts inside a host: reduce, broadcast");
}

void fields(Archive& field, NcclChoices& choices) {
  field.type("nccl_choices", "Choices of NCCL, as reported to rank 0");
  field("sums", choices.sums);
  field("transports", choices.transports, "Ways to other ranks: P2P/CUMEM, ...");
  field("rings", choices.rings, "Ranks in their order, each order once: \"0 1 3 2\"");
}

void fields(Archive& field, Communication& communication) {
  field.type("communication", "The exchange of gradients between ranks");
  field("library", communication.library, "What summed, and its version");
  field.added("all_reduce", communication.all_reduce, without(AllReduceKind::automatic),
              "What summed; hierarchical: NCCL inside each host and MPI between them; host: copy "
              "engines through the memory of one host; null: an earlier report");
  field.added(
      "tried_all_reduces", communication.tried_all_reduces,
      "The ways that the run chose from; empty where all_reduce was given, or an earlier run "
      "of the sweep chose; since 1.13");
  field("bytes_per_step", communication.bytes_per_step, at_least(1), "Size of the gradient");
  field.added("bucket_mib", communication.bucket_mib, at_least(0),
              "Wanted size of each bucket; 0: all at once");
  field.added("tried", communication.tried, "Empty where bucket_mib was given");
  field("exposed_seconds_per_step", communication.exposed_seconds_per_step, at_least(0),
        "Largest of the ranks' medians over the window: time in which gradients are on their way "
        "and there is nothing else to do");
  field.added("best_bus_bandwidth_bytes_per_second",
              communication.best_bus_bandwidth_bytes_per_second, above(0),
              "Best of the buckets; where all_reduce is hierarchical or host not what a link "
              "carries");
  field.added("least_seconds_per_step", communication.least_seconds_per_step, above(0),
              "2 (ranks - 1) / ranks x bytes_per_step / best_bus_bandwidth_bytes_per_second");
  field("buckets_seconds", communication.buckets_seconds, above(0),
        "All buckets one after another with nothing else going on");
  field("buckets", communication.buckets);
  field.added("nccl", communication.nccl, "Choices of NCCL, from its log");
}

void fields(Archive& field, TaskMark& mark) {
  field.type("task_mark", "When a stage computed a pass of a micro-batch");
  field("pass", mark.task.pass);
  field("micro_batch", mark.task.micro_batch, at_least(0));
  field("begin_seconds", mark.begin_seconds, "Times by the rank's own clock");
  field("end_seconds", mark.end_seconds);
}

void fields(Archive& field, PipelineSeconds& seconds) {
  field.type("stage_seconds",
             "Where the time of a step goes in a stage: means over the window, by the device's "
             "clock; what is left of the span are launches");
  field("span", seconds.span, at_least(0),
        "From the first wait for a value until all stages are through, without exposed "
        "communication");
  field("forward", seconds.forward, at_least(0), "Computing, all micro-batches");
  field("backward", seconds.backward, at_least(0), "Computing, all micro-batches");
  field("waiting", seconds.waiting, at_least(0),
        "Waiting for what another stage had not yet computed or sent");
  field("sending", seconds.sending, at_least(0),
        "Held up by what was still on its way to another stage");
}

void fields(Archive& field, RankStage& stage) {
  field.type("rank_stage", "A rank as a stage of a pipeline");
  field("stage", stage.stage, at_least(0));
  field("replica", stage.replica, at_least(0), "Replica of the network to which the stage belongs");
  field("first_node", stage.first_node, "First node of the network that it computes");
  field("last_node", stage.last_node);
  field("parameters", stage.parameters, at_least(0));
  field("bytes_gpipe", stage.gpipe_bytes, at_least(0),
        "Memory that its kernels take on the device with schedule gpipe");
  field("bytes_1f1b", stage.one_forward_one_backward_bytes, at_least(0), "The same with 1f1b");
  field("seconds", stage.seconds);
  field("boundary_bytes", stage.boundary_bytes, at_least(0),
        "Bytes of a micro-batch to the next stage, and of its gradient back; 0: the last stage");
  field("boundary_seconds", stage.boundary_seconds, at_least(0),
        "Time for known values to pass the stage's boundaries, with nothing else running");
  field("boundary_exact", stage.boundary_exact,
        "Known values came through its boundaries as they were sent; null: not tested");
  field("marks", stage.marks, "Marks of the last step of the run");
}

void fields(Archive& field, PipelineBubble& bubble) {
  field.type("bubble", "The share of the stages' time in which they compute nothing");
  field("measured", bubble.measured, within(0, 1),
        "1 - sum of (forward + backward) / sum of spans, over the stages of the first replica");
  field("simulated", bubble.simulated, within(0, 1),
        "Bubble of the same schedule with the measured mean times of these stages, without "
        "transfers");
  field.added(
      "simulated_with_transfers", bubble.simulated_with_transfers, within(0, 1),
      "Bubble of the same schedule with the times of each pass of each micro-batch (its share in "
      "`marks`) and with transfers, one at a time in each direction, each as long as the lesser "
      "boundary_seconds of its two stages");
  field("ideal", bubble.ideal, within(0, 1),
        "(stages - 1) / (micro-batches + stages - 1): bubble of equal stages without transfers");
}

void fields(Archive& field, PipelineFigures& pipeline) {
  field.type("pipeline", "The stages of the network together");
  field("library", pipeline.library, "What moved values between stages, and its version");
  field("stages", pipeline.stages, at_least(1));
  field("replicas", pipeline.replicas, at_least(1), "Replicas of the network");
  field("bubble", pipeline.bubble);
}

void fields(Archive& field, Figure& figure) {
  field.type("figure", "A figure by which something is judged");
  field("value", figure.value);
  field("limit", figure.limit, at_least(0),
        "The largest value that is acceptable, whatever its sign");
  field("unit", figure.unit);
}

void fields(Archive& field, Warning& warning) {
  field.type("warning", "Something that a reader of the numbers should know");
  field("code", warning.code, code, "Stable, for scripts");
  std::string text = field.reads() ? "" : attributed_text(warning);
  field("text", text, "For people, after the job and the rank that gave it");
  field.optional("figure", warning.figure, "How bad it is; not there: it has no degrees");
  field.optional("job", warning.job, at_least(0),
                 "Index into jobs of the job that gave it; absent: all jobs, or the only one");
  field.optional("rank", warning.rank, at_least(0), "Rank in that job; absent: all ranks");
  field.optional("stage", warning.stage, at_least(0), "Stage of that rank in a pipeline");
  field.optional("host", warning.host, "Host of that rank");
  if (field.reads()) set_attributed_text(text, warning);
}

void fields(Archive& field, TimedWindow& window) {
  field.type("window", "What was timed");
  field("first_step", window.first_step, at_least(0));
  field("steps", window.steps, at_least(1));
  field(field.words().plural, window.samples, at_least(1), "Samples of all ranks");
  field("seconds", window.seconds, above(0), "Time of the slowest rank");
}

void fields(Archive& field, WarmUp& warm_up) {
  field.type("warm_up", "How the start of the window was found");
  field("steps", warm_up.steps, at_least(0));
  field("steady", warm_up.steady,
        "false: the maximum was reached first; where drift is null too few steps were judged");
  field("minimum_steps", warm_up.minimum_steps, at_least(1));
  field("maximum_steps", warm_up.maximum_steps, at_least(1));
  field("maximum_seconds", warm_up.maximum_seconds, above(0));
  field("judged_steps", warm_up.judged_steps, at_least(0),
        "Last steps, from which the next three follow");
  field("limit", warm_up.limit, above(0), "Limit for both of the following");
  field("drift", warm_up.drift, "Least-squares change over the judged steps / mean");
  field("halves_difference", warm_up.halves_difference,
        "Difference of the medians of the two halves / mean");
}

void fields(Archive& field, Verify& verify) {
  field.type("verify", "Training on a small fixed set, which a network that learns must memorise");
  field("passed", verify.passed);
  field(field.words().plural, verify.samples, at_least(1));
  field("steps", verify.steps, at_least(0), "Taken; the check stops when the bound is reached");
  field("maximum_steps", verify.maximum_steps, at_least(1));
  field("bound", verify.bound, above(0), "The loss must fall below");
  field("first_loss", verify.first_loss);
  field("last_loss", verify.last_loss);
}

void fields(Archive& field, Proof& proof) {
  field.type("proof", "Checks that real work was done");
  field("loss_finite", proof.loss_finite);
  field("failed_step", proof.failed_step, at_least(0),
        "The first whose loss is not finite; it is not in the series");
  field("window_start_loss", proof.window_start_loss);
  field("window_end_loss", proof.window_end_loss);
  field("window_start_gradient_norm", proof.window_start_gradient_norm, at_least(0));
  field("window_end_gradient_norm", proof.window_end_gradient_norm, at_least(0));
  field("verify", proof.verify, "null: not asked for");
  field.added("outputs_finite", proof.outputs_finite,
              "Whether the logits of the last step are finite and not all the same; null: not "
              "inference");
  field.added("replicas_identical", proof.replicas_identical,
              "Parameters and momentum of all ranks at the end; null: nothing is exchanged");
  field.added("sums_exact", proof.sums_exact,
              "Known values summed through the same buckets; null: nothing is exchanged");
}

void fields(Archive& field, KernelChoice& plan) {
  field.type("plan", "The implementation chosen for one operation");
  field("key", plan.key, "Operation, shape, precision");
  field("implementation", plan.implementation);
  field("seconds", plan.seconds, at_least(0), "As timed when it was chosen");
  field.once_known(
      "relative_error", plan.relative_error, at_least(0),
      "Euclidean, of its results against a reference; null: not checked, for the reason");
}

void fields(Archive& field, ProfileEntry& entry) {
  field.type("profile_entry", "One kernel or primitive of the step, timed alone");
  field("name", entry.name, "Nodes of the model that it computes");
  field("phase", entry.phase);
  field("implementation", entry.implementation);
  field("seconds", entry.seconds, at_least(0));
  field("flops", entry.flops, at_least(0), "Operations of convolutions and matrix products");
  field("bytes", entry.bytes, at_least(0), "Each operand once");
}

void fields(Archive& field, StepProfile& profile) {
  field.type("profile", "Where the step goes: each kernel or primitive timed alone");
  field("step_seconds", profile.step_seconds, above(0), "Median of the timed window");
  field("sum_seconds", profile.sum_seconds, at_least(0), "Sum over the entries");
  field("copy_bytes_per_second", profile.copy_bytes_per_second, above(0),
        "Ceiling, measured in the same run");
  field("matrix_flops_per_second", profile.matrix_flops_per_second, above(0),
        "Ceiling, measured in the same run");
  field.added(
      "cache_bytes", profile.cache_bytes, at_least(0),
      "Caches of the CPUs, in which operands may be found; 0: a GPU; null: not known, so that "
      "bytes set no floor; since 1.7");
  field("roofline_seconds", profile.roofline_seconds, at_least(0),
        "Sum over the entries of max(flops / matrix ceiling, bytes beyond 2 x cache_bytes / copy "
        "ceiling)");
  field("share_of_roofline", profile.share_of_roofline, at_least(0),
        "roofline_seconds / step_seconds");
  field("entries", profile.entries);
}

void fields(Archive& field, ConcurrentJob& job) {
  field.type("concurrent_job",
             "One of several jobs that ran at once, in the time in which all were in their "
             "windows; or, where the arm's share is serial, one after another, each in its own");
  field("ranks", job.ranks, at_least(1), "They follow those of the job before");
  field.unit("sample", job.sample);
  field(field.words().throughput_key, job.throughput, above(0));
  field("start_seconds", job.start_seconds, at_least(0),
        "Start of its window, after that of the first");
  field.added("first_step", job.first_step, at_least(0),
              "First step of its window, counted from 0 with the warm-up; since 1.6");
  field.added("steps", job.steps, at_least(1), "Steps in its window; since 1.6");
  field.added(field.words().flops_key, job.flops_per_sample, above(0),
              "Operations of a step, as those of the run; null: not reported; since 1.10");
  field.added("parameters", job.parameters, at_least(0),
              "Trained values of its network; null: not reported");
  field.added("bus_bandwidth_bytes_per_second", job.bus_bandwidth_bytes_per_second, above(0),
              "Of the best of its buckets; null: its ranks sum nothing, or not reported; since "
              "1.18");
}

void fields(Archive& field, Run& run) {
  field.type("run", "One launch of one job, or of several at once");
  field("started_at", run.started_at, time_stamp, "RFC 3339, UTC");
  field("status", run.status);
  field("failure", run.failure, "Why it is not complete");
  field.added(
      "tool", run.tool,
      "The build that ran it; null: none reported its own, or it is that of the report; since 1.8");
  field("device", run.device, without(Device::automatic));
  field("device_name", run.device_name);
  field("device_reason", run.device_reason, "Why this device");
  field("world_size", run.world_size, at_least(1), "Number of ranks");
  field.added("link_bits_per_second", run.link_bits_per_second, above(0),
              "Of the network, as --expect-link claimed and every rank found; since 1.17");
  field("parameters", run.parameters, at_least(1),
        "Trained values of the model; of unlike jobs those of all their models");
  field.unit("sample", run.sample);
  field(field.words().throughput_key, run.throughput, above(0),
        "Samples of the window / window.seconds; for ranks independent of each other the sum of "
        "theirs; unknown for jobs that do unlike work, which does not add");
  field("window", run.window);
  field("warm_up", run.warm_up);
  field(field.words().flops_key, run.flops_per_sample, above(0),
        "Operations of a step (training, or forward alone), 2 for each multiply-add; of unlike "
        "jobs the mean over the samples of all");
  field("flops_per_second", run.flops_per_second, above(0),
        "throughput x flops of a sample; of unlike jobs the sum of theirs");
  field("peak_flops_per_second", run.peak_flops_per_second, above(0),
        "Sum over all ranks' devices, by the data sheet");
  field("share_of_peak", run.share_of_peak, above(0));
  field("proof", run.proof);
  field.added("communication", run.communication, "null: no gradients are exchanged");
  field.added("pipeline", run.pipeline, "null: each rank has the whole network; since 1.11");
  field.added("jobs", run.jobs, "Empty: one alone");
  field.added("neighbours", run.neighbours, "Empty: none was there to disturb");
  field.added("jain_fairness", run.jain_fairness, within(0, 1),
              "Fairness of the throughputs x of n jobs at once: (sum x)^2 / (n sum x^2)");
  field("warnings", run.warnings);
  field("profile", run.profile, "null: not asked for");
  field("plans", run.kernel_choices);
  field.added("digests", run.digests, "Of --digest; empty: not asked for; since 1.18");
  field("ranks", run.ranks);
}

void fields(Archive& field, StepTime& step) {
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

void fields(Archive& field, Latency& latency) {
  field.type("latency", "Times of steps taken one at a time after the window, by the host's clock");
  field("steps", latency.steps, at_least(1));
  field("median_seconds", latency.median_seconds, above(0));
  field("p95_seconds", latency.p95_seconds, above(0));
  field("p99_seconds", latency.p99_seconds, above(0));
}

void fields(Archive& field, SetUp& set_up) {
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

void fields(Archive& field, MonitoredSeries& series) {
  field.type("monitored_series",
             "What one quantity did in the timed window, in the unit that its name ends with");
  field("name", series.name);
  field("minimum", series.minimum);
  field("mean", series.mean);
  field("maximum", series.maximum);
  field("values", series.values, "Neighbours averaged where there were many");
}

void fields(Archive& field, MonitorReason& reason) {
  field.type("monitor_reason", "Something that the monitor saw");
  field("code", reason.code, code, "Stable, for scripts; unknown: it could not be seen");
  field.optional("figure", reason.figure, "Not there: it is not known");
  field.optional("subject", reason.subject,
                 "The series that it is about, where the code does not say");
  field.optional("why", reason.why, "Why it is not known");
}

void fields(Archive& field, RdmaTraffic& traffic) {
  field.type("rdma_traffic", "What went through an RDMA port in the window, of all processes");
  field("rdma_device", traffic.rdma_device, "Name of the RDMA device");
  field("port", traffic.port, at_least(0));
  field("sent_bytes", traffic.sent_bytes, at_least(0));
  field("received_bytes", traffic.received_bytes, at_least(0));
  field("errors", traffic.errors, at_least(0),
        "Errors of the link and of packets: lost, repeated or out of order");
}

void fields(Archive& field, Monitoring& monitoring) {
  field.type("monitoring", "What was seen of a rank's GPU and CPUs while its window was timed");
  field("interval_seconds", monitoring.interval_seconds, above(0), "Between values of the series");
  field("samples", monitoring.samples, at_least(0));
  field("verdict", monitoring.verdict,
        "unknown, since 1.7: something that it rests on is not known of the whole window");
  std::vector<std::string> seen = texts_of(monitoring.reasons);
  field("seen", seen, "What led to the verdict, and what else a reader should know");
  field.added("reasons", monitoring.reasons, "The same as values");
  if (field.reads() && monitoring.reasons.empty()) {
    monitoring.reasons = transformed(seen, reason_from);
  }
  field("joules", monitoring.joules, at_least(0), "Energy that the GPU took in the window");
  field(field.words().per_joule_key, monitoring.samples_per_joule, at_least(0));
  field("not_monitored", monitoring.not_monitored, "Name to reason");
  field("series", monitoring.series);
  field.added("rdma_traffic", monitoring.rdma_traffic, "Through each RDMA port of the host");
}

void fields(Archive& field, Binding& binding) {
  field.type("binding", "Where the threads of a rank run and what it allocates lies");
  field("cpus", binding.cpus, "CPUs that it may use, such as 0-15,32-47");
  field("numa_node", binding.numa_node, at_least(0), "Node to whose CPUs it bound itself");
  field("memory_node", binding.memory_node, at_least(0), "Node whose memory it prefers");
}

void fields(Archive& field, ProbeTime& probe) {
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

void fields(Archive& field, StepNeeds& needs) {
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

void fields(Archive& field, RankProbes& probes) {
  field.type("rank_probes", "What a difference between two runs can be explained by");
  field("needs", probes.needs);
  field("probes", probes.probes);
}

void fields(Archive& field, Bin& bin) {
  field.type("bin", "Values of steps one after another");
  field("count", bin.count, within(1, 1e9));
  field("sum", bin.sum);
  field("least", bin.least);
  field("largest", bin.largest);
}

void fields(Archive& field, Rank& rank) {
  field.type("rank", "One process and its device");
  field("rank", rank.rank, at_least(0));
  field("environment", rank.environment, at_least(0), "Index into environments");
  field("gpu", rank.gpu, at_least(0), "Index into its gpus; null: on the CPU");
  field.added(
      "vm", rank.vm, at_least(0),
      "Emulated VM, counted on each host; null: none, or from a version that does not report it");
  field.added("binding", rank.binding, "Binding of the rank; null: the version does not bind");
  field("set_up", rank.set_up);
  field("skipped_updates", rank.skipped_updates, at_least(0),
        "Steps of the window without an update, as the gradient was not finite");
  field("step_time", rank.step_time);
  field.added("latency", rank.latency);
  field("host_window_seconds", rank.host_window_seconds, at_least(0),
        "The window by the host's clock, a cross-check");
  field("device_bytes", rank.device_bytes, at_least(0), "Held by the training program");
  field("plans_sha256", rank.kernel_choices_sha256, hash,
        "Hash of keys and implementations of the plans");
  field.added("window_start_unix_seconds", rank.window_start_unix_seconds,
              "By the host's clock; below 0 where that is before 1970");
  field.added("monitoring", rank.monitoring, "null: not asked for, or the window did not open");
  field.added("exposed_communication_seconds", rank.exposed_communication_seconds, at_least(0),
              "Time in a step, the median over the window, in which gradients are on their way and "
              "there is nothing else to do");
  field.added("probes", rank.probes, "null: not asked for (--attribute)");
  field.added("stage", rank.stage, "null: there is no pipeline; since 1.11");
  field.added("mpi_transports", rank.mpi_transports,
              "By which MPI exchanged with others, as UCX tells: rc_mlx5/mlx5_0:1; since 1.17");
  field("step_seconds", rank.step_seconds, above(0),
        "Every step, warm-up included; empty where step_seconds_bins are not");
  field("loss", rank.loss,
        "Mean over the batch, for each of the same steps; empty: inference has none");
  field.added("window_first_step", rank.window_first_step, at_least(0),
              "Among this rank's steps; null: the window did not open; since 1.16");
  static_assert(most_listed_steps == 100'000 && most_listed_steps_of_report == 5'000'000);
  field.added("step_seconds_bins", rank.step_seconds_bins,
              "All steps, in order, where a rank took more than 100,000 or all of the report more "
              "than 5,000,000; no bin reaches into the window; since 1.16");
  field.added("loss_bins", rank.loss_bins, "The loss of the same steps");
}

}  // namespace nearmetal::json
