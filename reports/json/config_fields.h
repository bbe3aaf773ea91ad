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
  field("gpu", config.gpu, at_least(0), "Index among the visible GPUs");
  field("precision", config.precision, "Precision of activations and of the operands of products");
  field("batch", config.batch, at_least(1), "Images per step and rank; null: none fits");
  field("image_size", config.image_size, at_least(1), "Height and width in pixels");
  field("classes", config.classes, at_least(2));
  field("steps", config.steps, at_least(1), "Steps of the timed window; null: by duration_seconds");
  field("duration_seconds", config.duration_seconds, above(0), "Length of the timed window, about");
  field("warmup", config.warmup, at_least(1), "Fewest steps before the timed window");
  field("input", config.input,
        "Where the images stay; host, pageable: copied every step, from memory that "
        "is pinned or not");
  field("launch", config.launch, without(LaunchMode::call),
        "How GPU work is launched; null on the CPU");
  field("learning_rate", config.learning_rate, at_least(0));
  field("momentum", config.momentum, within(0, 1));
  field("weight_decay", config.weight_decay, at_least(0));
  field("zero_init", config.zero_init, "The last scale of each residual branch starts at 0");
  field("loss_scale", config.loss_scale);
  field("seed", config.seed, at_least(0));
  field("threads", config.threads, at_least(0),
        "Threads of the CPU backend; 0: all that the process may use");
  field.added("bind", config.bind, "Whether ranks are bound to CPUs and memory next to the GPU");
  field.added("update", config.update,
              "With several ranks: gradients averaged every step, or each rank for itself");
  field.added("ranks", config.ranks, at_least(0),
              "Number of ranks that there must be; 0: any number");
  field.added("bucket_mib", config.bucket_mib, at_least(0),
              "Size of the parts of the gradient that are sent while the backward pass "
              "goes on; null: as measured");
  field.added("gradient_type", config.gradient_type,
              "Type in which gradients travel between ranks; computed: as the backward "
              "pass leaves them");
  field.added("all_reduce", config.all_reduce, without(AllReduceKind::mpi),
              "What sums the gradients of GPUs: NCCL alone (nccl; auto: the same), "
              "hierarchical: NCCL inside a host and MPI between hosts, or host: copy "
              "engines through the memory of one host");
  field.added("nccl_algorithm", config.nccl_algorithm,
              "Algorithm by which NCCL must sum the gradients; auto: its choice");
  field("forward_only", config.forward_only);
  field("verify", config.verify);
  field("profile", config.profile);
  field.added("attribute", config.attribute, "Time the machine right after the window");
  field("plan_cache", config.plan_cache);
  field("plans", config.plans, "Report whose plans are pinned");
  field("output", config.output);
  field.added("environment", config.environment, "What the user says that the machine is");
  field.added("host_facts", config.host_facts, "File by the operator of the host");
  field.added("no_host_info", config.no_host_info,
              "Names, UUIDs and serial numbers are left out, and of absolute paths all "
              "but the name of the file");
  field.added("monitor_hz", config.monitor_hz, at_least(0),
              "Samples per second of the timed window; 0: none");
  field("force", config.force);
  field("json", config.json);
  field("quiet", config.quiet);
  field("no_progress", config.no_progress);
}

}  // namespace nearmetal::json
