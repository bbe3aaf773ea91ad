#include "models/cuda/libraries/descriptor.h"

#include <algorithm>

namespace nearmetal::cuda {

std::vector<Descriptor> Descriptor::descriptors(cudnnBackendAttributeName_t name,
                                                cudnnBackendDescriptorType_t type,
                                                int64_t limit) const {
  std::vector<Descriptor> found;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < limit; ++i) raw.push_back(found.emplace_back(type).get());
  int64_t count = 0;
  NM_CALL(cudnnBackendGetAttribute(get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, limit, &count,
                                   raw.data()));
  found.erase(found.begin() + std::min(count, limit), found.end());
  return found;
}

}  // namespace nearmetal::cuda
