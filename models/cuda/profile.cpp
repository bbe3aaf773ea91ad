#include "models/cuda/cuda_program.h"
#include "models/cuda/kernels/probe_kernels.h"
#include "models/cuda/probes.h"

namespace nearmetal::cuda {

Profile CudaProgram::profile(int repeats) {
  wait_until_idle();
  const size_t kernels = step_.kernels.size();
  std::vector<EventHandle> marks;
  for (size_t i = 0; i <= kernels; ++i) marks.push_back(make_event());
  std::vector<std::vector<double>> seconds(kernels);
  for (int run = 0; run < repeats; ++run) {
    NM_CALL(cudaEventRecord(marks[0].get(), stream_.get()));
    for (size_t i = 0; i < kernels; ++i) {
      step_.kernels[i].launch(stream_.get());
      NM_CALL(cudaEventRecord(marks[i + 1].get(), stream_.get()));
    }
    wait_until_idle();
    for (size_t i = 0; i < kernels; ++i) {
      seconds[i].push_back(seconds_between(marks[i].get(), marks[i + 1].get()));
    }
  }
  Profile profile;
  for (size_t i = 0; i < kernels; ++i) {
    const Kernel& kernel = step_.kernels[i];
    profile.entries.push_back({kernel.name, kernel.phase, kernel.implementation,
                               median_of(seconds[i]), kernel.flops, kernel.bytes});
  }
  const Probe copy = device_copy_probe(), product = product_probe(options_.precision);
  profile.copy_bytes_per_second = copy.bytes / median_seconds(copy, 10);
  profile.matrix_flops_per_second = product.flops / median_seconds(product, 5);
  return profile;
}

TimedRuns CudaProgram::time_alone(const Kernel& kernel) {
  // Operands as a step leaves them: their values change what a product draws, and so its clock.
  enqueue_step();
  wait_step();
  cudaDeviceProp properties{};
  NM_CALL(cudaGetDeviceProperties(&properties, options_.gpu));
  const int64_t flush_bytes = 2 * int64_t{properties.l2CacheSize};
  const std::shared_ptr<void> flush = allocate_device(flush_bytes);
  NM_CALL(cudaMemset(flush.get(), 0, flush_bytes));
  return [this, &kernel, flush, flush_bytes](int64_t runs) {
    const EventHandle begin = make_event(), end = make_event();
    double seconds = 0;
    for (int64_t run = 0; run < runs; ++run) {
      launch_read(flush.get(), flush_bytes, stream_.get());
      NM_CALL(cudaEventRecord(begin.get(), stream_.get()));
      kernel.launch(stream_.get());
      NM_CALL(cudaEventRecord(end.get(), stream_.get()));
      seconds += seconds_between(begin.get(), end.get());
    }
    return seconds;
  };
}

std::vector<Probe> CudaProgram::probes() {
  std::vector<Probe> probes;
  for (const Kernel& kernel : step_.kernels) {
    probes.push_back({.name = step_probe_name(to_string(kernel.phase), kernel.name),
                      .work = kernel.implementation,
                      .bytes = kernel.bytes,
                      .flops = kernel.flops,
                      .start = [this, &kernel] { return time_alone(kernel); }});
  }
  return probes;
}

}  // namespace nearmetal::cuda
