// What ranks do together, run by each of several processes that mpirun starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "bench/consensus.h"
#include "bench/together.h"
#include "comm/nccl_library.h"
#include "comm/world.h"
#include "models/backend.h"
#include "models/initialise.h"
#include "models/resnet.h"
#include "models/synthetic.h"
#include "reports/plan_cache.h"

namespace nearmetal {
namespace {

std::unique_ptr<World> world;  // of all tests: MPI starts once
std::string device = "cpu";    // or cuda: the first argument

constexpr int64_t batch = 3;

struct Shard {
  std::vector<float> images;
  std::vector<int32_t> labels;
};

// What rank `rank` trains on.
Shard shard_of(const Graph& graph, int rank) {
  Shard shard;
  shard.images.resize(batch * graph.image().elements());
  for (size_t i = 0; i < shard.images.size(); ++i) {
    shard.images[i] = normal_at(image_seed(100 + rank), i);
  }
  for (int64_t i = 0; i < batch; ++i) {
    shard.labels.push_back(static_cast<int32_t>((7 * rank + i) % graph.classes()));
  }
  return shard;
}

bool has_gpu_for_each_rank() {
  try {
    return load_backend("cuda").device_count() >= world->local_size();
  } catch (const std::runtime_error& error) {
    std::puts(error.what());
    return false;
  }
}

std::unique_ptr<AllReduce> all_reduce_on_device() {
  if (device == "cpu") return world->all_reduce();
  Nccl& nccl = load_nccl();
  const std::string group = world->broadcast(world->rank() == 0 ? nccl.new_group() : "");
  return nccl.join(group, world->rank(), world->size(), world->local_rank());
}

// As in a run, one rank chooses for all: engines of a GPU differ in the order of their sums, and
// which of them is fastest differs from time to time. All tests train the same network.
const std::vector<Plan>& plans_of_all(const Graph& graph, const ProgramOptions& options) {
  static const std::vector<Plan> plans = [&] {
    std::vector<Plan> chosen;
    if (world->rank() == 0) chosen = load_backend(device).choose_plans(graph, options);
    return plans_from_json(world->broadcast(plans_to_json(chosen)));
  }();
  return plans;
}

std::unique_ptr<Program> program_on(const Graph& graph, int rank, AllReduce* all_reduce,
                                    int64_t bucket_bytes = 0) {
  ProgramOptions options;
  options.batch_size = batch;
  options.threads = 1;
  options.gpu = world->local_rank();
  options.plans = plans_of_all(graph, options);
  options.plans_pinned = device == "cuda";
  auto program = load_backend(device).prepare(graph, options);
  if (all_reduce != nullptr) program->exchange_gradients(*all_reduce, bucket_bytes);
  program->restart(initial_parameters(graph, 1));
  const Shard shard = shard_of(graph, rank);
  program->use_batch(shard.images, shard.labels);
  return program;
}

std::vector<float> gradients_of_one_step(Program& program) {
  program.enqueue_step();
  program.wait_step();
  return program.gradients();
}

// What one rank computes from the shards of all, one after another.
std::vector<double> mean_of_gradients(const Graph& graph) {
  std::vector<double> mean(graph.parameter_count());
  for (int rank = 0; rank < world->size(); ++rank) {
    const auto program = program_on(graph, rank, nullptr);
    const std::vector<float> gradients = gradients_of_one_step(*program);
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += gradients[i] / world->size();
  }
  return mean;
}

double relative_difference(const std::vector<float>& found, const std::vector<double>& wanted) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    difference += (found[i] - wanted[i]) * (found[i] - wanted[i]);
    norm += wanted[i] * wanted[i];
  }
  return std::sqrt(difference / norm);
}

TEST(Ranks, TheAveragedGradientIsTheMeanOfThoseOfTheShards) {
  const Graph graph = resnet("resnet18", 32, 10);
  const std::vector<double> wanted = mean_of_gradients(graph);
  const auto all_reduce = all_reduce_on_device();
  const auto program = program_on(graph, world->rank(), all_reduce.get());
  const Shard shard = shard_of(graph, world->rank());
  for (const int64_t bucket_bytes : {int64_t{0}, int64_t{4} << 20, int64_t{1} << 20}) {
    program->exchange_gradients(*all_reduce, bucket_bytes);
    program->restart(initial_parameters(graph, 1));
    program->use_batch(shard.images, shard.labels);
    EXPECT_LT(relative_difference(gradients_of_one_step(*program), wanted),
              device == "cpu" ? 1e-6 : 1e-5)
        << "buckets of " << bucket_bytes;
  }
}

TEST(Ranks, ReplicasStayTheSameBitByBit) {
  const Graph graph = resnet("resnet18", 32, 10);
  const auto all_reduce = all_reduce_on_device();
  const auto program = program_on(graph, world->rank(), all_reduce.get(), 1 << 20);
  for (int step = 0; step < 3; ++step) {
    program->enqueue_step();
    EXPECT_TRUE(std::isfinite(program->wait_step().loss));
  }
  const auto bytes = [](const std::vector<float>& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), 4 * values.size());
  };
  const auto parameters = world->all_gather(bytes(program->parameters()));
  const auto momentum = world->all_gather(bytes(program->momentum()));
  for (int rank = 1; rank < world->size(); ++rank) {
    EXPECT_TRUE(parameters[rank] == parameters[0]);
    EXPECT_TRUE(momentum[rank] == momentum[0]);
  }
  EXPECT_NE(bytes(program->parameters()), bytes(initial_parameters(graph, 1)));
}

TEST(Ranks, BucketsAreTestedWithSumsThatAreKnown) {
  const Graph graph = resnet("resnet18", 32, 10);
  const auto all_reduce = all_reduce_on_device();
  const auto program = program_on(graph, world->rank(), all_reduce.get(), 8 << 20);
  int64_t bytes = 0;
  const std::vector<BucketTest> tests = all_reduce->test(2);
  EXPECT_GT(tests.size(), 2u);
  for (const BucketTest& test : tests) {
    EXPECT_TRUE(test.exact);
    EXPECT_GT(test.seconds, 0);
    bytes += test.bytes;
  }
  EXPECT_GE(bytes, 4 * graph.parameter_count()) << "with the padding of slices";
}

TEST(Ranks, GatherBroadcastAndMaximum) {
  const std::string mine(world->rank(), 'x');
  const std::vector<std::string> all = world->all_gather(mine);
  ASSERT_EQ(all.size(), static_cast<size_t>(world->size()));
  for (int rank = 0; rank < world->size(); ++rank) EXPECT_EQ(all[rank].size(), rank);
  EXPECT_EQ(world->broadcast("of rank " + std::to_string(world->rank())), "of rank 0");
  std::vector<int64_t> values{world->rank(), -world->rank(), 5};
  world->maximum(values);
  EXPECT_THAT(values, testing::ElementsAre(world->size() - 1, 0, 5));
  EXPECT_EQ(world->local_size(), world->size());
  EXPECT_EQ(world->local_rank(), world->rank());
}

TEST(Ranks, InStepAllGetEachAnswerAtTheSameStep) {
  const auto consensus = make_consensus(*world, true);
  const auto is_last = [](int step) { return step >= world->rank(); };
  for (int step = 0; step < world->size(); ++step) {
    const Wish agreed = consensus->agree({.ready = is_last(step), .stop = false});
    EXPECT_EQ(agreed.ready, step == world->size() - 1) << "once the last rank is ready";
    EXPECT_FALSE(agreed.stop);
  }
  EXPECT_TRUE(consensus->agree({.ready = false, .stop = world->rank() == 1}).stop);
  EXPECT_EQ(consensus->agree_steps(10 + world->rank()), 9 + world->size());
}

// Takes steps until all ranks are ready; a rank that is goes on.
int steps_until_agreed(Consensus& consensus, int ready_from, bool stops, Wish& agreed) {
  for (int step = 0;; ++step) {
    const bool ready = step >= ready_from;
    agreed = consensus.agree({.ready = ready && !stops, .stop = ready && stops});
    if (agreed.ready || agreed.stop) return step;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(Ranks, AtTheirOwnPaceNoneWaitsAndAllGoOn) {
  const auto consensus = make_consensus(*world, false);
  Wish agreed;
  EXPECT_GE(steps_until_agreed(*consensus, 20 * world->rank(), false, agreed), 20 * world->rank());
  EXPECT_TRUE(agreed.ready);
  steps_until_agreed(*consensus, 5, world->rank() == 1, agreed);
  EXPECT_TRUE(agreed.stop) << "one rank wants to";
  EXPECT_EQ(consensus->agree_steps(world->rank()), world->rank());
}

TEST(Ranks, TheFailureOfOneIsTheFailureOfAll) {
  EXPECT_NO_THROW(together(*world, [] {}));
  try {
    together(*world, [] {
      if (world->rank() == 1) throw std::invalid_argument("no such thing");
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const JobFailure& failure) {
    EXPECT_EQ(failure.exit_code, ExitCode::usage);
    EXPECT_EQ(failure.told, world->rank() > 0);
    EXPECT_THAT(failure.what(), testing::StartsWith("rank 1 ("));
    EXPECT_THAT(failure.what(), testing::EndsWith("): no such thing"));
  }
  try {
    together(*world, [] { throw std::runtime_error("alike"); });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const JobFailure& failure) {
    EXPECT_STREQ(failure.what(), "alike") << "no rank stands out";
  }
}

}  // namespace
}  // namespace nearmetal

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc > 1) nearmetal::device = argv[1];
  nearmetal::world = nearmetal::join_world(0);
  if (nearmetal::world->size() < 2) {
    std::fputs("to be started by mpirun, with two ranks at least\n", stderr);
    return 1;
  }
  if (nearmetal::device == "cuda" && !nearmetal::has_gpu_for_each_rank()) {
    std::puts("SKIPPED: there is no GPU for each rank");
    nearmetal::world.reset();
    return 0;
  }
  const int result = RUN_ALL_TESTS();
  nearmetal::world.reset();
  return result;
}
