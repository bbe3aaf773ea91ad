#include "bench/tf_cnn_benchmarks/translate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <stdexcept>

#include "base/text.h"
#include "models/networks/registry.h"

namespace nearmetal {
namespace {

constexpr const char* own_command = "tf_cnn_benchmarks";
constexpr int64_t imagenet_classes = 1001;  // there; the first is for what is none of the others
constexpr const char* no_limit = "240h";    // there is none there

struct TfModel {
  const char* name;  // there
  const char* ours;
  int64_t batch;  // there, of each GPU, unless one is asked for
};

// The first of a network's two names is what it is called. The official ones are of
// tensorflow/models (official/r1/resnet), whose version 1 has the stride in the 3x3 convolution.
constexpr TfModel tf_models[] = {
    {"resnet50", "resnet50_v1", 64},         {"resnet50_v1.5", "resnet50", 64},
    {"resnet101", "resnet101_v1", 32},       {"resnet152", "resnet152_v1", 32},
    {"official_resnet18", "resnet18", 32},   {"official_resnet34", "resnet34", 32},
    {"official_resnet50", "resnet50", 128},  {"official_resnet101", "resnet101", 32},
    {"official_resnet152", "resnet152", 32}, {"vgg16", "vgg16", 64},
};

// Throws std::invalid_argument where nearmetal does not have that network.
const TfModel& find_tf_model(const std::string& name) {
  std::vector<std::string> here;
  for (const TfModel& model : tf_models) {
    if (model.name == name) return model;
    here.emplace_back(model.name);
  }
  const std::vector<std::string> ours = network_names();
  const bool known = std::ranges::find(ours, name) != ours.end();
  throw std::invalid_argument(
      "--model=" + name +
      (known
           ? ": tf_cnn_benchmarks does not have this network; train it by nearmetal run --model " +
                 name
           : ": nearmetal does not have this network; it has " + joined(here)));
}

[[noreturn]] void refuse_flag(const TfFlagValues& flags, const std::string& name,
                              const std::string& why) {
  throw std::invalid_argument("--" + name + "=" + flags.text(name) + ": " + why);
}

void refuse_what_is_not_here(const TfFlagValues& flags) {
  for (const TfFlag& flag : tf_flags()) {
    if (flag.becomes != TfFlagClass::refused || flags.is_standard(flag)) continue;
    if (flags.text(flag.name).empty()) continue;
    refuse_flag(flags, flag.name, flag.meaning);
  }
}

class Translator {
 public:
  Translator(const TfFlagValues& flags, bool launched)
      : flags_(flags),
        gpus_(flags.whole("num_gpus")),
        on_cpu_(lower_case(flags.text("device")) == "cpu"),
        several_(launched || gpus_ > 1) {
    if (gpus_ < 1) refuse_flag(flags, "num_gpus", "at least one is needed");
    if (launched && gpus_ > 1) {
      refuse_flag(flags, "num_gpus", "mpirun or srun starts the ranks here, one for each GPU");
    }
    if (flags.whole("display_every") < 1) {
      refuse_flag(flags, "display_every", "at least 1 is needed");
    }
  }

  TfTranslation translate(const std::vector<std::string>& options) {
    refuse_what_is_not_here(flags_);
    add_command();
    add_work();
    add_length();
    add_optimizer();
    add_exchange();
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

  // Notes the option that a flag became; a flag that was left out is not named.
  void add_flag(const std::string& option, const std::string& value, const std::string& flag) {
    add(option, value);
    if (flags_.is_given(flag)) translation_.flags[option] = "--" + flag;
  }

  // Mapped flags that change nothing beside these others.
  void idle(const std::vector<std::string>& names) {
    idle_.insert(idle_.end(), names.begin(), names.end());
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
      refuse_flag(flags_, "gpu_indices", "CUDA_VISIBLE_DEVICES says which GPUs are taken");
    }
    add_flag("--gpu", indices, "gpu_indices");
  }

  void add_work() {
    const std::string name = flags_.text("model");
    if (!flags_.is_given("model")) {
      throw std::invalid_argument("--model is needed: without it tf_cnn_benchmarks trains '" +
                                  name + "', which nearmetal does not have");
    }
    const TfModel& model = find_tf_model(name);
    const std::string data = flags_.text("data_name");
    if (!data.empty() && data != "imagenet") {
      refuse_flag(flags_, "data_name", "networks are those of imagenet");
    }
    const int64_t batch = flags_.whole("batch_size");
    batch_ = batch == 0 ? model.batch : batch;
    model_ = model.ours;
    add("--model", model_);
    add("--classes", std::to_string(imagenet_classes));
    add("--precision", is_fp16() ? "fp16" : "fp32");
    add_flag("--batch", std::to_string(batch_), "batch_size");
    if (!trains()) translation_.words.emplace_back("--inference");
    if (!on_cpu_) {
      idle({"num_intra_threads"});
    } else if (flags_.is_given("num_intra_threads")) {
      add_flag("--threads", flags_.text("num_intra_threads"), "num_intra_threads");
    }
  }

  void add_length() {
    const bool by_epochs = !flags_.text("num_epochs").empty();
    const bool by_batches = !flags_.text("num_batches").empty();
    if (by_epochs && by_batches) {
      refuse_flag(flags_, "num_epochs", "--num_batches says how long already");
    }
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
      return idle({"optimizer", "momentum", "weight_decay", "init_learning_rate", "fp16_loss_scale",
                   "fp16_enable_auto_loss_scale"});
    }
    const std::string optimizer = flags_.text("optimizer");
    if (optimizer != "sgd" && optimizer != "momentum") {
      refuse_flag(flags_, "optimizer",
                  "nearmetal has neither Adam nor RMSProp: give sgd or momentum");
    }
    const bool has_momentum = optimizer == "momentum";
    if (!has_momentum) idle({"momentum"});
    add("--momentum", has_momentum ? flags_.text("momentum") : "0");
    add_flag("--weight-decay", flags_.text("weight_decay"), "weight_decay");
    if (flags_.is_given("init_learning_rate")) {
      add_flag("--learning-rate", flags_.text("init_learning_rate"), "init_learning_rate");
    }
    if (!is_fp16()) {
      idle({"fp16_loss_scale", "fp16_enable_auto_loss_scale"});
    } else if (flags_.is_true("fp16_enable_auto_loss_scale")) {
      idle({"fp16_loss_scale"});
      add("--loss-scale", "dynamic");
    } else if (flags_.is_given("fp16_loss_scale")) {
      add_flag("--loss-scale", flags_.text("fp16_loss_scale"), "fp16_loss_scale");
    }
  }

  void add_exchange() {
    const std::string update = flags_.text("variable_update");
    constexpr std::array by_servers = {"distributed_replicated", "distributed_all_reduce",
                                       "collective_all_reduce"};
    if (std::ranges::find(by_servers, update) != by_servers.end()) {
      refuse_flag(flags_, "variable_update",
                  "start a process for each GPU by mpirun, with --variable_update=horovod");
    }
    require_all_reduce();
    if (!several_ || !trains() || update == "independent") {
      idle({"gradient_repacking", "compact_gradient_transfer"});
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
      refuse_flag(flags_, "all_reduce_spec", on_cpu_ ? "MPI sums between CPUs" : "NCCL alone sums");
    }
    const std::string device = flags_.text("horovod_device");
    const bool elsewhere = !device.empty() && (device == "cpu") != on_cpu_;
    if (elsewhere && several_) {
      refuse_flag(flags_, "horovod_device", "gradients are summed where they are computed");
    }
    if (elsewhere) idle({"horovod_device"});
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
      const bool is_idle = std::ranges::find(idle_, name) != idle_.end();
      if (is_idle || find_tf_flag(name)->becomes == TfFlagClass::without_effect) {
        given.push_back("--" + name);
      }
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
  std::vector<std::string> idle_;
  TfTranslation translation_;
};

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
  const std::string beginning = "--display_every=";
  TfFlagValues flags;
  if (argv.size() > 1 && argv[1] == own_command) {
    for (const std::string& word : spelled_out({argv.begin() + 2, argv.end()})) {
      if (word == "--") break;
      if (word.starts_with(beginning)) flags.given["display_every"] = word.substr(beginning.size());
    }
  }
  return std::max<int64_t>(1, flags.whole("display_every"));
}

}  // namespace nearmetal
