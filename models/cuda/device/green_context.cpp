#include "models/cuda/device/green_context.h"

#include <cuda_runtime.h>

#include <string>
#include <vector>

#include "models/cuda/device/check.h"
#include "models/errors.h"

namespace nearmetal::cuda {
namespace {

constexpr unsigned green_contexts_since = 12040;  // CUDA 12.4

template <class Function>
Function* green_function(const char* name) {
  void* found = driver_function(name, green_contexts_since);
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

}  // namespace

GreenContext::GreenContext(const GpuPart& part) {
  int device = 0;
  NM_CALL(cudaGetDevice(&device));
  NM_CALL(cudaFree(nullptr));  // the primary context is there from now on
  CUdevResource all{};
  NM_DRIVER(cuDeviceGetDevResource, device, &all, CU_DEV_RESOURCE_TYPE_SM);
  const std::vector<CUdevResource> one = split(all, 1, 1);
  if (one.empty()) throw NotSupported("this GPU's multiprocessors cannot be split");
  const PartGroups wanted = groups_of(part, all.sm.smCount, one[0].sm.smCount);
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
  NM_DRIVER(cuCtxFromGreenCtx, &context_, green);
  multiprocessors_ = static_cast<int>(wanted.count * groups[0].sm.smCount);
}

void GreenContext::make_current() const { NM_DRIVER(cuCtxSetCurrent, context_); }

}  // namespace nearmetal::cuda
