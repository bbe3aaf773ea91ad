#include "bench/cli/run_arguments.h"

#include <array>
#include <charconv>
#include <stdexcept>

namespace nearmetal {
namespace {

// The shortest text that reads back as the same number.
std::string text_of(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end.ptr};
}
std::string text_of(int64_t value) { return std::to_string(value); }
std::string text_of(const std::string& value) { return value; }
template <Named E>
std::string text_of(E value) {
  return to_string(value);
}

class Arguments {
 public:
  template <class T>
  void add(const char* flag, const T& value) {
    texts_.push_back(std::string(flag) + "=" + text_of(value));
  }
  template <class T>
  void add(const char* flag, const std::optional<T>& value) {
    if (value) add(flag, *value);
  }
  void toggle(const char* flag, bool value) {
    if (value) texts_.emplace_back(flag);
  }
  std::vector<std::string> take() { return std::move(texts_); }

 private:
  std::vector<std::string> texts_ = {"run"};
};

void add_loss_scale(Arguments& arguments, const LossScale& scale) {
  constexpr double initial_of_dynamic = 65536;
  if (!scale.dynamic) return arguments.add("--loss-scale", scale.initial);
  if (scale.initial != initial_of_dynamic) {
    throw std::invalid_argument("a dynamic loss scale that starts at " + text_of(scale.initial) +
                                " cannot be asked for again");
  }
  arguments.add("--loss-scale", std::string("dynamic"));
}

}  // namespace

std::vector<std::string> run_arguments(const RunConfig& config) {
  Arguments arguments;
  arguments.add("--model", config.model);
  arguments.add("--device", config.device);
  arguments.add("--precision", config.precision);
  arguments.add("--batch", config.batch);
  arguments.add("--image-size", config.image_size);
  arguments.add("--classes", config.classes);
  if (config.steps) {
    arguments.add("--steps", config.steps);
  } else {
    arguments.add("--duration", config.duration_seconds);
  }
  arguments.add("--warmup", config.warmup);
  if (config.device == Device::cuda) {
    arguments.add("--gpu", config.gpu);
    arguments.add("--input", config.input);
    arguments.add("--launch", config.launch);
  } else {
    arguments.add("--threads", config.threads);
  }
  arguments.add("--bind", config.bind);
  arguments.add("--update", config.update);
  arguments.add("--bucket-mib", config.bucket_mib ? std::to_string(*config.bucket_mib) : "auto");
  arguments.add("--gradient-type", config.gradient_type);
  if (config.device == Device::cuda) {
    arguments.add("--all-reduce", config.all_reduce);
    arguments.add("--nccl-algorithm", config.nccl_algorithm);
  }
  arguments.add("--learning-rate", config.learning_rate);
  arguments.add("--momentum", config.momentum);
  arguments.add("--weight-decay", config.weight_decay);
  arguments.toggle("--zero-init", config.zero_init);
  if (config.loss_scale) add_loss_scale(arguments, *config.loss_scale);
  arguments.add("--seed", config.seed);
  arguments.toggle("--forward-only", config.forward_only);
  arguments.toggle("--verify", config.verify);
  arguments.toggle("--profile", config.profile);
  arguments.toggle("--attribute", config.attribute);
  return arguments.take();
}

}  // namespace nearmetal
