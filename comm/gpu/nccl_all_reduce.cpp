// Sums gradients in the memory of GPUs by NCCL, over one group of all ranks.
#include "comm/gpu/gpu_all_reduce.h"
#include "comm/gpu/nccl_group.h"
#include "models/load_module.h"

namespace nearmetal {
namespace {

class NcclAllReduce : public GpuAllReduce {
 public:
  explicit NcclAllReduce(const JoinRequest& request)
      : GpuAllReduce(request), communicator_(join_group(request.group, rank(), ranks())) {}

  std::string library() const override { return nccl_version(); }

 private:
  // The update divides by the ranks: an average inside NCCL rules out some of its algorithms.
  void sum(int first, int count) override {
    NM_CALL(ncclGroupStart());
    for (int i = first; i < first + count; ++i) {
      const GradientBucket& bucket = buckets()[i];
      NM_CALL(ncclAllReduce(bucket.data, bucket.data, bucket.elements, nccl_type(bucket.type),
                            ncclSum, communicator_.get(), stream()));
    }
    NM_CALL(ncclGroupEnd());
  }

  Communicator communicator_;
};

}  // namespace
}  // namespace nearmetal

NM_EXPORT nearmetal::AllReduce* nearmetal_join_nccl(const nearmetal::JoinRequest& request) {
  return new nearmetal::NcclAllReduce(request);
}
