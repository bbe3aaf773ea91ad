// The entry of libnearmetal_cuda.so.
#include "models/cuda/cuda_program.h"
#include "models/cuda/device/device.h"
#include "models/load_module.h"

namespace nearmetal::cuda {
namespace {

class CudaBackend : public Backend {
 public:
  DeviceInfo describe(int gpu) override { return describe_gpu(gpu); }

  void take_share(int gpu, const GpuShare& part) override { take_share_of_gpu(gpu, part); }

  int device_count() override {
    int count = 0;
    NM_CALL(cudaGetDeviceCount(&count));
    return count;
  }

  std::vector<KernelChoice> choose_kernels(const Graph& graph,
                                           const ProgramOptions& options) override {
    return CudaProgram::choose_kernels(graph, options);
  }

  std::unique_ptr<Program> prepare(const Graph& graph, const ProgramOptions& options) override {
    return std::make_unique<CudaProgram>(graph, options);
  }

  int64_t bytes_needed(const Graph& graph, const ProgramOptions& options) override {
    return CudaProgram::bytes_needed(graph, options);
  }

  int64_t largest_batch(const Graph& graph, const ProgramOptions& options) override {
    use_gpu(options.gpu);
    require_units(options.precision, options.gpu);
    return CudaProgram::largest_batch(graph, options, free_device_bytes());
  }

  std::vector<Probe> probes(int gpu) override { return gpu_probes(gpu); }
};

}  // namespace
}  // namespace nearmetal::cuda

NM_EXPORT nearmetal::Backend* nearmetal_backend() {
  static nearmetal::cuda::CudaBackend backend;
  return &backend;
}
