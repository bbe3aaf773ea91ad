// For functions that nvcc compiles for the device, too.
#pragma once

#ifdef __CUDACC__
#define NM_HOST_DEVICE __host__ __device__
#else
#define NM_HOST_DEVICE
#endif
