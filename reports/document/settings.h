// Every setting of `nearmetal run`, declared once. From this table come the option, the field of
// a report and its schema, config_sha256, the comparable key, the flags of a rerun, the names in
// layout files, and the messages for settings that a run has no use for.
#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "reports/document/setting.h"

namespace nearmetal {

/// In the order of documents.
inline constexpr std::tuple settings_of_run{
    setting(&RunConfig::model, "model", SettingGroup::work,
            {.help = "resnet18, 34, 50, 101, 152; vgg16, vgg16_bn, ...",
             .value = "NAME",
             .decides = Decides::work,
             .commands = in_all_but_stress}),
    setting(&RunConfig::device, "device", SettingGroup::place,
            {.help = "auto: cuda if an NVIDIA device is visible",
             .settled = true,
             .decides = Decides::work,
             .commands = in_run | in_export | in_micro | in_stress}),
    setting(&RunConfig::gpu, "gpu", SettingGroup::place,
            {.help = "index among the visible GPUs",
             .meaning = "Index among the visible GPUs",
             .range = at_least(0),
             .most = 1023,
             .commands = in_run | in_export | in_micro | in_stress,
             .only_for = Device::cuda}),
    setting(&RunConfig::precision, "precision", SettingGroup::work,
            {.help = "of activations and products [cuda: fp16, cpu: fp32]",
             .meaning = "Precision of activations and of the operands of products",
             .decides = Decides::work,
             .commands = in_all_but_stress}),
    setting(&RunConfig::batch, "batch", SettingGroup::work,
            {.help = "images per step; auto: nearly all that fit [cuda: 256, cpu: 16]",
             .meaning = "Images per step and rank; null: none fits",
             .range = at_least(1),
             .most = 1e6,
             .takes_auto = true,
             .automatic = largest_that_fits,
             .decides = Decides::work,
             .commands = in_all_but_stress}),
    setting(&RunConfig::image_size, "image_size", SettingGroup::work,
            {.help = "height and width in pixels",
             .meaning = "Height and width in pixels",
             .range = at_least(1),
             .most = 16384,
             .decides = Decides::work,
             .commands = in_all_but_stress}),
    setting(&RunConfig::classes, "classes", SettingGroup::work,
            {.help = "of the classifier",
             .range = at_least(2),
             .most = 1e6,
             .decides = Decides::work,
             .commands = in_all_but_stress}),
    setting(&RunConfig::steps, "steps", SettingGroup::length,
            {.help = "timed steps, instead of --duration",
             .meaning = "Steps of the timed window; null: by duration_seconds",
             .range = at_least(1),
             .most = most_steps}),
    setting(&RunConfig::duration_seconds, "duration_seconds", SettingGroup::length,
            {.help = "of the timed window: 30, 30s, 2m",
             .meaning = "Length of the timed window, about",
             .range = above(0)}),
    setting(&RunConfig::warmup, "warmup", SettingGroup::length,
            {.help = "fewest steps before, more until steady [cuda: 120, cpu: 3]",
             .meaning = "Fewest steps before the timed window",
             .range = at_least(1),
             .most = most_steps}),
    setting(&RunConfig::input, "input", SettingGroup::work,
            {.help = "where images are: pageable is not pinned",
             .meaning = "Where the images stay; host, pageable: copied every step, from memory "
                        "that is pinned or not",
             .decides = Decides::work,
             .key_place = 2,
             .last = true}),
    setting(&RunConfig::launch, "launch", SettingGroup::place,
            {.help = "the step as one CUDA graph, or kernel by kernel [graph]",
             .meaning = "How GPU work is launched; null on the CPU",
             .names = without(LaunchMode::call),
             .decides = Decides::work,
             .key_place = 2,
             .commands = in_all_but_stress,
             .only_for = Device::cuda,
             .last = true}),
    setting(&RunConfig::host_wait, "host_wait", SettingGroup::place,
            {.help = "for a step: as CUDA chooses, or asleep until an interrupt",
             .meaning = "How the host waits for a step of a GPU: as CUDA chooses, or asleep "
                        "until an interrupt",
             .decides = Decides::work,
             .key_place = 2,
             .only_for = Device::cuda,
             .added = true,
             .last = true}),
    setting(&RunConfig::learning_rate, "learning_rate", SettingGroup::optimizer,
            {.help = "fixed [batch / 64 / features, at most 0.1]",
             .range = at_least(0),
             .most = 1e6,
             .decides = Decides::work,
             .key_place = 4,
             .commands = in_run | in_sweep | in_export}),
    setting(&RunConfig::momentum, "momentum", SettingGroup::optimizer,
            {.help = "share of the last update that stays",
             .range = within(0, 1),
             .most = 1,
             .decides = Decides::work,
             .key_place = 4,
             .commands = in_run | in_sweep | in_export,
             .needs = Needs::training}),
    setting(&RunConfig::weight_decay, "weight_decay", SettingGroup::optimizer,
            {.help = "L2, of every parameter",
             .range = at_least(0),
             .most = 1,
             .decides = Decides::work,
             .key_place = 4,
             .commands = in_run | in_sweep | in_export,
             .needs = Needs::training}),
    setting(&RunConfig::zero_init, "zero_init", SettingGroup::optimizer,
            {.help = "last scale of each block starts at 0",
             .meaning = "The last scale of each residual branch starts at 0",
             .decides = Decides::work,
             .key_place = 3,
             .commands = in_run | in_sweep | in_export}),
    setting(&RunConfig::loss_scale, "loss_scale", SettingGroup::optimizer,
            {.help = "for fp16 [8 x sqrt(batch), to a power of two]",
             .value = "N|dynamic",
             .decides = Decides::work,
             .key_place = 3,
             .commands = in_run | in_sweep | in_export}),
    setting(&RunConfig::seed, "seed", SettingGroup::work,
            {.help = "of parameters, images and labels",
             .range = at_least(0),
             .most = 9007199254740991,
             .commands = in_all_but_stress}),
    setting(&RunConfig::threads, "threads", SettingGroup::place,
            {.help = "of the CPU; 0: all it may use",
             .meaning = "Threads of the CPU backend; 0: all that the process may use",
             .range = at_least(0),
             .most = 4096,
             .commands = in_all_but_stress,
             .only_for = Device::cpu}),

    setting(&RunConfig::bind, "bind", SettingGroup::place,
            {.help = "auto: to the CPUs and memory of the GPU's NUMA node",
             .meaning = "Whether ranks are bound to CPUs and memory next to the GPU",
             .added = true,
             .last = true}),
    setting(
        &RunConfig::update, "update", SettingGroup::several_ranks,
        {.help = "average gradients, or train each rank for itself",
         .meaning = "With several ranks: gradients averaged every step, or each rank for itself",
         .decides = Decides::layout,
         .added = true}),
    setting(&RunConfig::ranks, "ranks", SettingGroup::several_ranks,
            {.help = "refuse any other number of ranks; 0: any",
             .meaning = "Number of ranks that there must be; 0: any number",
             .range = at_least(0),
             .most = 1e6,
             .commands = in_run,
             .repeated = false,
             .added = true,
             .last = true}),
    setting(&RunConfig::bucket_mib, "bucket_mib", SettingGroup::several_ranks,
            {.help = "gradients sent at once; 0: all at the end; auto: measured",
             .meaning = "Size of the parts of the gradient that are sent while the backward "
                        "pass goes on; null: as measured",
             .range = at_least(0),
             .most = 65536,
             .takes_auto = true,
             .needs = Needs::exchange,
             .added = true}),
    setting(&RunConfig::gradient_type, "gradient_type", SettingGroup::several_ranks,
            {.help = "gradients travel as fp32, bf16, fp16, or as computed",
             .value = "TYPE",
             .meaning = "Type in which gradients travel between ranks; computed: as the "
                        "backward pass leaves them",
             .decides = Decides::layout,
             .needs = Needs::exchange,
             .added = true}),
    setting(&RunConfig::all_reduce, "all_reduce", SettingGroup::several_ranks,
            {.help = "hierarchical: MPI between hosts; host: not over NVLink",
             .meaning = "What sums the gradients of GPUs: NCCL alone (nccl; auto: the same), "
                        "hierarchical: NCCL inside a host and MPI between hosts, or host: copy "
                        "engines through the memory of one host",
             .names = without(AllReduceKind::mpi),
             .only_for = Device::cuda,
             .needs = Needs::exchange,
             .added = true}),
    setting(&RunConfig::nccl_algorithm, "nccl_algorithm", SettingGroup::several_ranks,
            {.help = "NCCL must sum by it, as is checked; auto: its choice",
             .meaning = "Algorithm by which NCCL must sum the gradients; auto: its choice",
             .only_for = Device::cuda,
             .needs = Needs::exchange,
             .added = true}),
    setting(&RunConfig::forward_only, "forward_only", SettingGroup::work,
            {.help = "forward pass of training, and loss",
             .meaning = "Forward pass and loss alone, batch norm by the statistics of the batch",
             .decides = Decides::work,
             .key_place = 1}),
    setting(&RunConfig::inference, "inference", SettingGroup::work,
            {.help = "evaluate: batch norms folded into convolutions, no loss; with latency",
             .meaning = "Batch norm by running statistics, folded into convolutions, and no loss",
             .decides = Decides::work,
             .key_place = 1,
             .commands = in_run | in_sweep | in_export | in_micro,
             .added = true}),
    setting(&RunConfig::verify, "verify", SettingGroup::length,
            {.help = "prove that the network memorises a small set", .proves = true}),
    setting(&RunConfig::profile, "profile", SettingGroup::length,
            {.help = "show where the step goes", .proves = true}),
    setting(&RunConfig::attribute, "attribute", SettingGroup::length,
            {.help = "time the machine, for compare to say why runs differ",
             .meaning = "Time the machine right after the window",
             .decides = Decides::display,
             .added = true}),
    setting(&RunConfig::plan_cache, "plan_cache", SettingGroup::files,
            {.help = "plans of earlier runs [~/.cache/nearmetal/plans.json]",
             .value = "FILE|off",
             .decides = Decides::display,
             .commands = in_all_but_stress,
             .repeated = false}),
    setting(&RunConfig::plans, "plans", SettingGroup::files,
            {.help = "use exactly the plans of this report",
             .value = "REPORT",
             .meaning = "Report whose plans are pinned",
             .decides = Decides::display,
             .commands = in_all_but_stress,
             .repeated = false}),
    setting(&RunConfig::output, "output", SettingGroup::files,
            {.help = "of the report; - is stdout",
             .value = "FILE",
             .decides = Decides::display,
             .commands = in_run,
             .repeated = false}),
    setting(&RunConfig::environment, "environment", SettingGroup::evidence,
            {.help = "what this machine is, to hold against what is found",
             .meaning = "What the user says that the machine is",
             .decides = Decides::display,
             .repeated = false,
             .added = true}),
    setting(&RunConfig::host_facts, "host_facts", SettingGroup::evidence,
            {.help = "JSON object by the host's operator: what only the host sees",
             .value = "FILE",
             .meaning = "File by the operator of the host",
             .decides = Decides::display,
             .repeated = false,
             .added = true}),
    setting(&RunConfig::no_host_info, "no_host_info", SettingGroup::evidence,
            {.help = "leave out names, addresses and ids of hosts, and folders",
             .meaning = "Host names, network addresses, UUIDs and serial numbers are left out, "
                        "and of absolute paths all but the name of the file",
             .decides = Decides::display,
             .repeated = false,
             .added = true}),
    setting(&RunConfig::monitor_hz, "monitor_hz", SettingGroup::evidence,
            {.help = "samples of clocks, power and CPU per second; 0: none",
             .meaning = "Samples per second of the timed window; 0: none",
             .range = at_least(0),
             .most = 100,
             .decides = Decides::display,
             .repeated = false,
             .added = true}),
    setting(&RunConfig::force, "force", SettingGroup::files,
            {.help = "replace an existing report",
             .decides = Decides::display,
             .commands = in_run,
             .repeated = false}),
    setting(&RunConfig::json, "json", SettingGroup::files,
            {.help = "only the report, on stdout",
             .decides = Decides::display,
             .commands = in_run,
             .repeated = false}),
    setting(&RunConfig::quiet, "quiet", SettingGroup::files,
            {.help = "no remarks and no progress",
             .decides = Decides::display,
             .commands = in_run,
             .repeated = false}),
    setting(&RunConfig::no_progress, "no_progress", SettingGroup::files,
            {.help = "no progress line",
             .decides = Decides::display,
             .commands = in_run,
             .repeated = false})};

/// Calls visit(setting, member) for each, where `member` is a pointer to a member of RunConfig.
template <class Visitor>
void for_each_setting(Visitor&& visit) {
  std::apply([&](const auto&... each) { (visit(each.second, each.first), ...); }, settings_of_run);
}

/// Calls visit(setting, value) for each, where `value` is its value in `config`, const or not.
template <class Visitor, class Config>
void visit_settings(Visitor&& visit, Config& config) {
  for_each_setting([&](const Setting& setting, auto member) { visit(setting, config.*member); });
}

/// Its option: --image-size of image_size, and of a time that without the unit.
std::string flag_of(const Setting& setting);

/// Its name in layout files: that of the option, image_size.
std::string layout_name_of(const Setting& setting);

/// Whether it is a time, in seconds.
bool is_time(const Setting& setting);

/// Whether the jobs of a layout cannot differ in it: it says what is shown, kept or proven of the
/// run that they are together.
bool holds_for_all_jobs(const Setting& setting);

/// Whether they ask for the same work, whatever its length and means: what both do adds.
bool same_work(const RunConfig& a, const RunConfig& b);

/// A configuration, and which of its settings somebody chose, by name, in the order of the choices.
struct Workload {
  RunConfig config;
  std::vector<std::string> given{};

  bool is_given(const std::string& name) const;
};

/// Of every setting: `given` by a flag, the others as nobody chose them.
Origins origins_of(const std::vector<std::string>& given = {});

}  // namespace nearmetal
