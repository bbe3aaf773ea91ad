// Stands in for the driver's library: a driver that has no device.
//
// cuDNN looks it up when it plans with engines that compile at run time. Where there is none it
// looks again for each graph, three times as slow in all. These engines are offered as on a machine
// with a GPU; none of them is built, since the compiler takes none.

extern "C" int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}

#define NO_DEVICE(name) \
  extern "C" int name() { return 100; }

NO_DEVICE(cuCtxGetCurrent)
NO_DEVICE(cuCtxGetLimit)
NO_DEVICE(cuCtxPopCurrent)
NO_DEVICE(cuCtxPushCurrent)
NO_DEVICE(cuDeviceGet)
NO_DEVICE(cuDeviceGetCount)
NO_DEVICE(cuGetErrorName)
NO_DEVICE(cuGetErrorString)
NO_DEVICE(cuGetProcAddress)
NO_DEVICE(cuGetProcAddress_v2)
NO_DEVICE(cuInit)
NO_DEVICE(cuKernelGetAttribute)
NO_DEVICE(cuKernelSetAttribute)
NO_DEVICE(cuLaunchCooperativeKernel)
NO_DEVICE(cuLaunchKernel)
NO_DEVICE(cuLaunchKernelEx)
NO_DEVICE(cuLibraryGetKernel)
NO_DEVICE(cuLibraryLoadData)
NO_DEVICE(cuLibraryLoadFromFile)
NO_DEVICE(cuLibraryUnload)
NO_DEVICE(cuLinkAddData)
NO_DEVICE(cuLinkComplete)
NO_DEVICE(cuLinkCreate)
NO_DEVICE(cuLinkDestroy)
NO_DEVICE(cuOccupancyMaxPotentialClusterSize)
NO_DEVICE(cuStreamGetCtx)
