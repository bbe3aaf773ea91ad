#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "bench/run/rank_exchange.h"
#include "tests/ops/sum_of_one.h"
#include "tests/support/fake_backend.h"

namespace nearmetal {
namespace {

// A program whose steps take so long with each way to sum, and slower from step to step.
class DriftingProgram : public FakeProgram {
 public:
  DriftingProgram(Script& script, std::map<const AllReduce*, double> seconds, double drift)
      : FakeProgram(script), seconds_(std::move(seconds)), drift_(drift) {
    script.step = [this](int64_t) {
      return StepRecord{.seconds = seconds_.at(used_) + drift_ * static_cast<double>(steps_++)};
    };
  }

  void exchange_gradients(AllReduce& all_reduce, int64_t bucket_bytes) override {
    used_ = &all_reduce;
    taken.emplace_back(&all_reduce, bucket_bytes);
  }

  std::vector<std::pair<const AllReduce*, int64_t>> taken;

 private:
  std::map<const AllReduce*, double> seconds_;
  double drift_ = 0;
  int64_t steps_ = 0;
  const AllReduce* used_ = nullptr;
};

struct TryAllReduces : testing::Test {
  TryAllReduces() {
    for (const AllReduceKind kind : {AllReduceKind::nccl, AllReduceKind::host}) {
      candidates.push_back({std::make_unique<SumOfOne>(), &collective_for(kind, true)});
    }
    script.max_in_flight = 3;
  }

  const AllReduce* nccl() const { return candidates[0].all_reduce.get(); }
  const AllReduce* host() const { return candidates[1].all_reduce.get(); }

  std::vector<TriedAllReduce> tried_with(Program& program) {
    return try_all_reduces(*world, program, candidates, 1 << 20, {}, stop,
                           {.warm_up = 0.1, .settling = 0.05, .measured = 0.1});
  }

  const std::unique_ptr<World> world = join_world(0);
  std::vector<Exchange> candidates;
  Script script;
  std::atomic<int> stop = 0;
};

TEST_F(TryAllReduces, TakeTurnsAndFindTheFaster) {
  DriftingProgram program(script, {{nccl(), 0.0252}, {host(), 0.0247}}, 0);
  const std::vector<TriedAllReduce> tried = tried_with(program);
  ASSERT_EQ(tried.size(), 2u);
  EXPECT_EQ(tried[0].all_reduce, AllReduceKind::nccl);
  EXPECT_DOUBLE_EQ(tried[0].step_seconds, 0.0252);
  EXPECT_EQ(tried[1].all_reduce, AllReduceKind::host);
  EXPECT_DOUBLE_EQ(tried[1].step_seconds, 0.0247);
  EXPECT_EQ(fastest(tried).all_reduce, AllReduceKind::host);
  const std::pair by_nccl(nccl(), int64_t{1} << 20), by_host(host(), int64_t{1} << 20);
  EXPECT_THAT(program.taken, testing::ElementsAre(by_nccl, by_host, by_host, by_nccl));
  EXPECT_EQ(script.restarts, 4) << "each from the same parameters";
  EXPECT_EQ(script.most_queued, 3) << "as in the timed window";
  EXPECT_EQ(script.waited, script.enqueued);
}

// The second of two turns in a row would win by the drift alone, or lose.
TEST_F(TryAllReduces, ADriftDecidesNothing) {
  for (const double drift : {2e-6, -2e-6}) {
    for (const double gain : {5e-5, -5e-5}) {
      DriftingProgram program(script, {{nccl(), 0.01}, {host(), 0.01 - gain}}, drift);
      const std::vector<TriedAllReduce> tried = tried_with(program);
      EXPECT_EQ(fastest(tried).all_reduce, gain > 0 ? AllReduceKind::host : AllReduceKind::nccl)
          << drift << " " << gain;
    }
  }
}

TEST_F(TryAllReduces, AStopEndsThemBeforeTheNextTurn) {
  DriftingProgram program(script, {{nccl(), 0.01}, {host(), 0.01}}, 0);
  stop = SIGTERM;
  try {
    tried_with(program);
    FAIL() << "they went on";
  } catch (const JobFailure& failure) {
    EXPECT_TRUE(failure.is_stop());
    EXPECT_EQ(failure.exit_code, ExitCode::terminated);
  }
  EXPECT_EQ(script.waited, script.enqueued) << "no step is left queued";
}

TEST(FastestAllReduce, OfEqualOnesIsTheFirst) {
  EXPECT_EQ(
      fastest(std::vector<TriedAllReduce>{{AllReduceKind::nccl, 0.02}, {AllReduceKind::host, 0.02}})
          .all_reduce,
      AllReduceKind::nccl);
}

TEST(ChoiceText, NamesWhatIsTakenAndWhatBothTake) {
  const TriedAllReduce nccl{AllReduceKind::nccl, 0.0252}, host{AllReduceKind::host, 0.0247};
  EXPECT_EQ(choice_text({nccl, host}),
            "--all-reduce auto takes host memory: 24.70 ms instead of 25.20 ms");
  EXPECT_EQ(choice_text({nccl, {AllReduceKind::host, 0.0253}}),
            "--all-reduce auto takes NCCL: 25.20 ms instead of 25.30 ms");
  EXPECT_EQ(choice_text({}), "") << "it was asked for";
}

}  // namespace
}  // namespace nearmetal
