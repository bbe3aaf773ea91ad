// The settings of a run, in the order of the document, with what must hold of them.
#pragma once

#include "reports/json/environment_fields.h"
#include "reports/json/json_archive.h"

namespace nearmetal::json {

inline constexpr Form device_kind{
    [](const std::string& text) { return text == "cpu" || text == "cuda"; }, "cpu or cuda"};
inline constexpr Form input_kind{[](const std::string& text) {
                                   return text == "device" || text == "host" || text == "pageable";
                                 },
                                 "device, host or pageable"};
inline constexpr Form launch_kind{
    [](const std::string& text) { return text == "graph" || text == "stream"; }, "graph or stream"};
inline constexpr Form update_kind{
    [](const std::string& text) { return text == "allreduce" || text == "independent"; },
    "allreduce or independent"};
inline constexpr Form bind_kind{
    [](const std::string& text) { return text == "auto" || text == "off"; }, "auto or off"};
inline constexpr Form gradient_type_kind{[](const std::string& text) {
                                           return text == "computed" || text == "fp32" ||
                                                  text == "bf16" || text == "fp16";
                                         },
                                         "computed, fp32, bf16 or fp16"};
inline constexpr Form all_reduce_kind{[](const std::string& text) {
                                        return text == "auto" || text == "nccl" ||
                                               text == "hierarchical" || text == "host";
                                      },
                                      "auto, nccl, hierarchical or host"};
inline constexpr Form nccl_algorithm_kind{
    [](const std::string& text) { return text == "auto" || text == "ring" || text == "tree"; },
    "auto, ring or tree"};

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
  field.added("bind", config.bind, bind_kind);
  field.added("update", config.update, update_kind);
  field.added("ranks", config.ranks, at_least(0));
  field.added("bucket_mib", config.bucket_mib, at_least(0));
  field.added("gradient_type", config.gradient_type, gradient_type_kind);
  field.added("all_reduce", config.all_reduce, all_reduce_kind);
  field.added("nccl_algorithm", config.nccl_algorithm, nccl_algorithm_kind);
  field("forward_only", config.forward_only);
  field("verify", config.verify);
  field("profile", config.profile);
  field.added("attribute", config.attribute);
  field("plan_cache", config.plan_cache);
  field("plans", config.plans);
  field("output", config.output);
  field.added("environment", config.environment, claim_kind);
  field.added("host_facts", config.host_facts);
  field.added("no_host_info", config.no_host_info);
  field.added("monitor_hz", config.monitor_hz, at_least(0));
  field("force", config.force);
  field("json", config.json);
  field("quiet", config.quiet);
  field("no_progress", config.no_progress);
}

}  // namespace nearmetal::json
