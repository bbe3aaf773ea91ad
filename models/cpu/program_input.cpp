// The input that the steps of a CPU's program train on.
#include <algorithm>
#include <stdexcept>

#include "models/cpu/cpu_program.h"
#include "models/synthetic.h"

namespace nearmetal::cpu {

void CpuProgram::draw_labels() {
  if (!fixed_labels_.empty()) {
    std::copy(fixed_labels_.begin(), fixed_labels_.end(), state_.labels.begin());
    return;
  }
  const uint64_t seed = label_seed(options_.data_seed);
  for (size_t i = 0; i < state_.labels.size(); ++i) {
    state_.labels[i] = label_at(seed, static_cast<uint64_t>(steps_), i, graph_.classes());
  }
}

void CpuProgram::draw_tokens() {
  if (!fixed_tokens_.empty()) {
    std::copy(fixed_tokens_.begin(), fixed_tokens_.end(), state_.tokens.begin());
    return;
  }
  fill_tokens(options_.data_seed, static_cast<uint64_t>(steps_), graph_.node(0).vocabulary,
              state_.tokens);
}

void CpuProgram::set_images(std::span<const float> images) {
  if (graph_.receives()) return;  // the first stage has them
  const dnnl::memory::desc canonical = canonical_desc(step_.images->desc());
  const int64_t elements = options_.batch_size * graph_.image().elements();
  for (int64_t i = 0; i < options_.micro_batches; ++i) {
    float* source = const_cast<float*>(images.data()) + i * elements;
    reorder({canonical, engine_, source}, step_.images->memory, stream_);
    if (host_images_ == nullptr) return;
    parallel_copy(host_images_of(i), step_.images->data(), step_.images->bytes());
  }
}

void CpuProgram::use_batch(std::span<const float> images, std::span<const int32_t> labels) {
  if (graph_.reads_tokens()) throw std::logic_error("it reads tokens");
  use_threads();
  set_images(images);
  fixed_labels_.assign(labels.begin(), labels.end());
}

void CpuProgram::use_sequences(std::span<const int32_t> tokens, std::span<const int32_t> labels) {
  if (!graph_.reads_tokens() && !graph_.receives()) throw std::logic_error("it reads images");
  if (graph_.reads_tokens()) fixed_tokens_.assign(tokens.begin(), tokens.end());
  fixed_labels_.assign(labels.begin(), labels.end());
}

void CpuProgram::use_synthetic_batch() {
  use_threads();
  fixed_labels_.clear();
  fixed_tokens_.clear();
  if (graph_.receives() || graph_.reads_tokens()) return;
  std::vector<float> images(options_.step_images() * graph_.image().elements());
  fill_images(options_.data_seed, images.data(), static_cast<int64_t>(images.size()));
  set_images(images);
}

}  // namespace nearmetal::cpu
