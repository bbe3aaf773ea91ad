#include "models/cpu/host.h"

#include <oneapi/dnnl/dnnl_debug.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>

#include "base/errors.h"
#include "base/names.h"
#include "models/control_groups.h"
#include "models/cpu/onednn.h"
#include "models/memory_plan.h"

namespace nearmetal::cpu {
namespace {

namespace fs = std::filesystem;

// The value behind "name:" in files as /proc/meminfo and /proc/cpuinfo; empty without such a line.
std::string value_in(const fs::path& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    const size_t colon = line.find(':');
    const size_t first =
        colon == std::string::npos ? colon : line.find_first_not_of(' ', colon + 1);
    if (first != std::string::npos) return line.substr(first);
  }
  return "";
}

int64_t meminfo_bytes(const std::string& name) {
  const std::string kibibytes = value_in("/proc/meminfo", name + ":");
  return kibibytes.empty() ? 0 : std::stoll(kibibytes) * 1024;
}

// As oneDNN names it: "avx512_core".
std::string instruction_set() {
  const std::string prefix = "cpu_isa_";
  const std::string name = dnnl_cpu_isa2str(dnnl_get_effective_cpu_isa());
  return name.starts_with(prefix) ? name.substr(prefix.size()) : "";
}

constexpr int64_t huge_page_bytes = int64_t{2} << 20;
constexpr int64_t piece_bytes = int64_t{1} << 20;

template <class Body>
void for_each_piece(int64_t bytes, Body body) {
#pragma omp parallel for schedule(static)
  for (int64_t first = 0; first < bytes; first += piece_bytes) {
    body(first, static_cast<size_t>(std::min(piece_bytes, bytes - first)));
  }
}

std::string first_word(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// All levels of data cache of the usable processors; infinite where the system reports none.
double data_cache_bytes() {
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) CPU_ZERO(&mask);
  std::map<std::string, double> caches;  // by level and processors that share it
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &mask)) continue;
    const fs::path folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache";
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(folder, failed)) {
      const double kibibytes = std::strtod(first_word(entry.path() / "size").c_str(), nullptr);
      if (kibibytes == 0 || first_word(entry.path() / "type") == "Instruction") continue;
      caches[first_word(entry.path() / "level") + " of " +
             first_word(entry.path() / "shared_cpu_list")] = 1024 * kibibytes;
    }
  }
  if (caches.empty()) return std::numeric_limits<double>::infinity();
  double sum = 0;
  for (const auto& [name, bytes] : caches) sum += bytes;
  return sum;
}

}  // namespace

int usable_threads() {
  cpu_set_t mask;
  const int processors = sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 1;
  return static_cast<int>(threads_within(processors, group_limits().cpus));
}

int64_t available_memory_bytes() {
  const int64_t available = meminfo_bytes("MemAvailable");
  const int64_t left = group_limits().memory_left_bytes.value_or(available);
  return std::max<int64_t>(0, std::min(available, left));
}

bool trains_bf16() {
  // The numbers of oneDNN's instruction sets are bit masks, in which a successor holds its
  // predecessors.
  const auto needed = static_cast<unsigned>(dnnl::cpu_isa::avx512_core);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & needed) == needed;
}

DeviceInfo describe_host() {
  DeviceInfo info;
  info.name = value_in("/proc/cpuinfo", "model name");
  if (info.name.empty()) info.name = "unknown CPU";
  info.compute_capability = instruction_set();
  info.memory_bytes =
      std::min(meminfo_bytes("MemTotal"),
               group_limits().memory_bytes.value_or(std::numeric_limits<int64_t>::max()));
  info.free_memory_bytes = available_memory_bytes();
  info.cache_bytes = data_cache_bytes();
  const dnnl::version_t& version = *dnnl::version();
  info.libraries = {{"onednn", std::to_string(version.major) + "." + std::to_string(version.minor) +
                                   "." + std::to_string(version.patch)}};
  return info;
}

HostMemory allocate_host(int64_t bytes) {
  const int64_t rounded = round_up(std::max<int64_t>(bytes, 1), huge_page_bytes);
  HostMemory memory(std::aligned_alloc(huge_page_bytes, rounded));
  if (memory == nullptr) throw NotEnoughMemory();
  // Advice: without huge pages the memory works as well, if a little slower.
  madvise(memory.get(), rounded, MADV_HUGEPAGE);
  char* first_byte = static_cast<char*>(memory.get());
  for_each_piece(rounded,
                 [=](int64_t first, size_t size) { std::memset(first_byte + first, 0, size); });
  return memory;
}

void parallel_copy(void* to, const void* from, int64_t bytes) {
  for_each_piece(bytes, [=](int64_t first, size_t size) {
    std::memcpy(static_cast<char*>(to) + first, static_cast<const char*>(from) + first, size);
  });
}

std::function<TimedRuns()> timed_again_and_again(std::function<void()> run) {
  return [run = std::move(run)]() -> TimedRuns {
    run();
    return [run](int64_t runs) {
      const double begin = steady_seconds();
      for (int64_t i = 0; i < runs; ++i) run();
      return steady_seconds() - begin;
    };
  };
}

Probe host_copy_probe() {
  constexpr int64_t bytes = int64_t{256} << 20;
  return {
      .name = "copy/device",
      .work = "256 MiB from memory to memory by all threads",
      .bytes = 2 * static_cast<double>(bytes),
      .start = [] {
        const std::shared_ptr<void> from = allocate_host(bytes), to = allocate_host(bytes);
        return timed_again_and_again([from, to] { parallel_copy(to.get(), from.get(), bytes); })();
      }};
}

Probe host_product_probe(Precision precision) {
  using dnnl::memory;
  constexpr int64_t n = 2048;
  return {
      .name = std::string("product/") + to_string(precision),
      .work = "the product of two matrices of 2048 x 2048 by oneDNN",
      .flops = 2.0 * n * n * n,
      .start = [precision] {
        const auto type =
            precision == Precision::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
        const memory::desc desc({n, n}, type, memory::format_tag::ab);
        const auto bytes = static_cast<int64_t>(desc.get_size());
        const std::shared_ptr<void> a = allocate_host(bytes), b = allocate_host(bytes),
                                    c = allocate_host(bytes);
        const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
        const dnnl::stream stream(engine);
        const dnnl::primitive_attr attributes;
        const dnnl::matmul product(describe<dnnl::matmul>({engine, attributes}, desc, desc, desc));
        const std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, {desc, engine, a.get()}},
                                                        {DNNL_ARG_WEIGHTS, {desc, engine, b.get()}},
                                                        {DNNL_ARG_DST, {desc, engine, c.get()}}};
        return timed_again_and_again(
            [a, b, c, stream, product, arguments] { product.execute(stream, arguments); })();
      }};
}

std::vector<Probe> host_probes() {
  std::vector<Probe> probes{host_copy_probe(), host_product_probe(Precision::fp32)};
  if (trains_bf16()) probes.push_back(host_product_probe(Precision::bf16));
  return probes;
}

}  // namespace nearmetal::cpu
