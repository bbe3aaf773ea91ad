#include <algorithm>

#include "models/cuda/cuda_program.h"
#include "models/cuda/device.h"

namespace nearmetal {

Profile CudaProgram::profile(int repeats) {
  wait_until_idle();
  const size_t kernels = step_.kernels.size();
  std::vector<EventHandle> marks;
  for (size_t i = 0; i <= kernels; ++i) marks.push_back(make_event());
  std::vector<std::vector<float>> milliseconds(kernels, std::vector<float>(repeats));
  for (int run = 0; run < repeats; ++run) {
    NM_CALL(cudaEventRecord(marks[0].get(), stream_.get()));
    for (size_t i = 0; i < kernels; ++i) {
      step_.kernels[i].launch(stream_.get());
      NM_CALL(cudaEventRecord(marks[i + 1].get(), stream_.get()));
    }
    wait_until_idle();
    for (size_t i = 0; i < kernels; ++i) {
      NM_CALL(cudaEventElapsedTime(&milliseconds[i][run], marks[i].get(), marks[i + 1].get()));
    }
  }
  Profile profile;
  for (size_t i = 0; i < kernels; ++i) {
    const Kernel& kernel = step_.kernels[i];
    auto middle = milliseconds[i].begin() + repeats / 2;
    std::nth_element(milliseconds[i].begin(), middle, milliseconds[i].end());
    profile.entries.push_back({kernel.name, kernel.phase, kernel.implementation, *middle * 1e-3,
                               kernel.flops, kernel.bytes});
  }
  profile.copy_bytes_per_second = measured_copy_bytes_per_second();
  profile.matrix_flops_per_second = measured_matrix_flops_per_second(options_.precision);
  return profile;
}

}  // namespace nearmetal
