// The probes of what a GPU and the paths to it do at best, and of the kernels of a CudaProgram.
#include <functional>
#include <memory>
#include <string>

#include "base/errors.h"
#include "models/cuda/cuda_program.h"
#include "models/cuda/device/device.h"
#include "models/cuda/kernels/beside_step.h"
#include "models/cuda/libraries/handles.h"
#include "models/cuda/libraries/linear.h"
#include "models/cuda/tuning/tuner.h"

namespace nearmetal::cuda {
namespace {

using Work = std::function<void(cudaStream_t)>;

constexpr int64_t copied_bytes = int64_t{256} << 20;
constexpr int graph_kernels = 100;

// Queued back to back, by the device's clock.
TimedRuns by_events(Work work) {
  const std::shared_ptr<CUstream_st> stream = make_stream();
  work(stream.get());
  return [stream, work = std::move(work)](int64_t runs) {
    const EventHandle begin = make_event(), end = make_event();
    NM_CALL(cudaEventRecord(begin.get(), stream.get()));
    for (int64_t run = 0; run < runs; ++run) work(stream.get());
    NM_CALL(cudaEventRecord(end.get(), stream.get()));
    return seconds_between(begin.get(), end.get());
  };
}

// By the host's clock, until the last is done; `each` waits after every run.
TimedRuns by_host(Work work, bool each) {
  const std::shared_ptr<CUstream_st> stream = make_stream();
  work(stream.get());
  NM_CALL(cudaStreamSynchronize(stream.get()));
  return [stream, work = std::move(work), each](int64_t runs) {
    const double begin = steady_seconds();
    for (int64_t run = 0; run < runs; ++run) {
      work(stream.get());
      if (each) NM_CALL(cudaStreamSynchronize(stream.get()));
    }
    NM_CALL(cudaStreamSynchronize(stream.get()));
    return steady_seconds() - begin;
  };
}

std::shared_ptr<CUgraphExec_st> graph_of_nothing() {
  const StreamHandle stream = make_stream();
  return captured(stream.get(), [&] {
    for (int i = 0; i < graph_kernels; ++i) launch_nothing(stream.get());
  });
}

std::vector<Probe> launch_probes() {
  const auto kernel = [](bool each) { return [each] { return by_host(launch_nothing, each); }; };
  const auto graph = [](bool each) {
    return [each] {
      return by_host([graph = graph_of_nothing()](
                         cudaStream_t stream) { NM_CALL(cudaGraphLaunch(graph.get(), stream)); },
                     each);
    };
  };
  const std::string kernels = std::to_string(graph_kernels);
  return {{.name = "launch/kernel",
           .work = "an empty kernel, queued back to back",
           .runs_at_once = 1000,
           .start = kernel(false)},
          {.name = "launch/kernel_and_wait",
           .work = "an empty kernel, from its launch until the host sees its end",
           .start = kernel(true)},
          {.name = "launch/graph",
           .work = "a CUDA graph of " + kernels + " empty kernels, queued back to back",
           .runs_at_once = 20,
           .start = graph(false)},
          {.name = "launch/graph_and_wait",
           .work = "the same, from its launch until the host sees its end",
           .start = graph(true)}};
}

Probe hold_probe() {
  constexpr int blocks = 2048;
  constexpr int64_t clocks = 100'000;
  return {.name = hold_probe_name,
          .work = std::to_string(blocks) +
                  " blocks, of which a multiprocessor holds one or two, for " +
                  std::to_string(clocks) + " clocks each",
          .start = [] {
            return by_events([](cudaStream_t stream) { launch_hold(blocks, clocks, stream); });
          }};
}

// Host memory: pinned, or from malloc(), which the driver copies through a buffer of its own.
std::shared_ptr<void> host_memory(bool pinned) {
  if (!pinned) {
    const auto bytes = std::make_shared<std::vector<char>>(copied_bytes, '\1');
    return {bytes, bytes->data()};
  }
  return allocate_pinned(copied_bytes);
}

Probe host_copy_probe(bool to_device, bool pinned) {
  const std::string kind = pinned ? "pinned" : "pageable";
  return {.name = (to_device ? "copy/h2d_" : "copy/d2h_") + kind,
          .work = "256 MiB from " + (to_device ? kind + " host memory to the GPU"
                                               : "the GPU to " + kind + " host memory"),
          .bytes = static_cast<double>(copied_bytes),
          .start = [to_device, pinned] {
            const std::shared_ptr<void> host = host_memory(pinned);
            const std::shared_ptr<void> device = allocate_device(copied_bytes);
            return by_host(
                [host, device, to_device](cudaStream_t stream) {
                  NM_CALL(cudaMemcpyAsync(to_device ? device.get() : host.get(),
                                          to_device ? host.get() : device.get(), copied_bytes,
                                          cudaMemcpyDefault, stream));
                },
                false);
          }};
}

struct PeerEnd {
  int gpu;
  std::shared_ptr<void> memory;
  std::shared_ptr<CUstream_st> stream;
};

PeerEnd peer_end(int gpu, int peer) {
  NM_CALL(cudaSetDevice(gpu));
  int reachable = 0;
  NM_CALL(cudaDeviceCanAccessPeer(&reachable, gpu, peer));
  if (reachable != 0) {
    const cudaError_t status = cudaDeviceEnablePeerAccess(peer, 0);
    if (status == cudaErrorPeerAccessAlreadyEnabled) {
      cudaGetLastError();  // forgets it
    } else {
      NM_CALL(status);
    }
  }
  return {gpu, allocate_device(copied_bytes), make_stream()};
}

void send(const PeerEnd& from, const PeerEnd& to) {
  NM_CALL(cudaMemcpyPeerAsync(to.memory.get(), to.gpu, from.memory.get(), from.gpu, copied_bytes,
                              from.stream.get()));
}

Probe peer_probe(int from, int to, bool both_ways) {
  const std::string first = std::to_string(from), second = std::to_string(to);
  return {.name = "p2p/" + first + (both_ways ? "and" : "to") + second,
          .work = "256 MiB from GPU " + first + " to GPU " + second +
                  (both_ways ? " and as much back at once" : ""),
          .bytes = static_cast<double>(copied_bytes) * (both_ways ? 2 : 1),
          .runs_at_once = 10,
          .start = [from, to, both_ways]() -> TimedRuns {
            int current = 0;
            NM_CALL(cudaGetDevice(&current));
            // Each way between buffers of its own.
            const PeerEnd a = peer_end(from, to), b = peer_end(to, from);
            const PeerEnd c = peer_end(from, to), d = peer_end(to, from);
            NM_CALL(cudaSetDevice(current));
            return [a, b, c, d, both_ways](int64_t runs) {
              const double begin = steady_seconds();
              for (int64_t run = 0; run < runs; ++run) {
                send(a, b);
                if (both_ways) send(d, c);
              }
              NM_CALL(cudaStreamSynchronize(a.stream.get()));
              NM_CALL(cudaStreamSynchronize(d.stream.get()));
              return steady_seconds() - begin;
            };
          }};
}

std::shared_ptr<void> random_matrix(int64_t n, uint64_t seed, Precision precision) {
  std::shared_ptr<void> memory = random_values(precision, n * n, seed, nullptr);
  NM_CALL(cudaStreamSynchronize(nullptr));
  return memory;
}

Probe device_copy_probe() {
  constexpr int64_t bytes = int64_t{1} << 30;
  return {
      .name = "copy/device",
      .work = "1 GiB from device memory to device memory",
      .bytes = 2.0 * static_cast<double>(bytes),
      .start = [] {
        const std::shared_ptr<void> from = allocate_device(bytes), to = allocate_device(bytes);
        return by_events([from, to](cudaStream_t stream) {
          NM_CALL(cudaMemcpyAsync(to.get(), from.get(), bytes, cudaMemcpyDeviceToDevice, stream));
        });
      }};
}

Probe product_probe(Precision precision) {
  constexpr int64_t n = 8192;
  return {.name = std::string("product/") + to_string(precision),
          .work = "the product of two matrices of 8192 x 8192 by cuBLASLt",
          .flops = 2.0 * n * n * n,
          .start = [precision] {
            const int64_t workspace_bytes = int64_t{64} << 20;
            const auto a = random_matrix(n, 1, precision), b = random_matrix(n, 2, precision);
            const std::shared_ptr<void> d = allocate_device(n * n * element_bytes(precision));
            const std::shared_ptr<void> workspace = allocate_device(workspace_bytes);
            const std::shared_ptr<cublasLtContext> handle = make_cublas();
            const auto product = std::make_shared<Product>(
                handle.get(), precision, ProductShape{n, n, n, false, true, n, n, n, false},
                nullptr, workspace_bytes);
            return by_events([a, b, d, workspace, handle, product](cudaStream_t stream) {
              product->launch({a.get(), b.get(), d.get()}, workspace.get(), stream);
            });
          }};
}

}  // namespace

std::vector<Probe> gpu_probes(int gpu) {
  use_gpu(gpu);
  std::vector<Probe> probes = launch_probes();
  probes.push_back(hold_probe());
  probes.push_back(device_copy_probe());
  for (const bool to_device : {true, false}) {
    for (const bool pinned : {true, false}) probes.push_back(host_copy_probe(to_device, pinned));
  }
  const int capability = compute_capability(gpu);
  for (const auto precision :
       {Precision::fp16, Precision::bf16, Precision::tf32, Precision::fp32}) {
    if (has_units(precision, capability)) probes.push_back(product_probe(precision));
  }
  int gpus = 0;
  NM_CALL(cudaGetDeviceCount(&gpus));
  for (int i = 0; i < gpus; ++i) {
    for (int j = i + 1; j < gpus; ++j) {
      probes.push_back(peer_probe(i, j, false));
      probes.push_back(peer_probe(j, i, false));
      probes.push_back(peer_probe(i, j, true));
    }
  }
  return probes;
}

Profile CudaProgram::profile(int repeats, bool with_ceilings) {
  wait_until_idle();
  const size_t kernels = step_.kernels.size();
  std::vector<EventHandle> marks;
  for (size_t i = 0; i <= kernels; ++i) marks.push_back(make_event());
  std::vector<std::vector<double>> seconds(kernels);
  const bool is_alone =
      resources_.ranks == 1 && !options_.pipeline.is_pipelined();  // none waits for it
  for (int run = 0; run < repeats; ++run) {
    if (is_alone) throw_if_stopped(*options_.stop);
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
  if (!with_ceilings) return profile;
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
                      .details = kernel.op,
                      .bytes = kernel.bytes,
                      .flops = kernel.flops,
                      .start = [this, &kernel] { return time_alone(kernel); }});
  }
  return probes;
}

}  // namespace nearmetal::cuda
