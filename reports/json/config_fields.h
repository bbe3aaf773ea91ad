// The settings of a run, in the order of the document, with what must hold of them.
#pragma once

#include "reports/json/forms.h"

namespace nearmetal::json {

template <class Archive>
void fields(Archive& field, In<Archive, LossScale> scale) {
  field.type("loss_scale", "Factor of the loss before the backward pass");
  field("initial", scale.initial, above(0));
  field("dynamic", scale.dynamic);
}

template <class Archive>
void fields(Archive& field, In<Archive, RunConfig> config) {
  field.type("config", "Every setting of a run");
  field("model", config.model);
  field("device", config.device, without(Device::automatic));
  field("gpu", config.gpu, at_least(0));
  field("precision", config.precision);
  field("batch", config.batch, at_least(1));
  field("image_size", config.image_size, at_least(1));
  field("classes", config.classes, at_least(2));
  field("steps", config.steps, at_least(1));
  field("duration_seconds", config.duration_seconds, above(0));
  field("warmup", config.warmup, at_least(1));
  field("input", config.input);
  field("launch", config.launch, without(LaunchMode::call));
  field("learning_rate", config.learning_rate, at_least(0));
  field("momentum", config.momentum, within(0, 1));
  field("weight_decay", config.weight_decay, at_least(0));
  field("zero_init", config.zero_init);
  field("loss_scale", config.loss_scale);
  field("seed", config.seed, at_least(0));
  field("threads", config.threads, at_least(0));
  field.added("bind", config.bind);
  field.added("update", config.update);
  field.added("ranks", config.ranks, at_least(0));
  field.added("bucket_mib", config.bucket_mib, at_least(0));
  field.added("gradient_type", config.gradient_type);
  field.added("all_reduce", config.all_reduce, without(AllReduceKind::mpi));
  field.added("nccl_algorithm", config.nccl_algorithm);
  field("forward_only", config.forward_only);
  field("verify", config.verify);
  field("profile", config.profile);
  field.added("attribute", config.attribute);
  field("plan_cache", config.plan_cache);
  field("plans", config.plans);
  field("output", config.output);
  field.added("environment", config.environment);
  field.added("host_facts", config.host_facts);
  field.added("no_host_info", config.no_host_info);
  field.added("monitor_hz", config.monitor_hz, at_least(0));
  field("force", config.force);
  field("json", config.json);
  field("quiet", config.quiet);
  field("no_progress", config.no_progress);
}

}  // namespace nearmetal::json
