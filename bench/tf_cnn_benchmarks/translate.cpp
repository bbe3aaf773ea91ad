#include "bench/tf_cnn_benchmarks/translate.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include "base/errors.h"
#include "base/text.h"
#include "base/text_table.h"
#include "bench/cli/command_line.h"
#include "comm/layout/shell_text.h"
#include "models/networks/registry.h"
#include "reports/compare/work_text.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

constexpr double imagenet_images = 1281167;  // of an epoch
constexpr const char* own_command = "tf_cnn_benchmarks";
constexpr int64_t imagenet_classes = 1001;  // there; the first is for what is none of the others
constexpr const char* no_limit = "240h";    // there is none there

struct TfModel {
  const char* name;  // there
  const char* ours;
  int64_t batch;  // there, of each GPU, unless one is asked for
  // Networks that nearmetal does not have, for which to take it: with about as much arithmetic, or
  // with large dense layers, too.
  const char* stands_for = "";
};

// The first of a network's two names is what it is called. The official ones are of
// tensorflow/models (official/r1/resnet), whose version 1 has the stride in the 3x3 convolution.
constexpr TfModel tf_models[] = {
    {"resnet50", "resnet50_v1", 64},
    {"resnet50_v1.5", "resnet50", 64, "resnet50_v2"},
    {"resnet101", "resnet101_v1", 32, "inception3|resnet101_v2"},
    {"resnet152", "resnet152_v1", 32, "inception4|resnet152_v2"},
    {"official_resnet18", "resnet18", 32, "googlenet|mobilenet"},
    {"official_resnet34", "resnet34", 32},
    {"official_resnet50", "resnet50", 128},
    {"official_resnet101", "resnet101", 32},
    {"official_resnet152", "resnet152", 32},
    {"vgg16", "vgg16", 64, "alexnet|overfeat|vgg11|vgg19"},
};

// What to take in place of a network; empty: nothing is like it.
std::string instead_of(const std::string& name) {
  for (const TfModel& model : tf_models) {
    if (std::ranges::count(split(model.stands_for, "|"), name) > 0) return model.name;
  }
  return "";
}

std::string why_no_model(const std::string& name) {
  const std::vector<std::string> ours = network_names();
  if (std::ranges::find(ours, name) != ours.end()) {
    return "tf_cnn_benchmarks does not have this network; train it by nearmetal run --model " +
           name;
  }
  const std::string other = instead_of(name);
  return "nearmetal does not have this network; it has " + joined(row_names(tf_models)) +
         (other.empty() ? "" : "; take " + other + " instead");
}

class Translator {
 public:
  Translator(const TfFlagValues& flags, bool launched)
      : flags_(flags),
        gpus_(flags.whole("num_gpus")),
        on_cpu_(lower_case(flags.text("device")) == "cpu"),
        several_(launched || gpus_ > 1) {
    if (gpus_ < 1) refuse("num_gpus", "at least one is needed");
    if (launched && gpus_ > 1) {
      refuse("num_gpus", "mpirun or srun starts the ranks here, one for each GPU");
    }
    if (gpus_ < 1 || launched) gpus_ = 1;
    if (flags.whole("display_every") < 1) refuse("display_every", "at least 1 is needed");
  }

  TfTranslation translate(const std::vector<std::string>& options) {
    for (const TfFlag& flag : tf_flags()) {
      const bool is_here = flag.becomes != TfFlagClass::refused || flags_.is_neutral(flag);
      if (!is_here) refuse(flag.name, flag.meaning);
    }
    add_command();
    add_work();
    add_length();
    add_optimizer();
    add_exchange();
    if (!reasons_.empty()) {
      throw std::invalid_argument(joined(reasons_, "; ") + "; what remains: " + remaining(options));
    }
    add_flag("--seed", flags_.text("tf_random_seed"), "tf_random_seed");
    translation_.words.insert(translation_.words.end(), options.begin(), options.end());
    std::erase_if(translation_.flags, [&](const auto& flag) {  // overridden by such an option
      return std::ranges::any_of(options, [&](const std::string& word) {
        return word.substr(0, word.find('=')) == flag.first;
      });
    });
    remark_flags_without_effect();
    return std::move(translation_);
  }

 private:
  void add(const std::string& option, const std::string& value) {
    translation_.words.insert(translation_.words.end(), {option, value});
  }

  // Notes why; what follows goes on, so that all reasons are told at once.
  void refuse(const std::string& flag, const std::string& why) {
    reasons_.push_back("--" + flag + "=" + flags_.text(flag) + ": " + why);
    refused_.insert(flag);
  }

  // The command line without what is refused.
  std::string remaining(const std::vector<std::string>& options) const {
    std::vector<std::string> words = {"nearmetal", own_command};
    const std::string model = instead_of(flags_.text("model"));
    if (!model.empty()) words.push_back("--model=" + model);
    for (const auto& [name, value] : flags_.given) {
      if (!refused_.contains(name)) words.push_back("--" + name + "=" + value);
    }
    if (!options.empty()) words.emplace_back("--");
    words.insert(words.end(), options.begin(), options.end());
    return shell_quoted(words);
  }

  // Notes the option that a flag became; a flag that was left out is not named.
  void add_flag(const std::string& option, const std::string& value, const std::string& flag) {
    add(option, value);
    if (flags_.is_given(flag)) translation_.flags[option] = "--" + flag;
  }

  void add_if_given(const std::string& option, const std::string& flag) {
    if (flags_.is_given(flag)) add_flag(option, flags_.text(flag), flag);
  }

  // A sweep takes the GPUs that it finds; without any its ranks are on CPUs.
  void add_command() {
    std::vector<std::string>& words = translation_.words;
    if (gpus_ == 1) {
      words = {"run", "--device", on_cpu_ ? "cpu" : "cuda"};
    } else {
      words = {"sweep", "1x1x" + std::to_string(gpus_), "--repeats", "1", "--job-limit", no_limit};
      if (on_cpu_) add("--hosts", "localhost:0");
    }
    const std::string indices = flags_.text("gpu_indices");
    if (indices.empty()) return;
    if (several_ || on_cpu_ || indices.find(',') != indices.npos) {
      refuse("gpu_indices", "CUDA_VISIBLE_DEVICES says which GPUs are taken");
    }
    add_flag("--gpu", indices, "gpu_indices");
  }

  void add_work() {
    const std::string name = flags_.text("model");
    const auto found = std::ranges::find(tf_models, name, &TfModel::name);
    if (!flags_.is_given("model")) {
      reasons_.push_back("--model is needed: without it tf_cnn_benchmarks trains '" + name +
                         "', which nearmetal does not have");
    } else if (found == std::end(tf_models)) {
      refuse("model", why_no_model(name));
    }
    const TfModel& model = found == std::end(tf_models) ? tf_models[0] : *found;
    const std::string data = flags_.text("data_name");
    if (!data.empty() && data != "imagenet") refuse("data_name", "networks are those of imagenet");
    const int64_t batch = flags_.whole("batch_size");
    batch_ = batch == 0 ? model.batch : batch;
    model_ = model.ours;
    add("--model", model_);
    add("--classes", std::to_string(imagenet_classes));
    add("--precision", is_fp16() ? "fp16" : "fp32");
    add_flag("--batch", std::to_string(batch_), "batch_size");
    if (!trains()) translation_.words.emplace_back("--inference");
    if (on_cpu_) add_if_given("--threads", "num_intra_threads");
    if (!on_cpu_) idle_.insert("num_intra_threads");
  }

  void add_length() {
    const bool by_epochs = !flags_.text("num_epochs").empty();
    const bool by_batches = !flags_.text("num_batches").empty();
    if (by_epochs && by_batches) refuse("num_epochs", "--num_batches says how long already");
    const auto global = static_cast<double>(gpus_ * batch_);
    int64_t steps = 100;
    if (by_batches) steps = flags_.whole("num_batches");
    if (by_epochs) {
      const double images = flags_.value("num_epochs") * imagenet_images;
      steps = std::llround(std::ceil(images / std::max(1., global)));
    }
    add_flag("--steps", std::to_string(steps), by_epochs ? "num_epochs" : "num_batches");
    const int64_t threshold =
        flags_.text("autotune_threshold").empty() ? 1 : flags_.whole("autotune_threshold");
    int64_t warm_up = std::max<int64_t>(10, 5 * threshold * threshold);
    if (flags_.is_given("num_warmup_batches")) warm_up = flags_.whole("num_warmup_batches");
    const char* flag =
        flags_.is_given("num_warmup_batches") ? "num_warmup_batches" : "autotune_threshold";
    add_flag("--warmup", std::to_string(warm_up == 0 ? 1 : warm_up), flag);
  }

  void add_optimizer() {
    if (!trains()) {
      return idle_.insert({"optimizer", "momentum", "weight_decay", "init_learning_rate",
                           "fp16_loss_scale", "fp16_enable_auto_loss_scale"});
    }
    const std::string optimizer = flags_.text("optimizer");
    if (optimizer != "sgd" && optimizer != "momentum") {
      refuse("optimizer", "nearmetal has neither Adam nor RMSProp: give sgd or momentum");
    }
    const bool has_momentum = optimizer == "momentum";
    if (!has_momentum) idle_.insert("momentum");
    add("--momentum", has_momentum ? flags_.text("momentum") : "0");
    add_flag("--weight-decay", flags_.text("weight_decay"), "weight_decay");
    add_if_given("--learning-rate", "init_learning_rate");
    if (!is_fp16()) {
      idle_.insert({"fp16_loss_scale", "fp16_enable_auto_loss_scale"});
    } else if (flags_.is_true("fp16_enable_auto_loss_scale")) {
      idle_.insert("fp16_loss_scale");
      add("--loss-scale", "dynamic");
    } else {
      add_if_given("--loss-scale", "fp16_loss_scale");
    }
  }

  void add_exchange() {
    const std::string update = flags_.text("variable_update");
    if (update.starts_with("distributed") || update.starts_with("collective")) {  // by servers
      refuse("variable_update",
             "start a process for each GPU by mpirun, with --variable_update=horovod");
    }
    require_all_reduce();
    if (!several_ || !trains() || update == "independent") {
      idle_.insert({"gradient_repacking", "compact_gradient_transfer"});
    }
    if (!several_ || !trains()) return;
    if (update == "independent") {
      add("--update", "independent");
      return;
    }
    const int64_t parts = flags_.whole("gradient_repacking");
    if (parts > 0) {
      add_flag("--bucket-mib", std::to_string(bucket_mib(parts)), "gradient_repacking");
    }
    if (is_fp16() && !flags_.is_true("compact_gradient_transfer")) add("--gradient-type", "fp32");
  }

  void require_all_reduce() {
    const std::string spec = flags_.text("all_reduce_spec");
    if (!spec.empty() && (spec != "nccl" || on_cpu_)) {
      refuse("all_reduce_spec", on_cpu_ ? "MPI sums between CPUs" : "NCCL alone sums");
    }
    const std::string device = flags_.text("horovod_device");
    const bool elsewhere = !device.empty() && (device == "cpu") != on_cpu_;
    if (elsewhere && several_) {
      refuse("horovod_device", "gradients are summed where they are computed");
    }
    if (elsewhere) idle_.insert("horovod_device");
  }

  // The size of buckets as they travel: in fp16 training mostly 16 bits a value.
  int64_t bucket_mib(int64_t parts) const {
    const int64_t parameters =
        build_network(model_, {.classes = imagenet_classes}).parameter_count();
    const double mib = static_cast<double>(parameters) * (is_fp16() ? 2 : 4) / (1 << 20);
    return std::llround(std::ceil(mib / static_cast<double>(parts)));
  }

  bool trains() const { return !flags_.is_true("forward_only"); }
  bool is_fp16() const { return flags_.is_true("use_fp16"); }

  void remark_flags_without_effect() {
    std::vector<std::string> given;
    for (const auto& [name, value] : flags_.given) {
      const bool never = find_tf_flag(name)->becomes == TfFlagClass::without_effect;
      if (never || idle_.contains(name)) given.push_back("--" + name);
    }
    if (given.empty()) return;
    translation_.remarks.push_back("nearmetal: without effect here: " + joined(given) +
                                   " (why: nearmetal help " + own_command + ")");
  }

  const TfFlagValues& flags_;
  int64_t gpus_;
  bool on_cpu_;
  bool several_;  // ranks
  std::string model_;
  int64_t batch_ = 0;
  std::vector<std::string> reasons_;  // of refusals, and their flags
  std::set<std::string> refused_;
  std::set<std::string> idle_;  // mapped flags that change nothing beside these others
  TfTranslation translation_;
};

// The flags of a command line that begins with the program's name; none where it is of another
// command.
std::optional<TfFlagValues> flags_of(const std::vector<std::string>& argv) {
  if (argv.size() < 2 || argv[1] != own_command) return std::nullopt;
  TfFlagValues flags;
  for (const std::string& word : spelled_out({argv.begin() + 2, argv.end()})) {
    if (word == "--") break;
    const size_t equals = word.find('=');
    if (equals != word.npos) flags.given[word.substr(2, equals - 2)] = word.substr(equals + 1);
  }
  return flags;
}

constexpr size_t rule_length = 64;

void print_entry(std::ostream& out, const std::string& name, const std::string& value) {
  constexpr size_t name_columns = 13;
  const std::string label = name.empty() ? "" : name + ":";
  out << label << std::string(std::max(label.size() + 1, name_columns) - label.size(), ' ')
      << printable(value) << '\n';
}

std::string data_of(const SetRun& run) {
  const std::string sequence = key_value(run, "sequence");
  if (!sequence.empty()) return "sequences of " + sequence + " tokens (synthetic)";
  const std::string size = key_value(run, "image_size"), classes = key_value(run, "classes");
  const bool imagenet = size == "224" && (classes == "1000" || classes == "1001");
  return (imagenet ? "imagenet" : size + "x" + size + ", " + classes + " classes") + " (synthetic)";
}

// The devices in the original's words, which has others for ranks of Horovod.
std::string devices_of(const Run& run, bool horovod) {
  const std::string kind = run.device == Device::cuda ? "gpu" : "cpu";
  std::vector<std::string> devices;
  for (int64_t i = 0; i < run.world_size; ++i) {
    devices.push_back((horovod ? "'horovod/" : "'/") + kind + ":" + std::to_string(i) + "'");
  }
  return "[" + joined(devices) + "]";
}

bool trains(const SetRun& run) {
  return key_value(run, "inference") != "yes" && key_value(run, "forward_only") != "yes";
}

const char* mode_of(const SetRun& run) {
  if (trains(run)) return "training";
  return key_value(run, "inference") == "yes" ? "forward only"
                                              : "forward only, with norms as in training";
}

// Without an update there is none.
const char* optimizer_of(const SetRun& run) {
  if (!trains(run)) return "none";
  if (key_value(run, "optimizer") == "adamw") return "adamw";
  return key_value(run, "momentum") == "0" ? "sgd" : "momentum";
}

// `arm`: empty where there is one alone.
void print_header(std::ostream& out, const SetRun& set_run, const std::string& arm) {
  const Run& run = set_run.run;
  const std::string batch = key_value(set_run, "batch");
  const double global = std::strtod(batch.c_str(), nullptr) * static_cast<double>(run.world_size);
  const int64_t taken = run.window ? run.window->steps : 0;
  const int64_t steps = set_run.asked_steps.value_or(taken);
  print_entry(out, "nearmetal", set_run.tool.version);
  if (!arm.empty()) print_entry(out, "Arm", arm);
  print_entry(out, "Model", tf_model_name(key_value(set_run, "model")));
  print_entry(out, "Dataset", data_of(set_run));
  print_entry(out, "Mode", mode_of(set_run));
  print_entry(out, "Batch size", fixed(global, 0) + " global");
  print_entry(out, "", batch + " per device");
  print_entry(out, "Num batches", std::to_string(steps));
  const double images = static_cast<double>(steps) * global;
  print_entry(out, "Num epochs", fixed(images / imagenet_images, 2));
  const std::optional<TfFlagValues> flags = flags_of(set_run.argv);
  const bool independent = key_value(set_run, "update") == "independent";
  const std::string variables = flags         ? flags->text("variable_update")
                                : independent ? "independent"
                                              : "replicated";
  print_entry(out, "Devices", devices_of(run, variables == "horovod"));
  const bool bound = std::ranges::any_of(run.ranks, [](const Rank& rank) {
    return rank.binding && rank.binding->numa_node.value.has_value();
  });
  print_entry(out, "NUMA bind", bound ? "True" : "False");
  print_entry(out, "Data format", "NHWC");
  print_entry(out, "Optimizer", optimizer_of(set_run));
  print_entry(out, "Variables", variables);
  if (run.communication) print_entry(out, "AllReduce", run.communication->library);
  out << "==========\n";
}

// The steps of the timed window, as far as all ranks have it.
struct RunSteps {
  std::vector<double> speeds;  // images/s
  std::vector<double> losses;
};

RunSteps steps_of(const SetRun& set_run) {
  const Run& run = set_run.run;
  RunSteps steps;
  if (!run.window || run.ranks.empty()) return steps;
  const double batch = std::strtod(key_value(set_run, "batch").c_str(), nullptr);
  const bool in_step = run.communication.has_value();
  const auto ranks = static_cast<double>(run.ranks.size());
  for (int64_t i = 0; i < run.window->steps; ++i) {
    const auto step = static_cast<size_t>(run.window->first_step + i);
    double slowest = 0, sum_of_speeds = 0, sum_of_losses = 0;
    for (const Rank& rank : run.ranks) {
      if (step >= rank.step_seconds.size()) return steps;
      if (step >= rank.loss.size() && !rank.loss.empty()) return steps;
      slowest = std::max(slowest, rank.step_seconds[step]);
      sum_of_speeds += batch / rank.step_seconds[step];
      if (!rank.loss.empty()) sum_of_losses += rank.loss[step];  // inference has none: 0, as there
    }
    steps.speeds.push_back(in_step ? ranks * batch / slowest : sum_of_speeds);
    steps.losses.push_back(sum_of_losses / ranks);
  }
  return steps;
}

// The speed as get_perf_timing() gives it there: the mean is that of step times, the error of
// single speeds.
std::string speed_text(std::span<const double> speeds) {
  double seconds_of_an_image = 0, squares = 0;
  const double average = mean(speeds);
  for (const double speed : speeds) {
    seconds_of_an_image += 1 / speed;
    squares += (speed - average) * (speed - average);
  }
  const auto count = static_cast<double>(speeds.size());
  return "images/sec: " + fixed(count / seconds_of_an_image, 1) + " +/- " +
         fixed(std::sqrt(squares) / count, 1) + " (jitter = " + fixed(robust_deviation(speeds), 1) +
         ")";
}

void print_steps(std::ostream& out, const RunSteps& steps, size_t every) {
  out << "Step\tImg/sec\tbase_loss\n";
  for (size_t count = 1; count <= steps.speeds.size(); ++count) {
    if (count > 1 && count % every != 0) continue;
    out << count << '\t' << speed_text(std::span(steps.speeds).first(count)) << '\t'
        << fixed(steps.losses[count - 1], 3) << '\n';
  }
}

void print_run(std::ostream& out, const SetRun& set_run, const std::string& arm) {
  const Run& run = set_run.run;
  if (!run.jobs.empty()) {
    throw NotComparable("--format tf_cnn_benchmarks is of one job, and " + set_run.source +
                        " holds runs of several at once");
  }
  print_header(out, set_run, arm);
  if (run.warm_up) out << "Running warm up\nDone warm up\n";
  print_steps(out, steps_of(set_run), static_cast<size_t>(display_every_of(set_run.argv)));
  if (run.status != Status::complete || !run.throughput) return;
  const std::string rule(rule_length, '-');
  out << rule << "\ntotal images/sec: " << fixed(*run.throughput, 2) << '\n' << rule << '\n';
}

}  // namespace

TfTranslation translated(const TfFlagValues& flags, const std::vector<std::string>& options,
                         bool launched) {
  return Translator(flags, launched).translate(options);
}

std::string in_flags(const TfTranslation& translation, const std::string& message) {
  std::string text;
  for (size_t begin = 0; begin < message.size();) {
    constexpr const char* of_an_option = "abcdefghijklmnopqrstuvwxyz0123456789-_";
    const size_t end = std::min(message.find_first_not_of(of_an_option, begin), message.size());
    const std::string word = message.substr(begin, end - begin);
    const auto flag = translation.flags.find(word);
    text += flag == translation.flags.end() ? word : flag->second;
    if (end < message.size()) text += message[end];
    begin = end + 1;
  }
  return text;
}

std::string tf_model_name(const std::string& ours) {
  const auto found = std::ranges::find(tf_models, ours, &TfModel::ours);
  return found == std::end(tf_models) ? ours : found->name;
}

int64_t display_every_of(const std::vector<std::string>& argv) {
  return std::max<int64_t>(1, flags_of(argv).value_or(TfFlagValues{}).whole("display_every"));
}

void print_tf_cnn_benchmarks(std::ostream& out, const RunSet& set) {
  const bool several =
      std::ranges::count_if(set.arms, [](const RunArm& arm) { return !arm.runs.empty(); }) > 1;
  for (const RunArm& arm : set.arms) {
    for (const SetRun& run : arm.runs) print_run(out, run, several ? arm.name : "");
  }
}

}  // namespace nearmetal
