// Status checks, owning handles and descriptors of cuDNN and cuBLASLt.
#pragma once

#include <cublasLt.h>
#include <cudnn_graph.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "models/cuda/device/check.h"

namespace nearmetal::cuda {

/// The texts of cuDNN for a status and for the last error.
inline std::string explained(cudnnStatus_t status) {
  std::array<char, 512> detail{};
  cudnnGetLastErrorString(detail.data(), detail.size());
  return std::string(cudnnGetErrorString(status)) + " " + detail.data();
}
inline void require_ok(cudnnStatus_t status, const char* call, const char* file, int line) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  fail_call("cuDNN: " + explained(status), call, file, line);
}
inline void require_ok(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail_call(std::string("cuBLAS: ") + cublasLtGetStatusString(status), call, file, line);
}

using CudnnHandle = Handle<cudnnHandle_t, cudnnDestroy>;
using CublasLtHandle = Handle<cublasLtHandle_t, cublasLtDestroy>;
inline CublasLtHandle make_cublas() { return NM_MAKE(CublasLtHandle, cublasLtCreate); }

/// Copies are one descriptor. cuDNN does not say whether a descriptor may go before those that name
/// it, so each keeps what it was given.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t descriptor = nullptr;
    NM_CALL(cudnnBackendCreateDescriptor(type, &descriptor));
    handle_ = {descriptor, Destroyer<cudnnBackendDestroyDescriptor>()};
  }

  cudnnBackendDescriptor_t get() const { return handle_.get(); }

  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                  const void* values) {
    NM_CALL(cudnnBackendSetAttribute(get(), name, type, count, values));
    return *this;
  }
  Descriptor& set(cudnnBackendAttributeName_t name, int64_t value) {
    return set(name, CUDNN_TYPE_INT64, 1, &value);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, std::initializer_list<int64_t> values) {
    return set(name, CUDNN_TYPE_INT64, static_cast<int64_t>(values.size()), values.begin());
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& value) {
    const cudnnBackendDescriptor_t raw = value.get();
    named_.push_back(value);
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, std::span<const Descriptor> values) {
    std::vector<cudnnBackendDescriptor_t> raw;
    for (const Descriptor& value : values) raw.push_back(value.get());
    named_.insert(named_.end(), values.begin(), values.end());
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(raw.size()), raw.data());
  }
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
    return set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
  }

  Descriptor& finalize() {
    NM_CALL(cudnnBackendFinalize(get()));
    return *this;
  }
  /// False where this configuration is not supported.
  bool try_finalize() { return cudnnBackendFinalize(get()) == CUDNN_STATUS_SUCCESS; }

  /// Up to `limit` values of an attribute; descriptors must be there to be filled.
  template <class Value>
  std::vector<Value> values(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                            int64_t limit) const {
    std::vector<Value> found(limit);
    int64_t count = 0;
    NM_CALL(cudnnBackendGetAttribute(get(), name, type, limit, &count, found.data()));
    found.resize(std::min(count, limit));
    return found;
  }
  int64_t integer(cudnnBackendAttributeName_t name) const {
    return values<int64_t>(name, CUDNN_TYPE_INT64, 1).at(0);
  }
  std::vector<Descriptor> descriptors(cudnnBackendAttributeName_t name,
                                      cudnnBackendDescriptorType_t type, int64_t limit) const {
    std::vector<Descriptor> found;
    std::vector<cudnnBackendDescriptor_t> raw;
    for (int64_t i = 0; i < limit; ++i) raw.push_back(found.emplace_back(type).get());
    int64_t count = 0;
    NM_CALL(cudnnBackendGetAttribute(get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, limit, &count,
                                     raw.data()));
    found.erase(found.begin() + std::min(count, limit), found.end());
    return found;
  }

 private:
  std::shared_ptr<void> handle_;
  std::vector<Descriptor> named_;
};

}  // namespace nearmetal::cuda
