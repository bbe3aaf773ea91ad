// The fields of every struct of a report, in the order of the document, with what must hold of
// them.
#pragma once

#include "reports/json_archive.h"

namespace nearmetal::json {

inline bool all_digits(const std::string& text, const char* digits) {
  return text.find_first_not_of(digits) == std::string::npos;
}
inline constexpr Form hash{[](const std::string& text) {
                             return text.size() == 64 && all_digits(text, "0123456789abcdef");
                           },
                           "64 hexadecimal digits"};
inline constexpr Form commit{[](const std::string& text) {
                               return text.size() >= 40 && text.size() <= 64 &&
                                      all_digits(text, "0123456789abcdef");
                             },
                             "a commit id"};
inline constexpr Form time_stamp{[](const std::string& text) {
                                   const std::string form = "dddd-dd-ddTdd:dd:ddZ";
                                   if (text.size() != form.size()) return false;
                                   for (size_t i = 0; i < form.size(); ++i) {
                                     const bool digit = text[i] >= '0' && text[i] <= '9';
                                     if (form[i] == 'd' ? !digit : text[i] != form[i]) return false;
                                   }
                                   return true;
                                 },
                                 "a time such as 2026-01-31T12:00:00Z"};
inline constexpr Form device_kind{
    [](const std::string& text) { return text == "cpu" || text == "cuda"; }, "cpu or cuda"};
inline constexpr Form input_kind{
    [](const std::string& text) { return text == "device" || text == "host"; }, "device or host"};
inline constexpr Form launch_kind{
    [](const std::string& text) { return text == "graph" || text == "stream"; }, "graph or stream"};
inline constexpr Form phase_kind{[](const std::string& text) {
                                   return text == "input" || text == "forward" ||
                                          text == "backward" || text == "update";
                                 },
                                 "input, forward, backward or update"};
inline constexpr Form code{[](const std::string& text) {
                             return !text.empty() &&
                                    all_digits(text, "abcdefghijklmnopqrstuvwxyz_");
                           },
                           "a code of lower-case letters and underscores"};
inline constexpr Form report_schema_name{
    [](const std::string& text) { return text == "nearmetal/report"; }, "nearmetal/report"};
inline constexpr Form readable_version{[](const std::string& text) {
                                         return text.size() > 2 && text.starts_with("1.") &&
                                                all_digits(text.substr(2), "0123456789");
                                       },
                                       "1.x, the versions that this program reads"};

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
void fields(Archive& field, In<Archive, LossScale> scale) {
  field("initial", scale.initial, above(0));
  field("dynamic", scale.dynamic);
}

template <class Archive>
void fields(Archive& field, In<Archive, RunConfig> config) {
  field("model", config.model);
  field("device", config.device, device_kind);
  field("gpu", config.gpu, at_least(0));
  field("precision", config.precision);
  field("batch", config.batch, at_least(1));
  field("image_size", config.image_size, at_least(1));
  field("classes", config.classes, at_least(2));
  field("steps", config.steps, at_least(1));
  field("duration_seconds", config.duration_seconds, above(0));
  field("warmup", config.warmup, at_least(1));
  field("input", config.input, input_kind);
  field("launch", config.launch, launch_kind);
  field("learning_rate", config.learning_rate, at_least(0));
  field("momentum", config.momentum, within(0, 1));
  field("weight_decay", config.weight_decay, at_least(0));
  field("zero_init", config.zero_init);
  field("loss_scale", config.loss_scale);
  field("seed", config.seed, at_least(0));
  field("threads", config.threads, at_least(0));
  field("forward_only", config.forward_only);
  field("verify", config.verify);
  field("profile", config.profile);
  field("plan_cache", config.plan_cache);
  field("plans", config.plans);
  field("output", config.output);
  field("force", config.force);
  field("json", config.json);
  field("quiet", config.quiet);
  field("no_progress", config.no_progress);
}

template <class Archive>
void fields(Archive& field, In<Archive, Invocation> invocation) {
  field("argv", invocation.argv);
  field("started_at", invocation.started_at, time_stamp);
  field.settings("config", invocation.config, invocation.origins);
  field("config_sha256", invocation.config_sha256, hash);
}

template <class Archive>
void fields(Archive& field, In<Archive, Gpu> gpu) {
  field("name", gpu.name);
  field("uuid", gpu.uuid);
  field("pci_id", gpu.pci_id);
  field("memory_bytes", gpu.memory_bytes, at_least(0));
  field("multiprocessors", gpu.multiprocessors, at_least(1));
  field("compute_capability", gpu.compute_capability);
  field("driver_version", gpu.driver_version);
}

template <class Archive>
void fields(Archive& field, In<Archive, Environment> environment) {
  field("host_name", environment.host_name);
  field("kernel", environment.kernel);
  field("distribution", environment.distribution);
  field("architecture", environment.architecture);
  field("cpu_model", environment.cpu_model);
  field("logical_cpus", environment.logical_cpus, at_least(1));
  field("usable_cpus", environment.usable_cpus, at_least(1));
  field("cpu_quota", environment.cpu_quota, above(0));
  field("memory_bytes", environment.memory_bytes, at_least(0));
  field("memory_limit_bytes", environment.memory_limit_bytes, at_least(0));
  field("hypervisor_cpu_flag", environment.hypervisor_cpu_flag);
  field("gpus", environment.gpus);
  field("libraries", environment.libraries);
  field("variables", environment.variables);
  field("ld_preload", environment.ld_preload);
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
void fields(Archive& field, In<Archive, Rank> rank) {
  field("rank", rank.rank, at_least(0));
  field("environment", rank.environment, at_least(0));
  field("gpu", rank.gpu, at_least(0));
  field("set_up", rank.set_up);
  field("skipped_updates", rank.skipped_updates, at_least(0));
  field("step_time", rank.step_time);
  field("host_window_seconds", rank.host_window_seconds, at_least(0));
  field("device_bytes", rank.device_bytes, at_least(0));
  field("plans_sha256", rank.plans_sha256, hash);
  field("step_seconds", rank.step_seconds, above(0));
  field("loss", rank.loss);
}

template <class Archive>
void fields(Archive& field, In<Archive, TimedWindow> window) {
  field("first_step", window.first_step, at_least(0));
  field("steps", window.steps, at_least(1));
  field("images", window.images, at_least(1));
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
  field("images", verify.images, at_least(1));
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
void fields(Archive& field, In<Archive, Run> run) {
  field("started_at", run.started_at, time_stamp);
  field("status", run.status);
  field("failure", run.failure);
  field("device", run.device, device_kind);
  field("device_name", run.device_name);
  field("device_reason", run.device_reason);
  field("world_size", run.world_size, at_least(1));
  field("parameters", run.parameters, at_least(1));
  field("throughput_images_per_second", run.throughput_images_per_second, above(0));
  field("window", run.window);
  field("warm_up", run.warm_up);
  field("flops_per_image", run.flops_per_image, above(0));
  field("flops_per_second", run.flops_per_second, above(0));
  field("peak_flops_per_second", run.peak_flops_per_second, above(0));
  field("share_of_peak", run.share_of_peak, above(0));
  field("proof", run.proof);
  field("warnings", run.warnings);
  field("profile", run.profile);
  field("plans", run.plans);
  field("ranks", run.ranks);
}

template <class Archive>
void fields(Archive& field, In<Archive, Arm> arm) {
  field("name", arm.name);
  field("kind", arm.kind);
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
