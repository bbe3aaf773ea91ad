#include "bench/cli/parse_value.h"
#include "bench/cli/setting_options.h"
#include "models/networks/registry.h"

namespace nearmetal {
namespace {

void add_workload(RunOptions& options, RunConfig& run) {
  options.group("What to train");
  options.choice("--model", run.model, network_names(), "NAME",
                 "resnet18, 34, 50, 101, 152; resnet50_v1, ...");
  options.add("--precision", "precision", "fp32|tf32|bf16|fp16",
              "of activations and products [cuda: fp16, cpu: fp32]", [&](const std::string& text) {
                run.precision = parse_choice<Precision>("--precision", text);
              });
  options.add("--batch", "batch", "N|auto",
              "images per step; auto: nearly all that fit [cuda: 256, cpu: 16]",
              [&](const std::string& text) {
                run.batch = text == "auto" ? largest_that_fits
                                           : parse_number<int64_t>("--batch", text, {1, 1e6});
              });
  options.number("--image-size", run.image_size, {1, 16384}, "height and width in pixels");
  options.number("--classes", run.classes, {2, 1e6}, "of the classifier");
  options.number("--seed", run.seed, {0, 9007199254740991}, "of parameters, images and labels");
}

void add_variants(RunOptions& options, RunConfig& run) {
  options.toggle("--forward-only", run.forward_only, "forward pass and loss alone");
  options.choice("--input", run.input, {"device", "host", "pageable"}, "device|host|pageable",
                 "where images are: pageable is not pinned");
}

void add_export(RunOptions& options, RunConfig& run) {
  options.number("--steps", run.steps, {1, 1000},
                 "train so many on the first batch and write what they compute");
}

void add_kernels(RunOptions& options, RunConfig& run) {
  options.number("--threads", run.threads, {0, 4096}, "of the CPU; 0: all it may use");
  options.choice("--launch", run.launch, {"graph", "stream"}, "graph|stream",
                 "the step as one CUDA graph, or kernel by kernel [graph]");
}

void add_binding(RunOptions& options, RunConfig& run) {
  options.choice("--bind", run.bind, {"auto", "off"}, "auto|off",
                 "auto: to the CPUs and memory of the GPU's NUMA node");
}

void add_place(RunOptions& options, RunConfig& run) {
  options.group("Where");
  options.choice("--device", run.device, {"auto", "cpu", "cuda"}, "auto|cpu|cuda",
                 "auto: cuda if an NVIDIA device is visible");
  options.number("--gpu", run.gpu, {0, 1023}, "index among the visible GPUs");
}

void add_device(RunOptions& options, RunConfig& run) {
  add_place(options, run);
  add_kernels(options, run);
}

void add_exchange(RunOptions& options, RunConfig& run) {
  options.group("Several ranks (under mpirun or srun)");
  options.choice("--update", run.update, {"allreduce", "independent"}, "allreduce|independent",
                 "average gradients, or train each rank for itself");
  options.add(
      "--bucket-mib", "bucket_mib", "N|auto",
      with_default("gradients sent at once; 0: all at the end; auto: measured", *run.bucket_mib),
      [&](const std::string& text) {
        run.bucket_mib.reset();
        if (text == "auto") return;
        run.bucket_mib = parse_number<int64_t>("--bucket-mib", text, {0, 65536});
      });
  options.choice("--gradient-type", run.gradient_type, {"computed", "fp32", "bf16", "fp16"}, "TYPE",
                 "gradients travel as fp32, bf16, fp16, or as computed");
  options.choice("--all-reduce", run.all_reduce, {"auto", "nccl", "hierarchical", "host"},
                 "auto|nccl|hierarchical|host",
                 "hierarchical: MPI between hosts; host: not over NVLink");
  options.choice("--nccl-algorithm", run.nccl_algorithm, {"auto", "ring", "tree"}, "auto|ring|tree",
                 "NCCL must sum by it, as is checked; auto: its choice");
}

void add_ranks(RunOptions& options, RunConfig& run) {
  add_exchange(options, run);
  options.number("--ranks", run.ranks, {0, 1e6}, "refuse any other number of ranks; 0: any");
}

void add_measurement(RunOptions& options, RunConfig& run) {
  options.group("How long, and which proof");
  options.number("--steps", run.steps, {1, most_steps}, "timed steps, instead of --duration");
  options.add(
      "--duration", "duration_seconds", "TIME",
      with_default("of the timed window: 30, 30s, 2m", run.duration_seconds),
      [&](const std::string& text) { run.duration_seconds = parse_duration("--duration", text); });
  options.number("--warmup", run.warmup, {1, most_steps},
                 "fewest steps before, more until steady [cuda: 120, cpu: 3]");
  options.toggle("--verify", run.verify, "prove that the network memorises a small set");
  options.toggle("--profile", run.profile, "show where the step goes");
  options.toggle("--attribute", run.attribute,
                 "time the machine, for compare to say why runs differ");
}

void add_evidence(RunOptions& options, RunConfig& run) {
  options.group("Evidence and monitor");
  options.add("--environment", "environment", "vm|bare-metal|container",
              "what this machine is, to hold against what is found", [&](const std::string& text) {
                run.environment = parse_choice<MachineKind>("--environment", text);
              });
  options.path("--host-facts", run.host_facts, "FILE",
               "JSON object by the host's operator: what only the host sees");
  options.toggle("--no-host-info", run.no_host_info,
                 "leave out host names, UUIDs, serial numbers and folders");
  options.number("--monitor-hz", run.monitor_hz, {0, 100},
                 "samples of clocks, power and CPU per second; 0: none");
}

void add_optimizer(RunOptions& options, RunConfig& run) {
  options.group("Optimizer (SGD)");
  options.number("--learning-rate", run.learning_rate, {0, 1e6}, "fixed [0.1 x batch / 256]");
  options.number("--momentum", run.momentum, {0, 1}, "share of the last update that stays");
  options.number("--weight-decay", run.weight_decay, {0, 1}, "L2, of every parameter");
  options.toggle("--zero-init", run.zero_init, "last scale of each block starts at 0");
  options.add(
      "--loss-scale", "loss_scale", "N|dynamic", "for fp16 [1024]", [&](const std::string& text) {
        constexpr Bounds bounds{.minimum = 0, .maximum = 1e12, .above_minimum = true};
        run.loss_scale = text == "dynamic"
                             ? LossScale{.initial = 65536, .dynamic = true}
                             : LossScale{parse_number<double>("--loss-scale", text, bounds), false};
      });
}

void add_plans(RunOptions& options, RunConfig& run) {
  options.group("Files and output");
  options.path("--plan-cache", run.plan_cache, "FILE|off",
               "plans of earlier runs [~/.cache/nearmetal/plans.json]");
  options.path("--plans", run.plans, "REPORT", "use exactly the plans of this report");
}

void add_files(RunOptions& options, RunConfig& run) {
  options.path("--output", run.output, "FILE", "of the report; - is stdout");
  options.toggle("--force", run.force, "replace an existing report");
  options.toggle("--json", run.json, "only the report, on stdout");
  options.toggle("--quiet", run.quiet, "no remarks and no progress");
  options.toggle("--no-progress", run.no_progress, "no progress line");
}

}  // namespace

void add_run_options(Options& options, RunRequest& request) {
  RunOptions settings(options, request);
  for (const auto add : {add_workload, add_variants, add_device, add_binding, add_ranks,
                         add_measurement, add_evidence, add_optimizer, add_plans, add_files}) {
    add(settings, request.config);
  }
  add_expect_options(options, request.expected);
  // Scripts of plan say it.
  options.toggle("--emulated", request.emulated, "on VMs that are pretended, as a plan says")
      .hidden = true;
  add_conducted_options(options, request);
}

void add_device_options(Options& options, RunRequest& request) {
  RunOptions settings(options, request);
  add_place(settings, request.config);
  settings.toggle("--quiet", request.config.quiet, "no remarks");
}

void add_workload_options(Options& options, RunRequest& request) {
  RunOptions settings(options, request);
  for (const auto add : {add_workload, add_variants, add_kernels, add_binding, add_exchange,
                         add_measurement, add_optimizer}) {
    add(settings, request.config);
  }
}

void add_program_options(Options& options, RunRequest& request) {
  RunOptions settings(options, request);
  for (const auto add : {add_workload, add_device, add_plans}) add(settings, request.config);
  settings.toggle("--quiet", request.config.quiet, "no remarks");
}

void add_export_options(Options& options, RunRequest& request) {
  RunConfig& run = request.config;
  RunOptions settings(options, request);
  for (const auto add : {add_workload, add_export, add_device, add_optimizer, add_plans}) {
    add(settings, run);
  }
  settings.path("--output", run.output, "FILE", "to write [nearmetal-MODEL.safetensors]");
  settings.toggle("--force", run.force, "replace an existing file");
  settings.toggle("--quiet", run.quiet, "no remarks");
}

}  // namespace nearmetal
