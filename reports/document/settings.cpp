#include "reports/document/settings.h"

#include <charconv>
#include <stdexcept>
#include <string_view>

namespace nearmetal {
namespace {

constexpr std::string_view unit_of_times = "_seconds";

constexpr Setting setting(SettingMember member, const char* name, SettingGroup group,
                          Setting rest) {
  rest.member = member;
  rest.name = name;
  rest.group = group;
  return rest;
}

constexpr Setting work_setting(SettingMember member, const char* name, SettingGroup group,
                               Setting rest) {
  rest.decides = Decides::work;
  return setting(member, name, group, rest);
}

// Of the update, which inference has none of.
constexpr Setting update_setting(SettingMember member, const char* name, Setting rest) {
  rest.key_place = 4;
  rest.commands = in_run | in_sweep | in_export;
  rest.needs = Needs::training;
  return work_setting(member, name, SettingGroup::optimizer, rest);
}

// Of a network that is cut into stages.
constexpr Setting pipeline_setting(SettingMember member, const char* name, Setting rest) {
  rest.key_place = 5;
  rest.needs = Needs::training;
  rest.added = rest.last = true;
  return work_setting(member, name, SettingGroup::several_ranks, rest);
}

// Of another machine or another run it has no meaning.
constexpr Setting display_setting(SettingMember member, const char* name, SettingGroup group,
                                  Setting rest) {
  rest.decides = Decides::display;
  rest.repeated = false;
  return setting(member, name, group, rest);
}

// In the order of documents.
constexpr std::array table{
    work_setting(&RunConfig::model, "model", SettingGroup::work,
                 {.help = "resnet18, vgg16, vit_b_16, bert_base, ...; see models",
                  .value = "NAME",
                  .commands = in_all_but_stress}),
    work_setting(&RunConfig::device, "device", SettingGroup::place,
                 {.help = "auto: cuda if an NVIDIA device is visible",
                  .resolved = true,
                  .commands = in_run | in_export | in_micro | in_stress}),
    setting(&RunConfig::gpu, "gpu", SettingGroup::place,
            {.help = "index among the visible GPUs",
             .meaning = "Index among the visible GPUs",
             .range = at_least(0),
             .most = 1023,
             .commands = in_run | in_export | in_micro | in_stress,
             .only_for = Device::cuda}),
    work_setting(&RunConfig::precision, "precision", SettingGroup::work,
                 {.help = "type of activations and products [cuda: fp16, cpu: fp32]",
                  .meaning = "Precision of activations and of the operands of products",
                  .commands = in_all_but_stress}),
    work_setting(
        &RunConfig::batch, "batch", SettingGroup::work,
        {.help = "auto: the most that fit [256, cpu: 16; sequences: 32, cpu: 4]",
         .meaning =
             "Images or sequences of a rank at once: a step, or a micro-batch; null: none fits",
         .range = at_least(1),
         .most = 1e6,
         .takes_auto = true,
         .automatic = largest_that_fits,
         .commands = in_all_but_stress}),
    work_setting(&RunConfig::image_size, "image_size", SettingGroup::work,
                 {.help = "height and width in pixels",
                  .meaning = "Height and width in pixels",
                  .range = at_least(1),
                  .most = 16384,
                  .commands = in_all_but_stress}),
    work_setting(&RunConfig::classes, "classes", SettingGroup::work,
                 {.help = "number of classes",
                  .range = at_least(2),
                  .most = 1e6,
                  .commands = in_all_but_stress}),
    setting(&RunConfig::steps, "steps", SettingGroup::length,
            {.help = "timed steps, instead of --duration",
             .meaning = "Steps of the timed window; null: by duration_seconds",
             .range = at_least(1),
             .most = most_steps}),
    setting(&RunConfig::duration_seconds, "duration_seconds", SettingGroup::length,
            {.help = "length of the timed window: 30, 30s, 2m",
             .meaning = "Length of the timed window, about",
             .range = above(0)}),
    setting(&RunConfig::warmup, "warmup", SettingGroup::length,
            {.help = "minimum warm-up steps; more until steady [cuda: 120, cpu: 3]",
             .meaning = "Fewest steps before the timed window",
             .range = at_least(1),
             .most = most_steps}),
    work_setting(
        &RunConfig::input, "input", SettingGroup::work,
        {.help = "memory of the images; host is pinned, pageable is not",
         .meaning = "Where the images stay; host, pageable: copied every step, from memory "
                    "that is pinned or not",
         .key_place = 2,
         .last = true}),
    work_setting(&RunConfig::launch, "launch", SettingGroup::place,
                 {.help = "the step as one CUDA graph, or kernel by kernel [graph]",
                  .meaning = "How GPU work is launched; null on the CPU",
                  .names = without(LaunchMode::call),
                  .key_place = 2,
                  .commands = in_all_but_stress,
                  .only_for = Device::cuda,
                  .last = true}),
    work_setting(&RunConfig::host_wait, "host_wait", SettingGroup::place,
                 {.help = "how the host waits: CUDA's choice, or asleep until woken",
                  .meaning = "How the host waits for a step of a GPU: as CUDA chooses, or asleep "
                             "until an interrupt",
                  .key_place = 2,
                  .only_for = Device::cuda,
                  .added = true,
                  .last = true}),
    work_setting(
        &RunConfig::kernels, "kernels", SettingGroup::work,
        {.help = "cudnn: NVIDIA's libraries alone where they can",
         .meaning = "Which kernels may serve: the fastest, those of this program among them, "
                    "or cuDNN's and cuBLASLt's alone wherever they have the operation",
         .key_place = 2,
         .commands = in_all_but_stress,
         .only_for = Device::cuda,
         .added = true,
         .last = true}),
    work_setting(&RunConfig::accumulate, "accumulate", SettingGroup::work,
                 {.help = "micro-batches of --batch samples before an update",
                  .meaning = "Micro-batches of a step, each of `batch` samples, with one update",
                  .range = at_least(1),
                  .most = 4096,
                  .key_place = 2,
                  .added = true,
                  .last = true}),
    update_setting(&RunConfig::learning_rate, "learning_rate",
                   {.help = "constant [sgd: batch / 64 / features, at most 0.1; adamw: 5e-5]",
                    .range = at_least(0),
                    .most = 1e6}),
    update_setting(&RunConfig::momentum, "momentum",
                   {.help = "momentum of SGD", .range = within(0, 1), .most = 1}),
    update_setting(
        &RunConfig::weight_decay, "weight_decay",
        {.help = "decay [sgd: 1e-4, of all parameters; adamw: 0.01, of matrices]",
         .meaning = "Weight decay; sgd: L2, of every parameter; adamw: decoupled, of matrices",
         .range = at_least(0),
         .most = 1}),
    work_setting(&RunConfig::zero_init, "zero_init", SettingGroup::optimizer,
                 {.help = "start the last scale of each residual block at 0",
                  .meaning = "The last scale of each residual branch starts at 0",
                  .key_place = 3,
                  .commands = in_run | in_sweep | in_export}),
    work_setting(&RunConfig::loss_scale, "loss_scale", SettingGroup::optimizer,
                 {.help = "loss scale of fp16 [8 x sqrt(batch), with --zero-init 1024]",
                  .value = "N|dynamic",
                  .key_place = 3,
                  .commands = in_run | in_sweep | in_export}),
    setting(&RunConfig::seed, "seed", SettingGroup::work,
            {.help = "random seed of parameters, images and labels",
             .range = at_least(0),
             .most = 9007199254740991,
             .commands = in_all_but_stress}),
    setting(&RunConfig::threads, "threads", SettingGroup::place,
            {.help = "CPU threads; 0: all that the process may use",
             .meaning = "Threads of the CPU backend; 0: all that the process may use",
             .range = at_least(0),
             .most = 4096,
             .commands = in_all_but_stress,
             .only_for = Device::cpu}),
    setting(&RunConfig::bind, "bind", SettingGroup::place,
            {.help = "auto: bind each rank to the NUMA node of its GPU",
             .meaning = "Whether ranks are bound to CPUs and memory next to the GPU",
             .added = true,
             .last = true}),
    setting(
        &RunConfig::update, "update", SettingGroup::several_ranks,
        {.help = "average gradients, or train a network per rank",
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
            {.help = "size of gradient buckets; 0: one, at the end; auto: measure",
             .meaning = "Size of the parts of the gradient that are sent while the backward "
                        "pass goes on; null: as measured, where a run did not come to choose, and "
                        "in earlier reports",
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
            {.help = "hierarchical: MPI between hosts; auto: time nccl, host [nccl]",
             .meaning = "What sums the gradients of GPUs: NCCL alone (nccl), hierarchical: NCCL "
                        "inside a host and MPI between hosts, or host: copy engines through the "
                        "memory of one host; auto: the faster of nccl and host, where a run did "
                        "not come to choose, and in earlier reports nccl; null on the CPU",
             .names = without(AllReduceKind::mpi),
             .only_for = Device::cuda,
             .needs = Needs::exchange,
             .added = true}),
    setting(&RunConfig::nccl_algorithm, "nccl_algorithm", SettingGroup::several_ranks,
            {.help = "fail unless NCCL sums by it; auto: NCCL chooses",
             .meaning = "Algorithm by which NCCL must sum the gradients; auto: its choice",
             .only_for = Device::cuda,
             .needs = Needs::exchange,
             .added = true}),
    work_setting(
        &RunConfig::forward_only, "forward_only", SettingGroup::work,
        {.help = "only the forward pass of training, with its loss",
         .meaning = "Forward pass and loss alone, batch norm by the statistics of the batch",
         .key_place = 1}),
    work_setting(
        &RunConfig::inference, "inference", SettingGroup::work,
        {.help = "evaluate, with batch norms folded; run also measures latency",
         .meaning = "Batch norm by running statistics, folded into convolutions, and no loss",
         .key_place = 1,
         .commands = in_run | in_sweep | in_export | in_micro,
         .added = true}),
    setting(&RunConfig::verify, "verify", SettingGroup::length,
            {.help = "prove that the network memorises a small set", .proves = true}),
    setting(&RunConfig::profile, "profile", SettingGroup::length,
            {.help = "show where the time of a step goes", .proves = true}),
    setting(&RunConfig::attribute, "attribute", SettingGroup::length,
            {.help = "time the machine too, so that compare can explain differences",
             .meaning = "Time the machine right after the window",
             .decides = Decides::display,
             .added = true}),
    setting(&RunConfig::digest, "digest", SettingGroup::length,
            {.help = "hash the bits of a few steps, to find devices that compute wrong",
             .decides = Decides::display,
             .added = true}),
    display_setting(&RunConfig::plan_cache, "plan_cache", SettingGroup::files,
                    {.help = "kernel choices of earlier runs [~/.cache/nearmetal/plans.json]",
                     .value = "FILE|off",
                     .commands = in_all_but_stress}),
    display_setting(&RunConfig::plans, "plans", SettingGroup::files,
                    {.help = "use exactly the kernel choices (plans) of this report",
                     .value = "REPORT",
                     .meaning = "Report whose plans are pinned",
                     .commands = in_all_but_stress}),
    display_setting(&RunConfig::output, "output", SettingGroup::files,
                    {.help = "report file; - is stdout", .value = "FILE", .commands = in_run}),
    display_setting(&RunConfig::environment, "environment", SettingGroup::evidence,
                    {.help = "declare what this machine is; a mismatch is a warning",
                     .meaning = "Kind of machine that the user claims it to be",
                     .added = true}),
    display_setting(&RunConfig::host_facts, "host_facts", SettingGroup::evidence,
                    {.help = "JSON object with facts that only the host's operator knows",
                     .value = "FILE",
                     .meaning = "File by the operator of the host",
                     .added = true}),
    display_setting(
        &RunConfig::no_host_info, "no_host_info", SettingGroup::evidence,
        {.help = "leave out names, addresses and ids of hosts, and folders",
         .meaning = "Host names, network addresses, UUIDs and serial numbers are left out, "
                    "and of absolute paths all but the name of the file",
         .added = true}),
    display_setting(&RunConfig::monitor_hz, "monitor_hz", SettingGroup::evidence,
                    {.help = "samples of clocks, power and CPU per second; 0: none",
                     .meaning = "Samples per second of the timed window; 0: none",
                     .range = at_least(0),
                     .most = 100,
                     .added = true}),
    display_setting(&RunConfig::force, "force", SettingGroup::files,
                    {.help = "replace an existing report", .commands = in_run}),
    display_setting(&RunConfig::json, "json", SettingGroup::files,
                    {.help = "print the report alone, on stdout", .commands = in_run}),
    display_setting(&RunConfig::quiet, "quiet", SettingGroup::files,
                    {.help = "print no remarks and no progress", .commands = in_run}),
    display_setting(&RunConfig::no_progress, "no_progress", SettingGroup::files,
                    {.help = "print no progress line", .commands = in_run}),
    pipeline_setting(
        &RunConfig::pipeline, "pipeline",
        {.help = "cut the network into N stages, each on a rank of its own",
         .meaning = "Stages into which the network is cut, each on a rank of its own; so many "
                    "ranks are one replica of the network",
         .range = at_least(1),
         .most = 1024,
         .commands = in_run | in_sweep | in_export}),
    pipeline_setting(
        &RunConfig::micro_batches, "micro_batches",
        {.help = "micro-batches of --batch samples in each update",
         .meaning = "Micro-batches of a step, each of `batch` samples, that go through the "
                    "stages one behind another; 1 with several stages: model parallel, of "
                    "which nothing overlaps",
         .range = at_least(1),
         .most = 1024}),
    pipeline_setting(
        &RunConfig::schedule, "schedule",
        {.help = "order of the stages' work; 1f1b holds fewer activations",
         .meaning = "Order of the stages' work: gpipe: all forward passes first, 1f1b: a "
                    "backward pass as soon as there is one"}),
    pipeline_setting(
        &RunConfig::cuts, "cuts",
        {.help = "last layers of stages: layer2.3,layer3.2 [by measured times]",
         .value = "LAYERS",
         .meaning = "The layers behind which the network is cut, in their order; null: there "
                    "is one stage, or a run did not get as far as to balance them"}),
    work_setting(&RunConfig::sequence, "sequence", SettingGroup::work,
                 {.help = "tokens per sequence, of networks that read sequences [384]",
                  .meaning = "Tokens of a sequence; null: the network reads images",
                  .range = within(8, 512),
                  .most = 512,
                  .commands = in_all_but_stress,
                  .added = true,
                  .last = true}),
    update_setting(
        &RunConfig::optimizer, "optimizer",
        {.help = "update rule [transformers: adamw, other networks: sgd]",
         .meaning = "Rule by which parameters are updated; null, as in earlier reports: sgd",
         .added = true,
         .last = true})};

// A number of steps stands in place of the time.
bool has_effect(const Setting& setting, const RunConfig& config) {
  if (setting.only_for && *setting.only_for != config.device) return false;
  return !is_time(setting) || !config.steps;
}

// None for a toggle that is off, and where nothing was chosen.
template <class T>
void append_flag(std::vector<std::string>& arguments, const Setting& setting, const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    if (value) arguments.push_back(flag_of(setting));
  } else {
    const std::optional<std::string> text = setting_text(setting, value);
    if (text) arguments.push_back(flag_of(setting) + "=" + *text);
  }
}

}  // namespace

bool is_time(const Setting& setting) {
  return std::string_view(setting.name).ends_with(unit_of_times);
}

bool holds_for_all_jobs(const Setting& setting) {
  return setting.proves || setting.decides == Decides::display;
}

std::string layout_name_of(const Setting& setting) {
  const std::string name = setting.name;
  return is_time(setting) ? name.substr(0, name.size() - unit_of_times.size()) : name;
}

std::string flag_of(const Setting& setting) {
  std::string name = layout_name_of(setting);
  std::ranges::replace(name, '_', '-');
  return "--" + name;
}

std::span<const Setting> settings_of_run() { return table; }

bool Workload::is_given(const std::string& name) const {
  return std::find(given.begin(), given.end(), name) != given.end();
}

Origins origins_of(const std::vector<std::string>& given) {
  Origins origins;
  for (const Setting& setting : settings_of_run()) {
    origins[setting.name] = Origin::standard;
  }
  for (const std::string& name : given) origins.at(name) = Origin::flag;
  return origins;
}

std::string setting_text(const Setting&, const std::string& value) { return value; }
std::string setting_text(const Setting&, int64_t value) { return std::to_string(value); }

// The shortest text that reads back as the same number.
std::string setting_text(const Setting& setting, double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  return std::string(text.data(), end.ptr) + (is_time(setting) ? "s" : "");
}

std::string setting_text(const Setting& setting, const LossScale& scale) {
  if (!scale.dynamic) return setting_text(setting, scale.initial);
  if (scale.initial == initial_of_dynamic) return "dynamic";
  throw std::invalid_argument("a dynamic loss scale that starts at " +
                              setting_text(setting, scale.initial) + " cannot be asked for again");
}

std::vector<std::string> options_left_open(const RunConfig& config) {
  std::vector<std::string> options;
  if (config.batch == largest_that_fits) options.emplace_back("--batch");
  if (config.all_reduce == AllReduceKind::automatic) options.emplace_back("--all-reduce");
  if (!config.bucket_mib) options.emplace_back("--bucket-mib");
  if (config.pipeline > 1 && !config.cuts) options.emplace_back("--cuts");
  return options;
}

Workload repeated_workload(const RunConfig& config) {
  Workload workload;
  for_each_setting([&](const Setting& setting, auto member) {
    if (!setting.repeated || !has_effect(setting, config)) return;
    std::vector<std::string> flags;
    append_flag(flags, setting, config.*member);
    if (flags.empty()) return;
    workload.config.*member = config.*member;
    workload.given.emplace_back(setting.name);
  });
  return workload;
}

std::vector<std::string> run_arguments(const Workload& workload) {
  std::vector<std::string> arguments = {"run"};
  for (const std::string& name : workload.given) {
    visit_settings(
        [&](const Setting& setting, const auto& value) {
          if (setting.name == name) append_flag(arguments, setting, value);
        },
        workload.config);
  }
  return arguments;
}

}  // namespace nearmetal
