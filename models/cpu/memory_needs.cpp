// The options that a CPU supports, and the memory that a program needs.
#include <omp.h>

#include <algorithm>
#include <stdexcept>

#include "models/cpu/cpu_program.h"
#include "models/cpu/host.h"
#include "models/errors.h"

namespace nearmetal::cpu {
namespace {

constexpr int64_t largest_batch_size = 65535;

}  // namespace

ProgramOptions CpuProgram::complete(ProgramOptions options) {
  require_sizes(options);
  if (options.batch_size > largest_batch_size) {
    throw std::invalid_argument("the CPU backend takes batch sizes up to " +
                                std::to_string(largest_batch_size));
  }
  if (options.precision != Precision::fp32 && options.precision != Precision::bf16) {
    throw std::invalid_argument("the CPU backend computes in fp32 or bf16, not in " +
                                std::string(to_string(options.precision)));
  }
  if (options.precision == Precision::bf16 && !trains_bf16()) {
    throw std::invalid_argument(
        "bf16 on a CPU needs AVX-512 with byte and word instructions (avx512_core); oneDNN found " +
        describe_host().compute_capability + " here: use fp32");
  }
  if (options.threads < 0)
    throw std::invalid_argument("the number of threads must not be negative");
  if (options.threads == 0) options.threads = usable_threads();
  return options;
}

int64_t CpuProgram::sent_gradient_bytes(const LoweredStep& step, const ProgramOptions& options) {
  const Precision type = options.gradient_type.value_or(Precision::fp32);
  if (type == Precision::fp32 || options.forward_only) return 0;
  return step.bytes(Region::gradients) / 4 * element_bytes(type);
}

int64_t CpuProgram::host_image_bytes(const LoweredStep& step, const ProgramOptions& options) {
  if (step.images == nullptr) return 0;
  const bool in_place = options.input == Input::device && options.micro_batches == 1;
  return in_place ? 0 : options.micro_batches * step.images->bytes();
}

int64_t CpuProgram::bytes_needed(const LoweredStep& step, const ProgramOptions& options) {
  int64_t bytes = step.total_bytes() + 4 * step.statistics_elements();  // running ones as well
  bytes += step.bytes(Region::gradients);                               // momentum
  if (is_adamw(options)) bytes += step.bytes(Region::gradients);        // second moments
  bytes += sent_gradient_bytes(step, options);
  if (options.micro_batches > 1) bytes += step.bytes(Region::gradients);  // their sum
  return bytes + host_image_bytes(step, options);
}

int64_t CpuProgram::bytes_needed(const Graph& graph, const ProgramOptions& options) {
  StepState state;
  const ProgramOptions completed = complete(options);
  omp_set_num_threads(completed.threads);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return bytes_needed(lower(graph, completed, engine, state), completed);
}

int64_t CpuProgram::device_bytes_by(Schedule schedule) const {
  if (schedule == options_.pipeline.schedule) return device_bytes();
  ProgramOptions options = options_;
  options.pipeline.schedule = schedule;
  return bytes_needed(graph_, options);
}

int64_t CpuProgram::largest_batch(const Graph& graph, const ProgramOptions& options,
                                  int64_t available_bytes) {
  ProgramOptions tried = options;
  const auto fits = [&](int64_t batch) {
    tried.batch_size = batch;
    return bytes_needed(graph, tried) <= available_bytes;
  };
  int64_t good = 0, bad = 1;
  while (bad <= largest_batch_size && fits(bad)) {
    good = bad;
    bad *= 2;
  }
  bad = std::min(bad, largest_batch_size + 1);
  while (bad - good > 1) {
    const int64_t middle = (good + bad) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

void CpuProgram::check_memory() const {
  const int64_t needed = bytes_needed(step_, options_);
  const int64_t available = available_memory_bytes();
  if (needed <= available) return;
  const int64_t largest = largest_batch(graph_, options_, available);
  throw OutOfMemory("batch " + std::to_string(options_.batch_size) + " needs " +
                        std::to_string(needed) + " bytes of memory, " + std::to_string(available) +
                        " are free; the largest batch that fits is " + std::to_string(largest),
                    needed, available, largest);
}

}  // namespace nearmetal::cpu
