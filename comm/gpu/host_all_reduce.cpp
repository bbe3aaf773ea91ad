// Sums gradients in the memory of GPUs by way of their host's memory.
#include <cuda.h>

#include <algorithm>
#include <cstring>

#include "comm/gpu/gpu_all_reduce.h"
#include "comm/gpu/sum_rows.h"
#include "comm/shared_memory.h"
#include "models/load_module.h"
#include "models/memory_plan.h"

namespace nearmetal {
namespace {

constexpr int64_t line_bytes = 64;  // of a CPU's cache: a flag has one to itself
constexpr int64_t page_bytes = 4096;
constexpr int64_t stages = 2;
// The bytes that a copy engine moves while another copy is started.
constexpr int64_t worth_a_copy_bytes = 256 << 10;

// [0, `total`) but for `left_out`.
std::vector<Part> around(const Part& left_out, int64_t total) {
  const int64_t end = left_out.begin + left_out.elements;
  std::vector<Part> parts = {{0, left_out.begin}, {end, total - end}};
  std::erase_if(parts, [](const Part& part) { return part.elements == 0; });
  return parts;
}

CUstreamBatchMemOpParams write_of(uint32_t value, CUdeviceptr flag) {
  CUstreamBatchMemOpParams operation{};
  operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.writeValue.address = flag;
  operation.writeValue.value = value;
  operation.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;  // after all that the stream wrote
  return operation;
}

CUstreamBatchMemOpParams wait_for(uint32_t value, CUdeviceptr flag) {
  CUstreamBatchMemOpParams operation{};
  operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  operation.waitValue.address = flag;
  operation.waitValue.value = value;
  operation.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  return operation;
}

void enqueue(std::vector<CUstreamBatchMemOpParams>& operations, cudaStream_t stream) {
  constexpr unsigned second_form_since = 11070;
  static const auto batch =
      cuda::driver_function<decltype(&cuStreamBatchMemOp)>("cuStreamBatchMemOp", second_form_since);
  NM_CALL(batch(stream, static_cast<unsigned>(operations.size()), operations.data(), 0));
}

// Over GPUs of one host, without NCCL: copy engines move gradients through pinned memory that the
// ranks share, and streams wait for one another by values in it. Multiprocessors only add, a small
// part of the time, and NVLink stays asleep, whose power a GPU at its limit takes off its clock.
class HostAllReduce : public GpuAllReduce, private StagedOperations {
 public:
  // Takes two to 128 ranks.
  explicit HostAllReduce(const JoinRequest& request)
      : GpuAllReduce(request), world_(request.world) {}

  // "copy engines, driver of CUDA 13.0".
  std::string library() const override;
  // Collective.
  void bind(std::vector<GradientBucket> buckets) override;

 private:
  struct Place {
    int64_t in_rank = 0;    // bytes from the beginning of each rank's gradients, and of the sums
    Part own;               // what this rank sums
    int64_t row_bytes = 0;  // of that part as it comes from each rank
  };

  void share_memory();
  void sum(int first, int count) override { sum_staged(first, count, *this); }
  void share_gradients(int bucket) override;
  void fetch_gradients(int bucket) override;
  void add(int bucket) override;
  void share_sums(int bucket) override;
  void fetch_sums(int bucket) override;
  void signal(Stage stage, int first) override;
  void await(Stage stage, int first) override;

  std::byte* gradients_of(int rank, int bucket) const;
  std::byte* sums_of(int bucket) const;
  uint64_t flag(Stage stage, int bucket, int to, int from) const;  // as the GPU addresses it
  bool leaves_own_part_out(int bucket) const;
  std::vector<Part> parts_to_move(int bucket) const;
  // Copies between a bucket on the GPU and its like in shared memory, which begins at `staged`.
  void copy(int bucket, const Part& part, std::byte* staged, cudaMemcpyKind kind);

  World& world_;
  std::vector<Place> places_;    // by bucket
  int64_t gradients_begin_ = 0;  // of rank 0 in the shared memory, behind the flags
  int64_t rank_bytes_ = 0;       // of the gradients of each rank, and of the sums
  std::unique_ptr<SharedMemory> shared_;
  cuda::RegisteredMemory pinned_;  // the same memory, as the GPU may reach it
  uint64_t flags_ = 0;             // where it begins, as the GPU addresses it
  cuda::DeviceMemory rows_;        // of this rank's part of one bucket
};

std::string HostAllReduce::library() const {
  int version = 0;
  NM_CALL(cudaDriverGetVersion(&version));
  return "copy engines, driver of CUDA " + std::to_string(version / 1000) + "." +
         std::to_string(version / 10 % 100);
}

void HostAllReduce::bind(std::vector<GradientBucket> buckets) {
  GpuAllReduce::bind(std::move(buckets));
  places_.clear();
  rank_bytes_ = 0;
  int64_t rows_bytes = line_bytes;
  for (const GradientBucket& bucket : this->buckets()) {
    if (bucket.bytes() % 16 != 0)
      throw std::invalid_argument("a bucket is no multiple of 16 bytes");
    const Part own = part_of(bucket.elements, ranks(), rank());
    const int64_t own_bytes = own.elements * element_bytes(bucket.type);
    places_.push_back({rank_bytes_, own, round_up(own_bytes, line_bytes)});
    rank_bytes_ += round_up(bucket.bytes(), page_bytes);
    rows_bytes = std::max(rows_bytes, ranks() * places_.back().row_bytes);
  }
  share_memory();
  rows_.reset();
  rows_ = cuda::allocate_device(rows_bytes);
}

void HostAllReduce::share_memory() {
  const auto flags = static_cast<int64_t>(places_.size()) * stages * ranks() * ranks();
  gradients_begin_ = round_up(flags * line_bytes, page_bytes);
  pinned_.reset();
  shared_.reset();
  shared_ = std::make_unique<SharedMemory>(world_, gradients_begin_ + (ranks() + 1) * rank_bytes_);
  // Its pages lie where they are first touched: next to the GPU that writes them.
  std::memset(gradients_of(rank(), 0), 0, rank_bytes_);
  for (size_t i = 0; i < places_.size(); ++i) {
    const int64_t element = element_bytes(buckets()[i].type);
    const Part& own = places_[i].own;
    std::memset(sums_of(static_cast<int>(i)) + own.begin * element, 0, own.elements * element);
  }
  world_.all_gather("touched");
  NM_CALL(cudaHostRegister(shared_->data(), shared_->bytes(),
                           cudaHostRegisterMapped | cudaHostRegisterPortable));
  pinned_.reset(shared_->data());
  void* flags_on_device = nullptr;
  NM_CALL(cudaHostGetDevicePointer(&flags_on_device, shared_->data(), 0));
  flags_ = reinterpret_cast<CUdeviceptr>(flags_on_device);
}

std::byte* HostAllReduce::gradients_of(int rank, int bucket) const {
  return shared_->data() + gradients_begin_ + rank * rank_bytes_ + places_[bucket].in_rank;
}

std::byte* HostAllReduce::sums_of(int bucket) const { return gradients_of(ranks(), bucket); }

// Set by `from`, taken back by `to`.
uint64_t HostAllReduce::flag(Stage stage, int bucket, int to, int from) const {
  const int64_t in_bucket = (static_cast<int64_t>(stage) * ranks() + to) * ranks() + from;
  return flags_ + (bucket * stages * ranks() * ranks() + in_bucket) * line_bytes;
}

// But where its bytes are worth less than another copy.
bool HostAllReduce::leaves_own_part_out(int bucket) const {
  return places_[bucket].row_bytes > worth_a_copy_bytes;
}

std::vector<Part> HostAllReduce::parts_to_move(int bucket) const {
  const int64_t elements = buckets()[bucket].elements;
  if (leaves_own_part_out(bucket)) return around(places_[bucket].own, elements);
  return {{0, elements}};
}

void HostAllReduce::copy(int bucket, const Part& part, std::byte* staged, cudaMemcpyKind kind) {
  if (part.elements == 0) return;
  const GradientBucket& whole = buckets()[bucket];
  const int64_t begin = part.begin * element_bytes(whole.type);
  std::byte* on_gpu = static_cast<std::byte*>(whole.data) + begin;
  std::byte* on_host = staged + begin;
  const bool to_host = kind == cudaMemcpyDeviceToHost;
  NM_CALL(cudaMemcpyAsync(to_host ? on_host : on_gpu, to_host ? on_gpu : on_host,
                          part.elements * element_bytes(whole.type), kind, stream()));
}

void HostAllReduce::share_gradients(int bucket) {
  for (const Part& part : parts_to_move(bucket)) {
    copy(bucket, part, gradients_of(rank(), bucket), cudaMemcpyDeviceToHost);
  }
}

void HostAllReduce::fetch_gradients(int bucket) {
  const Place& place = places_[bucket];
  if (place.own.elements == 0) return;
  const int64_t element = element_bytes(buckets()[bucket].type);
  const std::vector<Part> whole{{0, ranks()}};
  for (const Part& from : leaves_own_part_out(bucket) ? around({rank(), 1}, ranks()) : whole) {
    NM_CALL(cudaMemcpy2DAsync(
        static_cast<std::byte*>(rows_.get()) + from.begin * place.row_bytes, place.row_bytes,
        gradients_of(static_cast<int>(from.begin), bucket) + place.own.begin * element, rank_bytes_,
        place.own.elements * element, from.elements, cudaMemcpyHostToDevice, stream()));
  }
}

void HostAllReduce::add(int bucket) {
  const Place& place = places_[bucket];
  if (place.own.elements == 0) return;
  const GradientBucket& whole = buckets()[bucket];
  const int64_t element = element_bytes(whole.type);
  launch_sum_rows(whole.type,
                  {rows_.get(), place.row_bytes / element, ranks(), rank(), place.own.elements},
                  static_cast<std::byte*>(whole.data) + place.own.begin * element, stream());
}

void HostAllReduce::share_sums(int bucket) {
  copy(bucket, places_[bucket].own, sums_of(bucket), cudaMemcpyDeviceToHost);
}

void HostAllReduce::fetch_sums(int bucket) {
  for (const Part& part : parts_to_move(bucket)) {
    copy(bucket, part, sums_of(bucket), cudaMemcpyHostToDevice);
  }
}

void HostAllReduce::signal(Stage stage, int first) {
  std::vector<CUstreamBatchMemOpParams> operations;
  for (int other = 0; other < ranks(); ++other) {
    if (other != rank()) operations.push_back(write_of(1, flag(stage, first, other, rank())));
  }
  enqueue(operations, stream());
}

void HostAllReduce::await(Stage stage, int first) {
  std::vector<CUstreamBatchMemOpParams> waits, resets;
  for (int other = 0; other < ranks(); ++other) {
    if (other == rank()) continue;
    waits.push_back(wait_for(1, flag(stage, first, rank(), other)));
    resets.push_back(write_of(0, flag(stage, first, rank(), other)));
  }
  waits.insert(waits.end(), resets.begin(), resets.end());
  enqueue(waits, stream());
}

}  // namespace
}  // namespace nearmetal

NM_EXPORT nearmetal::AllReduce* nearmetal_join_host(const nearmetal::JoinRequest& request) {
  return new nearmetal::HostAllReduce(request);
}
