// The choice between ways to sum gradients, made together by each of several processes that mpirun
// starts.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "bench/run/rank_exchange.h"
#include "models/networks/registry.h"
#include "tests/comm/job.h"

namespace nearmetal {
namespace {

// Sums as MPI does, and is late on the last rank.
class LateAllReduce : public AllReduce {
 public:
  std::string library() const override { return sums_->library() + ", late"; }
  int ranks() const override { return sums_->ranks(); }
  void bind(std::vector<GradientBucket> buckets) override { sums_->bind(std::move(buckets)); }
  void start(int first, int count, void* stream) override { sums_->start(first, count, stream); }
  void finish(void* stream) override {
    if (world->rank() + 1 == world->size()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    sums_->finish(stream);
  }
  std::vector<BucketTest> test(int repeats) override { return sums_->test(repeats); }

 private:
  std::unique_ptr<AllReduce> sums_ = all_reduce_on_device();
};

// On CPUs the first is late; on GPUs nobody knows which is faster.
std::vector<Exchange> candidates() {
  std::vector<Exchange> candidates;
  for (const AllReduceKind kind : {AllReduceKind::nccl, AllReduceKind::host}) {
    candidates.push_back({nullptr, &collective_for(kind, true)});
    if (device == "cuda") candidates.back().all_reduce = all_reduce_on_device(kind);
  }
  if (device == "cuda") return candidates;
  candidates[0].all_reduce = std::make_unique<LateAllReduce>();
  candidates[1].all_reduce = all_reduce_on_device();
  return candidates;
}

TEST(TryExchanges, AllRanksChooseTheSameAndGoOnWithItAlone) {
  const bool on_gpus = device == "cuda";
  const Graph graph = build_network(on_gpus ? "resnet18" : "resnet20", {32, 10});
  const int64_t bucket_bytes = on_gpus ? 1 << 20 : 24 << 10;
  std::vector<Exchange> exchanges = candidates();
  const auto program =
      program_on(graph, world->rank(), {exchanges[0].all_reduce.get(), bucket_bytes});
  const std::vector<TriedAllReduce> tried =
      try_all_reduces(*world, *program, exchanges, bucket_bytes, initial_parameters(graph, 1),
                      never_stopped, {.warm_up = 0.1, .settling = 0.1, .measured = 0.2});
  ASSERT_EQ(tried.size(), 2u);
  const std::string mine = choice_text(tried);
  for (const std::string& other : world->all_gather(mine)) EXPECT_EQ(other, mine);
  const AllReduceKind taken = fastest(tried).all_reduce;
  EXPECT_TRUE(on_gpus || taken == AllReduceKind::host) << mine;
  if (exchanges[0].collective->kind != taken) std::swap(exchanges[0], exchanges[1]);
  restart(*program, graph, *exchanges[0].all_reduce, bucket_bytes);
  exchanges.pop_back();
  EXPECT_LT(relative_difference(gradients_of_one_step(*program), mean_of_gradients(graph)),
            on_gpus ? 1e-5 : 1e-6);
}

}  // namespace
}  // namespace nearmetal
