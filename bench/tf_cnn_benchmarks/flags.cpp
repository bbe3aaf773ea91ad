#include "bench/tf_cnn_benchmarks/flags.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <stdexcept>

#include "base/text.h"

namespace nearmetal {
namespace {

constexpr const char* no_input = "images are synthetic and stay on the device";
constexpr const char* no_tensorflow = "there is no TensorFlow graph or runtime";
constexpr const char* no_evaluation = "nothing is evaluated";
constexpr const char* no_such_optimizer = "for rmsprop and adam, which nearmetal does not have";
constexpr const char* buckets_decide = "left to NCCL and nearmetal's buckets";
constexpr const char* cpu_libraries_decide = "left to oneDNN and OpenMP";
constexpr const char* no_checkpoints = "nothing is written to train_dir";
constexpr const char* use_profile = "nearmetal run --profile shows where a step goes";
constexpr const char* no_absl_log = "nearmetal does not log through absl";
constexpr const char* fixed_rate = "the learning rate is fixed: give --init_learning_rate";
constexpr const char* no_servers =
    "there are no servers: start a process for each GPU by mpirun, or give --num_gpus";

using enum TfFlagKind;
using enum TfFlagClass;

// The flags of its last version, and of absl, which parses them.
constexpr TfFlag table[] = {
    {"all_reduce_spec", text, mapped, "", "nccl, as nearmetal does"},
    {"autotune_threshold", integer, mapped, "",
     "--warmup is 5 times its square, where that is more than 10"},
    {"batch_size", integer, mapped, "0", "--batch per GPU; 0: the model's default"},
    {"compact_gradient_transfer", boolean, mapped, "true", "false: --gradient-type fp32"},
    {"data_name", text, mapped, "", "imagenet: 224 x 224 pixels, 1001 classes"},
    {"device", text, mapped, "gpu", "--device", "cpu|gpu|CPU|GPU"},
    {"display_every", integer, mapped, "10", "number of steps between two printed lines"},
    {"forward_only", boolean, mapped, "false", "--inference; steps print a loss of 0, as there"},
    {"fp16_enable_auto_loss_scale", boolean, mapped, "false", "--loss-scale dynamic"},
    {"fp16_loss_scale", number, mapped, "", "--loss-scale; default: nearmetal's"},
    {"gpu_indices", text, mapped, "", "--gpu for one GPU; for several set CUDA_VISIBLE_DEVICES"},
    {"gradient_repacking", integer, mapped, "0",
     "--bucket-mib that gives so many buckets; 0: nearmetal's default"},
    {"horovod_device", text, mapped, "", "gpu, as nearmetal does"},
    {"init_learning_rate", number, mapped, "",
     "--learning-rate, which is constant; default: nearmetal's"},
    {"model", text, mapped, "trivial", "--model; resnet50 there is resnet50_v1 here"},
    {"momentum", number, mapped, "0.9", "--momentum, with --optimizer=momentum"},
    {"num_batches", integer, mapped, "", "--steps; default: 100"},
    {"num_epochs", number, mapped, "", "--steps, at 1,281,167 images per epoch"},
    {"num_gpus", integer, mapped, "1",
     "number of ranks that nearmetal starts; 1 under mpirun, where each process is a rank"},
    {"num_intra_threads", integer, mapped, "", "--threads, on CPUs"},
    {"num_warmup_batches", integer, mapped, "", "--warmup, a minimum of at least 1; default: 10"},
    {"optimizer", text, mapped, "sgd", "sgd: --momentum 0; momentum: without Nesterov's step",
     "momentum|sgd|rmsprop|adam"},
    {"tf_random_seed", integer, mapped, "1234", "--seed"},
    {"use_fp16", boolean, mapped, "false", "--precision fp16, else fp32"},
    {"variable_update", text, mapped, "parameter_server",
     "gradients are averaged by an all-reduce, or --update independent",
     "parameter_server|replicated|distributed_replicated|independent|distributed_all_reduce|"
     "collective_all_reduce|horovod"},
    {"weight_decay", number, mapped, "4e-5", "--weight-decay; norms decay, too"},
    {"adam_beta1", number, without_effect, "0.9", no_such_optimizer},
    {"adam_beta2", number, without_effect, "0.999", no_such_optimizer},
    {"adam_epsilon", number, without_effect, "1e-8", no_such_optimizer},
    {"agg_small_grads_max_bytes", integer, without_effect, "0", buckets_decide},
    {"agg_small_grads_max_group", integer, without_effect, "10", buckets_decide},
    {"allow_growth", boolean, without_effect, "", no_tensorflow},
    {"allreduce_merge_scope", integer, without_effect, "1", buckets_decide},
    {"alsologtostderr", boolean, without_effect, "false", no_absl_log},
    {"batch_group_size", integer, without_effect, "1", no_input},
    {"batchnorm_persistent", boolean, without_effect, "true", no_tensorflow},
    {"benchmark_log_dir", text, without_effect, "",
     "the report is one file, named by -- --output FILE"},
    {"benchmark_test_id", text, without_effect, "", "the report has no place for it"},
    {"collect_eval_results_async", boolean, without_effect, "false", no_evaluation},
    {"compute_lr_on_cpu", boolean, without_effect, "false", no_tensorflow},
    {"data_format", text, without_effect, "NCHW", "NHWC, or the layout that cuDNN or oneDNN needs",
     "NHWC|NCHW"},
    {"datasets_num_private_threads", integer, without_effect, "", no_input},
    {"datasets_parallel_interleave_cycle_length", integer, without_effect, "", no_input},
    {"datasets_parallel_interleave_prefetch", integer, without_effect, "", no_input},
    {"datasets_prefetch_buffer_size", integer, without_effect, "1", no_input},
    {"datasets_repeat_cached_sample", boolean, without_effect, "false", no_input},
    {"datasets_sloppy_parallel_interleave", boolean, without_effect, "false", no_input},
    {"datasets_use_caching", boolean, without_effect, "false", no_input},
    {"datasets_use_prefetch", boolean, without_effect, "true", no_input},
    {"display_perf_ewma", number, without_effect, "", "means always begin after the warm-up"},
    {"distort_color_in_yiq", boolean, without_effect, "true", no_input},
    {"distortions", boolean, without_effect, "false", no_input},
    {"enable_optimizations", boolean, without_effect, "true", no_tensorflow},
    {"eval_batch_size", integer, without_effect, "0", no_evaluation},
    {"eval_dir", text, without_effect, "/tmp/tf_cnn_benchmarks/eval", no_evaluation},
    {"eval_interval_secs", integer, without_effect, "0", no_evaluation},
    {"flush_stdout", boolean, without_effect, "false",
     "a flag of earlier versions; lines are always flushed"},
    {"force_gpu_compatible", boolean, without_effect, "false", no_tensorflow},
    {"freeze_when_forward_only", boolean, without_effect, "false", no_evaluation},
    {"fuse_decode_and_crop", boolean, without_effect, "true", no_input},
    {"gpu_kt_max_bytes", integer, without_effect, "0", no_tensorflow},
    {"gpu_kt_max_interval", integer, without_effect, "0", no_tensorflow},
    {"gpu_kt_max_pending", integer, without_effect, "0", no_tensorflow},
    {"gpu_memory_frac_for_testing", number, without_effect, "0", no_tensorflow},
    {"gpu_thread_mode", text, without_effect, "gpu_private", no_tensorflow},
    {"graph_file", text, without_effect, "", no_tensorflow},
    {"hierarchical_copy", boolean, without_effect, "false", buckets_decide},
    {"input_preprocessor", text, without_effect, "default", no_input},
    {"kmp_affinity", text, without_effect, "granularity=fine,verbose,compact,1,0",
     cpu_libraries_decide},
    {"kmp_blocktime", integer, without_effect, "0", cpu_libraries_decide},
    {"kmp_settings", integer, without_effect, "1", cpu_libraries_decide},
    {"local_parameter_device", text, without_effect, "gpu", "parameters stay on each device",
     "cpu|gpu|CPU|GPU"},
    {"log_dir", text, without_effect, "", no_absl_log},
    {"logtostderr", boolean, without_effect, "false", no_absl_log},
    {"loss_type_to_report", text, without_effect, "total_loss",
     "the loss is the base loss, without weight decay", "base_loss|total_loss"},
    {"max_ckpts_to_keep", integer, without_effect, "5", no_checkpoints},
    {"mkl", boolean, without_effect, "false", cpu_libraries_decide},
    {"ml_perf", boolean, without_effect, "false", no_input},
    {"ml_perf_compliance_logging", boolean, without_effect, "false", "MLPerf's log is not written"},
    {"multi_device_iterator_max_buffer_size", integer, without_effect, "1", no_input},
    {"network_topology", text, without_effect, "dgx1", buckets_decide, "dgx1|gcp_v100"},
    {"num_eval_batches", integer, without_effect, "", no_evaluation},
    {"num_eval_epochs", number, without_effect, "", no_evaluation},
    {"num_inter_threads", integer, without_effect, "0", no_tensorflow},
    {"partitioned_graph_file_prefix", text, without_effect, "", no_tensorflow},
    {"per_gpu_thread_count", integer, without_effect, "0", no_tensorflow},
    {"print_training_accuracy", boolean, without_effect, "false",
     "labels are random, so that there is no accuracy to report"},
    {"resize_method", text, without_effect, "bilinear", no_input},
    {"rewriter_config", text, without_effect, "", no_tensorflow},
    {"rmsprop_decay", number, without_effect, "0.9", no_such_optimizer},
    {"rmsprop_epsilon", number, without_effect, "1", no_such_optimizer},
    {"rmsprop_momentum", number, without_effect, "0.9", no_such_optimizer},
    {"save_model_secs", integer, without_effect, "0", no_checkpoints},
    {"save_model_steps", integer, without_effect, "", no_checkpoints},
    {"save_summaries_steps", integer, without_effect, "0", no_checkpoints},
    {"server_protocol", text, without_effect, "grpc", no_tensorflow},
    {"single_l2_loss_op", boolean, without_effect, "false", no_tensorflow},
    {"sparse_to_dense_grads", boolean, without_effect, "false", no_tensorflow},
    {"staged_vars", boolean, without_effect, "false", no_tensorflow},
    {"stderrthreshold", text, without_effect, "fatal", no_absl_log},
    {"summary_verbosity", integer, without_effect, "0", no_checkpoints},
    {"sync_on_finish", boolean, without_effect, "false", "steps follow one another on the device"},
    {"tfprof_file", text, without_effect, "", use_profile},
    {"timestamped_allocator", boolean, without_effect, "false", no_tensorflow},
    {"trace_file", text, without_effect, "", use_profile},
    {"train_dir", text, without_effect, "", no_checkpoints},
    {"trt_max_workspace_size_bytes", integer, without_effect, "4294967296", no_tensorflow},
    {"use_chrome_trace_format", boolean, without_effect, "true", no_tensorflow},
    {"use_datasets", boolean, without_effect, "true", no_input},
    {"use_nccl", boolean, without_effect, "true", "a flag of earlier versions; left to NCCL"},
    {"use_numa_affinity", boolean, without_effect, "false",
     "ranks keep to the CPUs of their GPU (--bind)"},
    {"use_python32_barrier", boolean, without_effect, "false", no_tensorflow},
    {"use_resource_vars", boolean, without_effect, "false", no_tensorflow},
    {"use_tf_layers", boolean, without_effect, "true", no_tensorflow},
    {"verbosity", integer, without_effect, "-1", no_absl_log},
    {"winograd_nonfused", boolean, without_effect, "true", no_tensorflow},
    {"xla", boolean, without_effect, "false", no_tensorflow},
    {"xla_compile", boolean, without_effect, "false", no_tensorflow},
    {"backbone_model_path", text, refused, "", "there is no SSD"},
    {"controller_host", text, refused, "", no_servers},
    {"cross_replica_sync", boolean, refused, "true", "ranks are always in step"},
    {"data_dir", text, refused, "", "images are synthetic, and no file is read"},
    {"debugger", text, refused, "", "there is no TensorFlow to debug"},
    {"eval", boolean, refused, "false", "there is no evaluation"},
    {"eval_during_training_at_specified_epochs", text, refused, "", "there is no evaluation"},
    {"eval_during_training_at_specified_steps", text, refused, "", "there is no evaluation"},
    {"eval_during_training_every_n_epochs", number, refused, "", "there is no evaluation"},
    {"eval_during_training_every_n_steps", integer, refused, "", "there is no evaluation"},
    {"flagfile", text, refused, "", "flags are read from the command line alone"},
    {"fp16_inc_loss_scale_every_n", integer, refused, "1000",
     "a dynamic loss scale doubles after 2,000 steps"},
    {"fp16_vars", boolean, refused, "false", "master weights are always fp32"},
    {"gradient_clip", number, refused, "", "gradients are not clipped"},
    {"job_name", text, refused, "", no_servers, "ps|worker|controller"},
    {"learning_rate_decay_factor", number, refused, "0", fixed_rate},
    {"minimum_learning_rate", number, refused, "0", fixed_rate},
    {"num_epochs_per_decay", number, refused, "0", fixed_rate},
    {"num_learning_rate_warmup_epochs", number, refused, "0", fixed_rate},
    {"piecewise_learning_rate_schedule", text, refused, "", fixed_rate},
    {"ps_hosts", text, refused, "", no_servers},
    {"resnet_base_lr", number, refused, "", fixed_rate},
    {"stop_at_top_1_accuracy", number, refused, "", "there is no evaluation"},
    {"task_index", integer, refused, "0", no_servers},
    {"trt_mode", text, refused, "", "there is no TensorRT", "FP32|FP16|INT8"},
    {"undefok", text, refused, "", "unknown flags are refused"},
    {"use_unified_memory", boolean, refused, "", "unified memory is not used"},
    {"variable_consistency", text, refused, "strong", "updates are never applied late",
     "strong|relaxed"},
    {"worker_hosts", text, refused, "", no_servers},
    {"print", boolean, own, "false", "print nearmetal's command and run nothing"},
};

// Numbers that are written otherwise are the same: 4e-5, 0.00004.
bool same_value(const TfFlag& flag, const std::string& a, const std::string& b) {
  const bool is_number = flag.kind == integer || flag.kind == number;
  if (!is_number || a.empty() || b.empty()) return a == b;
  return parse_number<double>(flag.name, a, any_number) ==
         parse_number<double>(flag.name, b, any_number);
}

struct AbslWord {
  std::string name;
  std::optional<std::string> value{};  // behind "="
};

std::optional<AbslWord> flag_in(const std::string& word) {
  const size_t dashes = std::min<size_t>(word.find_first_not_of('-'), 2);
  if (dashes == 0 || dashes >= word.size()) return std::nullopt;
  const size_t equals = word.find('=');
  AbslWord flag{.name = word.substr(dashes, equals - dashes)};
  if (equals != word.npos) flag.value = word.substr(equals + 1);
  return flag;
}

bool is_boolean(const TfFlag* flag) { return flag != nullptr && flag->kind == TfFlagKind::boolean; }

const char* truth_of(const AbslWord& flag) {
  const std::string text = lower_case(flag.value.value_or("true"));
  constexpr std::array yes = {"true", "t", "1"}, no = {"false", "f", "0"};
  if (std::ranges::find(yes, text) != yes.end()) return "true";
  if (std::ranges::find(no, text) != no.end()) return "false";
  throw std::invalid_argument("--" + flag.name + " is true or false, not '" + *flag.value + "'");
}

// The flag that --noname negates; none where there is no such boolean.
std::optional<std::string> negated(const AbslWord& flag) {
  std::string name = flag.name.starts_with("no") ? flag.name.substr(2) : "";
  if (flag.value || !is_boolean(find_tf_flag(name))) return std::nullopt;
  return name;
}

[[noreturn]] void refuse_argument(const std::string& word, const std::string& before) {
  std::string text = "'" + word + "' is no flag";
  const auto flag = flag_in(before);
  if (flag && is_boolean(find_tf_flag(flag->name))) {
    text += "; a boolean has its value behind '=': --" + flag->name + "=" + word;
  }
  throw std::invalid_argument(text);
}

}  // namespace

std::span<const TfFlag> tf_flags() { return table; }

const TfFlag* find_tf_flag(const std::string& name) {
  const auto found = std::ranges::find(table, name, &TfFlag::name);
  return found == std::end(table) ? nullptr : found;
}

void check_tf_value(const TfFlag& flag, const std::string& value) {
  const std::string name = std::string("--") + flag.name;
  if (flag.kind == boolean) require_choice(name, value, {"true", "false"});
  if (flag.kind == integer) parse_number<int64_t>(name, value, any_number);
  if (flag.kind == number) parse_number<double>(name, value, any_number);
  if (*flag.choices == '\0') return;
  if (value.empty() && *flag.standard == '\0') return;
  require_choice(name, value, split(flag.choices, "|"));
}

std::string TfFlagValues::text(const std::string& name) const {
  const auto found = given.find(name);
  return found != given.end() ? found->second : find_tf_flag(name)->standard;
}

bool TfFlagValues::is_neutral(const TfFlag& flag) const {
  const std::string value = text(flag.name);
  if (value.empty() || same_value(flag, value, flag.standard)) return true;
  // No default is None, which Python takes as it takes 0; but not in a comparison with None.
  const bool asks_for_nothing =
      flag.kind == boolean ? value == "false" : same_value(flag, value, "0");
  return *flag.standard == '\0' && flag.name != std::string("gradient_clip") && asks_for_nothing;
}

std::vector<std::string> spelled_out(const std::vector<std::string>& words) {
  std::vector<std::string> spelled;
  const auto add = [&](const std::string& name, const std::string& value) {
    // An empty value would not be seen behind "=".
    if (value.empty()) return void(spelled.insert(spelled.end(), {"--" + name, value}));
    spelled.push_back("--" + name + "=" + value);
  };
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--") {
      spelled.insert(spelled.end(), words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
      break;
    }
    const auto flag = flag_in(words[i]);
    if (!flag) refuse_argument(words[i], i > 0 ? words[i - 1] : "");
    const TfFlag* known = find_tf_flag(flag->name);
    if (is_boolean(known)) {
      add(flag->name, truth_of(*flag));
    } else if (known != nullptr && flag->value) {
      add(flag->name, *flag->value);
    } else if (known != nullptr) {
      if (++i == words.size()) throw std::invalid_argument("--" + flag->name + " takes a value");
      add(flag->name, words[i]);
    } else if (const auto name = negated(*flag)) {
      add(*name, "false");
    } else {
      spelled.push_back(words[i]);
      break;
    }
  }
  return spelled;
}

void print_tf_flags(std::ostream& out) {
  const TfFlag* last = nullptr;
  for (const TfFlag& flag : table) {
    if (last == nullptr || last->becomes != flag.becomes) {
      out << (last == nullptr ? "" : "\n") << "### " << to_string(flag.becomes)
          << "\n\n| flag | takes | default | here |\n| --- | --- | --- | --- |\n";
    }
    const bool any = *flag.choices == '\0';
    const std::string takes = any ? to_string(flag.kind) : replaced(flag.choices, "|", ", ");
    out << "| `--" << flag.name << "` | " << takes << " | " << flag.standard << " | "
        << flag.meaning << " |\n";
    last = &flag;
  }
}

}  // namespace nearmetal
