// Stands in for the driver's library: a driver that has no device.
//
// cuDNN looks it up when it plans with engines that compile at run time. Where there is none it
// looks again for each graph, three times as slow in all. These engines are offered as on a machine
// with a GPU. It takes every image and finds every kernel in it, so that plans can be built.
//
// FAKE_CUDA_VERSION is the newest CUDA that the driver takes, such as 12020; where it is set,
// CUDA's runtime finds the driver, too.

#include <cstdlib>
#include <cstring>

extern "C" int cuDriverGetVersion(int* version) {
  const char* fake = std::getenv("FAKE_CUDA_VERSION");
  *version = fake == nullptr ? 13000 : std::atoi(fake);
  return 0;
}

namespace {

constexpr int no_device = 100;

int has_no_device() { return no_device; }

}  // namespace

extern "C" int cuGetProcAddress_v2(const char* symbol, void** function, int, unsigned long long,
                                   int* status) {
  if (std::getenv("FAKE_CUDA_VERSION") == nullptr) return no_device;
  if (status != nullptr) *status = 0;
  *function = reinterpret_cast<void*>(&has_no_device);
  if (std::strcmp(symbol, "cuDriverGetVersion") == 0) {
    *function = reinterpret_cast<void*>(&cuDriverGetVersion);
  } else if (std::strcmp(symbol, "cuGetProcAddress") == 0) {
    *function = reinterpret_cast<void*>(&cuGetProcAddress_v2);
  }
  return 0;
}

#define NO_DEVICE(name) \
  extern "C" int name() { return no_device; }

NO_DEVICE(cuCtxGetCurrent)
NO_DEVICE(cuCtxGetLimit)
NO_DEVICE(cuCtxPopCurrent)
NO_DEVICE(cuCtxPushCurrent)
NO_DEVICE(cuDeviceGet)
NO_DEVICE(cuDeviceGetCount)
NO_DEVICE(cuGetErrorName)
NO_DEVICE(cuGetErrorString)
NO_DEVICE(cuGetProcAddress)
NO_DEVICE(cuInit)
NO_DEVICE(cuLaunchCooperativeKernel)
NO_DEVICE(cuLaunchKernel)
NO_DEVICE(cuLaunchKernelEx)
NO_DEVICE(cuLibraryLoadFromFile)
NO_DEVICE(cuLinkAddData)
NO_DEVICE(cuLinkComplete)
NO_DEVICE(cuLinkCreate)
NO_DEVICE(cuLinkDestroy)
NO_DEVICE(cuOccupancyMaxPotentialClusterSize)
NO_DEVICE(cuStreamGetCtx)

namespace {

char something = 0;  // that a handle points at

}  // namespace

extern "C" int cuLibraryLoadData(void** library, const void*, void*, void*, unsigned, void*, void*,
                                 unsigned) {
  *library = &something;
  return 0;
}
extern "C" int cuLibraryGetKernel(void** kernel, void*, const char*) {
  *kernel = &something;
  return 0;
}
extern "C" int cuLibraryUnload(void*) { return 0; }
extern "C" int cuKernelGetAttribute(int* value, int, void*, int) {
  *value = 0;
  return 0;
}
extern "C" int cuKernelSetAttribute(int, int, void*, int) { return 0; }
