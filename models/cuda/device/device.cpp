#include "models/cuda/device/device.h"

#include <cublasLt.h>
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cudnn_graph.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/names.h"
#include "models/cuda/device/check.h"
#include "models/gpu_share.h"

namespace nearmetal::cuda {
namespace {

constexpr int oldest_capability = 75;  // the oldest that CUDA 13 compiles for
constexpr int ampere_capability = 80;

// Dense, in TFLOP/s, of all multiprocessors. 0: the chip has no such units.
struct DataSheet {
  const char* name;  // words of the GPU's name, all of which it must have
  int multiprocessors;
  double half, tf32, fp32;  // half: fp16, and bf16 where there is tf32
};

// From NVIDIA's data sheets of each product: "T4" (2019), "A100 80GB" (2022), "A30" (2022), "A10"
// (2021), "L4" (2023), "L40S" (2023), "H100" (2024), "H200" (2024), and "Blackwell" (2025, HGX
// B200), where those with sparsity are halved. Multiprocessors are CUDA cores there / cores of one.
// The first row that fits counts. Products of a chip differ (an H20 has a seventh of an H200's
// units), so that there is nothing to say of one that has no row.
constexpr DataSheet data_sheets[] = {
    {"T4", 40, 65, 0, 8.1},
    {"A100", 108, 312, 156, 19.5},
    {"A30", 56, 165, 82, 10.3},
    {"A10", 72, 125, 62.5, 31.2},
    {"L4", 58, 121, 60, 30.3},
    {"L40S", 142, 362, 183, 91.6},
    {"H100 PCIe", 114, 756.5, 378, 51},
    {"H100 NVL", 132, 835.5, 417.5, 60},
    {"H100", 132, 989.5, 494.5, 67},
    {"H200 NVL", 132, 835.5, 417.5, 60},
    {"H200", 132, 989.5, 494.5, 67},
    {"B200", 148, 2250, 1100, 75},
};

// Whether a name such as "NVIDIA A100-SXM4-80GB", whose words are apart by blanks and dashes, has
// all of these.
bool has_words(std::string name, const char* words) {
  std::ranges::replace(name, '-', ' ');
  std::istringstream wanted(words);
  for (std::string word; wanted >> word;) {
    if ((" " + name + " ").find(" " + word + " ") == std::string::npos) return false;
  }
  return true;
}

const DataSheet* data_sheet_of(const std::string& name) {
  const auto found = std::ranges::find_if(
      data_sheets, [&](const DataSheet& sheet) { return has_words(name, sheet.name); });
  return found == std::end(data_sheets) ? nullptr : &*found;
}

constexpr unsigned green_contexts_since = 12040;  // CUDA 12.4

template <class Function>
Function* green_function(const char* name) {
  void* found = find_driver_function(name, green_contexts_since);
  if (found != nullptr) return reinterpret_cast<Function*>(found);
  throw NotSupported(std::string("a part of a GPU needs a driver of CUDA 12.4 or later: no ") +
                     name);
}

void require_driver(CUresult status, const char* call) {
  if (status == CUDA_SUCCESS) return;
  const char* text = nullptr;
  green_function<decltype(cuGetErrorString)>("cuGetErrorString")(status, &text);
  throw NotSupported(std::string("no part of this GPU: ") + call + ": " +
                     (text == nullptr ? "error " + std::to_string(status) : text));
}

#define NM_DRIVER(function, ...) \
  require_driver(green_function<decltype(function)>(#function)(__VA_ARGS__), #function)

// As many groups of this size as there are, but at most so many; of one split, since parts of
// several would overlap.
std::vector<CUdevResource> split(CUdevResource all, unsigned multiprocessors, unsigned most) {
  std::vector<CUdevResource> groups(most);
  CUdevResource rest{};
  NM_DRIVER(cuDevSmResourceSplitByCount, groups.data(), &most, &all, &rest, 0, multiprocessors);
  groups.resize(most);
  return groups;
}

// A part of the GPU's multiprocessors. Memory, modules and devices are those of the GPU's primary
// context; what is launched while this is current, and into streams that were made then, runs on
// these multiprocessors alone. Of the driver's API (CUDA 12.4 and later): cuGreenCtxCreate and its
// kin.
struct GreenContext {
  CUcontext context = nullptr;  // of the process, to its end
  int multiprocessors = 0;
};

// A context on part of the current device. Throws NotSupported where driver or GPU cannot be split.
GreenContext make_green_context(const GpuShare& part) {
  int device = 0;
  NM_CALL(cudaGetDevice(&device));
  NM_CALL(cudaFree(nullptr));  // the primary context is there from now on
  CUdevResource all{};
  NM_DRIVER(cuDeviceGetDevResource, device, &all, CU_DEV_RESOURCE_TYPE_SM);
  const std::vector<CUdevResource> one = split(all, 1, 1);
  if (one.empty()) throw NotSupported("this GPU's multiprocessors cannot be split");
  const SmGroups wanted = sm_groups_of(part, all.sm.smCount, one[0].sm.smCount);
  std::vector<CUdevResource> groups = split(all, wanted.multiprocessors, wanted.needed);
  if (groups.size() < wanted.needed) {
    throw NotSupported("the parts take " + std::to_string(wanted.needed) + " times " +
                       std::to_string(wanted.multiprocessors) +
                       " multiprocessors, which this GPU has " + std::to_string(groups.size()) +
                       " times");
  }
  CUdevResourceDesc description = nullptr;
  NM_DRIVER(cuDevResourceGenerateDesc, &description, &groups[wanted.first], wanted.count);
  CUgreenCtx green = nullptr;
  NM_DRIVER(cuGreenCtxCreate, &green, description, device, CU_GREEN_CTX_DEFAULT_STREAM);
  GreenContext made;
  NM_DRIVER(cuCtxFromGreenCtx, &made.context, green);
  made.multiprocessors = static_cast<int>(wanted.count * groups[0].sm.smCount);
  return made;
}

// For the whole process, which has one GPU, or one part of it.
std::optional<GreenContext>& taken_part() {
  static std::optional<GreenContext> part;
  return part;
}

// Functions of contexts are asked for in forms that every driver has, and that headers of CUDA 12
// and 13 declare alike.
void set_current(CUcontext context) {
  const auto set = driver_function<PFN_cuCtxSetCurrent_v4000>("cuCtxSetCurrent", 4000);
  NM_CALL(set(context));
}

// The context of the SeparateContext that exists, or null.
CUcontext& separate_context() {
  static CUcontext context = nullptr;
  return context;
}

int attribute(cudaDeviceAttr name, int gpu) {
  int value = 0;
  NM_CALL(cudaDeviceGetAttribute(&value, name, gpu));
  return value;
}

cudaDeviceProp properties_of(int gpu) {
  cudaDeviceProp properties{};
  NM_CALL(cudaGetDeviceProperties(&properties, gpu));
  return properties;
}

// A context besides that of a part has the whole GPU, and an exclusive GPU takes one context alone.
bool has_separate_contexts(int gpu) {
  return !taken_part() && attribute(cudaDevAttrComputeMode, gpu) == cudaComputeModeDefault;
}

// The runtime has no name for this attribute, but the same number as the driver's API.
std::optional<bool> shares_dma_buf(int gpu) {
  constexpr auto name = static_cast<cudaDeviceAttr>(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
  int value = 0;
  if (cudaDeviceGetAttribute(&value, name, gpu) == cudaSuccess) return value != 0;
  cudaGetLastError();  // a driver that does not know it; nothing that a later call may find
  return std::nullopt;
}

std::string version_text(int64_t version, int64_t major_unit, int64_t minor_unit) {
  return std::to_string(version / major_unit) + "." +
         std::to_string(version % major_unit / minor_unit);
}

// By NVIDIA's "CUDA Compatibility" (docs.nvidia.com/deploy/cuda-compatibility): the branch of the
// driver that takes all toolkits of this major version, and the oldest one beside which the
// package cuda-compat brings the driver's libraries of this toolkit.
static_assert(CUDART_VERSION >= 12000 && CUDART_VERSION < 14000);
constexpr bool is_cuda_12 = CUDART_VERSION < 13000;
constexpr int oldest_driver = is_cuda_12 ? 525 : 580;
constexpr int oldest_with_package = is_cuda_12 ? 470 : 535;

DriverTooOld too_old(int driver) {
  const std::string built_for = version_text(CUDART_VERSION, 1000, 10);
  std::string package = "cuda-compat-" + built_for;
  std::replace(package.begin(), package.end(), '.', '-');
  return {"the driver takes CUDA " + version_text(driver, 1000, 10) +
              " at most, and this program was built for CUDA " + built_for,
          "install driver " + std::to_string(oldest_driver) +
              " or later, or, for a data-centre GPU with driver " +
              std::to_string(oldest_with_package) + " or later, NVIDIA's package " + package +
              ", and put its folder (/usr/local/cuda-" + built_for +
              "/compat) first in LD_LIBRARY_PATH"};
}

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    std::array<char, 3> byte{};
    std::snprintf(byte.data(), byte.size(), "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    text += byte.data();
  }
  return text;
}

}  // namespace

std::map<Precision, double> peak_rates(const std::string& name, int multiprocessors) {
  const DataSheet* sheet = data_sheet_of(name);
  if (sheet == nullptr) return {};
  const double part = 1e12 * multiprocessors / sheet->multiprocessors;
  std::map<Precision, double> rates = {{Precision::fp16, sheet->half * part},
                                       {Precision::fp32, sheet->fp32 * part}};
  if (sheet->tf32 > 0) {
    rates[Precision::bf16] = sheet->half * part;
    rates[Precision::tf32] = sheet->tf32 * part;
  }
  return rates;
}

bool has_units(Precision precision, int capability) {
  const bool since_ampere = precision == Precision::bf16 || precision == Precision::tf32;
  return capability >= (since_ampere ? ampere_capability : oldest_capability);
}

int compute_capability(int gpu) {
  const cudaDeviceProp properties = properties_of(gpu);
  return properties.major * 10 + properties.minor;
}

void require_units(Precision precision, const std::string& name, int capability) {
  if (has_units(precision, capability)) return;
  const std::string has = name + " has compute capability " + std::to_string(capability / 10) +
                          "." + std::to_string(capability % 10);
  if (capability < oldest_capability) {
    throw NotSupported(has + ", and kernels are there for 7.5 (Turing) and later");
  }
  throw std::invalid_argument(std::string(to_string(precision)) +
                              " needs tensor cores of compute capability 8.0 (Ampere) or later, "
                              "and " +
                              has + ": use fp16 or fp32");
}

void require_units(Precision precision, int gpu) {
  require_units(precision, properties_of(gpu).name, compute_capability(gpu));
}

int use_gpu(int gpu) {
  int count = 0, driver = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  // Without a driver the runtime says that its version is too low.
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0) {
    throw std::runtime_error("no NVIDIA driver is loaded");
  }
  if (status == cudaErrorInsufficientDriver) throw too_old(driver);
  if (status == cudaErrorCompatNotSupportedOnDevice) {
    throw DriverTooOld("the package cuda-compat stands in for a newer driver, and not for this GPU",
                       "take its folder out of LD_LIBRARY_PATH and install driver " +
                           std::to_string(oldest_driver) + " or later");
  }
  if (status != cudaSuccess) {
    throw std::runtime_error(std::string("no usable NVIDIA GPU: ") + cudaGetErrorString(status));
  }
  if (gpu < 0 || gpu >= count) {
    throw std::runtime_error("there is no GPU " + std::to_string(gpu) + ": " +
                             std::to_string(count) + " visible");
  }
  NM_CALL(cudaSetDevice(gpu));
  if (taken_part()) set_current(taken_part()->context);
  if (separate_context() != nullptr) set_current(separate_context());
  return multiprocessors_in_use();
}

int multiprocessors_in_use() {
  if (taken_part()) return taken_part()->multiprocessors;
  int gpu = 0;
  NM_CALL(cudaGetDevice(&gpu));
  return attribute(cudaDevAttrMultiProcessorCount, gpu);
}

SeparateContext::SeparateContext(int gpu) : gpu_(gpu) {
  use_gpu(gpu);
  if (!has_separate_contexts(gpu)) return;
  const auto create = driver_function<PFN_cuCtxCreate_v3020>("cuCtxCreate", 3020);
  NM_CALL(create(&separate_context(), 0, gpu));
}

SeparateContext::~SeparateContext() {
  CUcontext own = std::exchange(separate_context(), nullptr);
  if (own == nullptr) return;
  driver_function<PFN_cuCtxDestroy_v4000>("cuCtxDestroy", 4000)(own);
  cudaSetDevice(gpu_);
}

int64_t free_device_bytes() {
  size_t free = 0, total = 0;
  NM_CALL(cudaMemGetInfo(&free, &total));
  return static_cast<int64_t>(free);
}

void take_share_of_gpu(int gpu, const GpuShare& part) {
  use_gpu(gpu);
  taken_part() = make_green_context(part);
}

DeviceInfo describe_gpu(int gpu) {
  const int multiprocessors = use_gpu(gpu);
  const cudaDeviceProp properties = properties_of(gpu);
  DeviceInfo info;
  info.name = properties.name;
  info.uuid = uuid_text(properties.uuid);
  std::array<char, 32> pci{};
  NM_CALL(cudaDeviceGetPCIBusId(pci.data(), static_cast<int>(pci.size()), gpu));
  info.pci_id = pci.data();
  info.multiprocessors = multiprocessors;
  info.compute_capability =
      std::to_string(properties.major) + "." + std::to_string(properties.minor);
  info.dma_buf = shares_dma_buf(gpu);
  info.times_kernels_apart = has_separate_contexts(gpu);
  size_t free = 0, total = 0;
  NM_CALL(cudaMemGetInfo(&free, &total));
  info.memory_bytes = static_cast<int64_t>(total);
  info.free_memory_bytes = static_cast<int64_t>(free);

  int driver = 0, runtime = 0;
  NM_CALL(cudaDriverGetVersion(&driver));
  NM_CALL(cudaRuntimeGetVersion(&runtime));
  const auto cudnn = static_cast<int64_t>(cudnnGetVersion());
  const auto cublas = static_cast<int64_t>(cublasLtGetVersion());
  info.libraries = {
      {"cuda_driver_api", version_text(driver, 1000, 10)},
      {"cuda_runtime", version_text(runtime, 1000, 10)},
      {"cudnn", version_text(cudnn, 10000, 100) + "." + std::to_string(cudnn % 100)},
      {"cublaslt", version_text(cublas, 10000, 100) + "." + std::to_string(cublas % 100)}};
  info.peak_flops_per_second = peak_rates(info.name, multiprocessors);
  // Two transfers a clock (double data rate), bus width in bits.
  info.peak_memory_bytes_per_second = 2 * 1e3 * attribute(cudaDevAttrMemoryClockRate, gpu) *
                                      attribute(cudaDevAttrGlobalMemoryBusWidth, gpu) / 8;
  return info;
}

}  // namespace nearmetal::cuda
