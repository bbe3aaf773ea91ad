// The entry of libnearmetal_cpu.so.
#include "models/cpu/cpu_program.h"
#include "models/cpu/host.h"
#include "models/errors.h"
#include "models/load_module.h"

namespace nearmetal::cpu {
namespace {

class CpuBackend : public Backend {
 public:
  DeviceInfo describe(int /*gpu*/) override { return describe_host(); }

  void take_share(int /*gpu*/, const GpuShare& /*part*/) override {
    throw NotSupported("only a GPU has parts");
  }

  std::unique_ptr<Program> prepare(const Graph& graph, const ProgramOptions& options) override {
    return std::make_unique<CpuProgram>(graph, options);
  }

  int64_t bytes_needed(const Graph& graph, const ProgramOptions& options) override {
    return CpuProgram::bytes_needed(graph, options);
  }

  int64_t largest_batch(const Graph& graph, const ProgramOptions& options) override {
    return CpuProgram::largest_batch(graph, options, available_memory_bytes());
  }

  std::vector<Probe> probes(int /*gpu*/) override { return host_probes(); }
};

}  // namespace
}  // namespace nearmetal::cpu

NM_EXPORT nearmetal::Backend* nearmetal_backend() {
  static nearmetal::cpu::CpuBackend backend;
  return &backend;
}
