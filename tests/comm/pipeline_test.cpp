// Stages of a pipeline, each in a process of its own, and replicas of such a pipeline.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "bench/run/rank_exchange.h"
#include "comm/join_ranks.h"
#include "models/networks/registry.h"
#include "models/pipeline_cuts.h"
#include "tests/comm/job.h"

namespace nearmetal {
namespace {

constexpr int64_t micro_batches = 3, images_at_once = 2;
constexpr int stage_count = 2;

Graph pipelined_graph() { return build_network("resnet20", {16, 10}); }

std::unique_ptr<StageLinks> links_of(World& stages) {
  const bool on_gpus = device == "cuda";
  std::vector<StageGroups> groups;
  if (on_gpus) groups = stage_groups(stages, load_nccl());
  return join_stage_links(on_gpus, {.world = stages, .gpu = world->local_rank()}, groups);
}

struct Joined {
  std::unique_ptr<World> stages;  // of this replica
  std::unique_ptr<StageLinks> links;
};

Joined join_stages() {
  Joined joined{world->split(world->rank() / stage_count), nullptr};
  joined.links = links_of(*joined.stages);
  return joined;
}

ProgramOptions options_of(int replica) {
  ProgramOptions options;
  options.batch_size = images_at_once;
  options.micro_batches = micro_batches;
  options.threads = 1;
  options.data_seed = 10 + static_cast<uint64_t>(replica);
  return options;
}

// Parameters and then gradients after some steps, as bytes.
std::string state_after(Program& program, std::span<const float> parameters) {
  program.restart(parameters);
  for (int step = 0; step < 3; ++step) {
    program.enqueue_step();
    program.wait_step();
  }
  std::string bytes;
  for (const std::vector<float>& values : {program.parameters(), program.gradients()}) {
    bytes.append(reinterpret_cast<const char*>(values.data()), 4 * values.size());
  }
  return bytes;
}

// The same of the part of one stage, from one program with all of the network.
std::string wanted_state(const Graph& graph, const PipelineStage& stage, int replica) {
  const auto program = load_backend("cpu").prepare(graph, options_of(replica));
  const std::string all = state_after(*program, initial_parameters(graph, 1));
  const size_t begin = 4 * stage.parameters.begin, count = 4 * stage.parameters.count;
  return all.substr(begin, count) + all.substr(all.size() / 2 + begin, count);
}

TEST(PipelineOfRanks, TrainsAsOneDeviceWithAccumulation) {
  if (device != "cpu") GTEST_SKIP() << "bit by bit on CPUs alone; GPUs have a test for rounding";
  const Graph graph = pipelined_graph();
  const std::vector<int> cuts = named_cuts(graph, "layer2", stage_count);
  const int replica = world->rank() / stage_count;
  Joined joined = join_stages();
  const PipelineStage stage = make_stage(graph, cuts, joined.stages->rank());
  for (const Schedule schedule : {Schedule::gpipe, Schedule::one_forward_one_backward}) {
    ProgramOptions options = options_of(replica);
    options.pipeline = {stage_count, joined.stages->rank(), schedule};
    const auto program = load_backend("cpu").prepare(stage.graph, options);
    program->connect_stages(*joined.links);
    const std::vector<float> all = initial_parameters(graph, 1);
    const auto own = std::span(all).subspan(stage.parameters.begin, stage.parameters.count);
    EXPECT_TRUE(state_after(*program, own) == wanted_state(graph, stage, replica))
        << to_string(schedule);
  }
}

TEST(PipelineOfRanks, CarriesKnownValuesThroughEachBoundary) {
  const auto stages = world->split(0);
  const auto links = links_of(*stages);
  const int64_t to_next = stages->rank() + 1 < stages->size() ? 100001 : 0;
  const BoundaryTest test = links->test(stages->rank() > 0 ? 100001 : 0, to_next, 3);
  EXPECT_TRUE(test.exact);
  EXPECT_EQ(test.bytes, to_next);
  if (device != "cpu") return;  // sums are in the memory of the device
  std::vector<double> sums{1.0 + stages->rank(), 0.5};
  links->sum(sums.data(), 2, nullptr);
  const int n = stages->size();
  EXPECT_THAT(sums, testing::ElementsAre(n * (n + 1) / 2.0, 0.5 * n));
}

// Kernels differ in the order of their sums from those of the whole network, so that only rounding
// may. Of images half as large the last batch norms see two values, whose rounding they blow up.
TEST(PipelineOfRanks, OnGpusTrainsAsOneDeviceButForRounding) {
  if (device != "cuda") GTEST_SKIP() << "CPUs are compared bit by bit";
  const Graph graph = build_network("resnet18", {64, 10});
  const std::vector<int> cuts = named_cuts(graph, "layer2", stage_count);
  Joined joined = join_stages();
  const PipelineStage stage = make_stage(graph, cuts, joined.stages->rank());
  const std::vector<float> all = initial_parameters(graph, 1);
  ProgramOptions options = options_of(world->rank() / stage_count);
  options.gpu = world->local_rank();
  const auto alone = load_backend("cuda").prepare(graph, options);
  alone->restart(all);
  alone->enqueue_step();
  const StepRecord wanted = alone->wait_step();
  const std::vector<float> gradients = alone->gradients();
  for (const Schedule schedule : {Schedule::gpipe, Schedule::one_forward_one_backward}) {
    for (const bool as_graph : {false, true}) {
      options.pipeline = {stage_count, joined.stages->rank(), schedule};
      options.launch_as_graph = as_graph;
      const auto program = load_backend("cuda").prepare(stage.graph, options);
      program->connect_stages(*joined.links);
      program->restart(std::span(all).subspan(stage.parameters.begin, stage.parameters.count));
      program->enqueue_step();
      const StepRecord found = program->wait_step();
      EXPECT_NEAR(found.loss, wanted.loss, 1e-4) << to_string(schedule);
      EXPECT_NEAR(found.gradient_norm, wanted.gradient_norm, 1e-3 * wanted.gradient_norm);
      const auto own = gradients.begin() + stage.parameters.begin;
      EXPECT_LT(relative_difference(program->gradients(),
                                    std::vector<double>(own, own + stage.parameters.count)),
                1e-3)
          << to_string(schedule);
      EXPECT_EQ(program->task_marks().size(), 2 * micro_batches);
      EXPECT_GT(found.pipeline.busy(), 0);
      EXPECT_GE(found.pipeline.span, found.pipeline.busy());
    }
  }
}

TEST(PipelineOfRanks, ReplicasTrainTheSameStages) {
  if (device != "cpu") GTEST_SKIP() << "compares replicas bit by bit with one CPU";
  const Graph graph = pipelined_graph();
  const std::vector<int> cuts = named_cuts(graph, "layer2", stage_count);
  Joined joined = join_stages();
  const int replica = world->rank() / stage_count;
  const auto replicas = world->split(joined.stages->rank());
  const PipelineStage stage = make_stage(graph, cuts, joined.stages->rank());
  ProgramOptions options = options_of(replica);
  options.pipeline = {stage_count, joined.stages->rank()};
  const auto program = load_backend("cpu").prepare(stage.graph, options);
  program->connect_stages(*joined.links);
  std::unique_ptr<AllReduce> all_reduce;
  if (replicas->size() > 1) {
    all_reduce =
        join_all_reduce(collective_for(AllReduceKind::automatic, false), {.world = *replicas});
    EXPECT_EQ(all_reduce->ranks(), world->size() / stage_count);
    program->exchange_gradients(*all_reduce, 16 << 10);
  }
  const std::vector<float> all = initial_parameters(graph, 1);
  const auto own = std::span(all).subspan(stage.parameters.begin, stage.parameters.count);
  const std::string state = state_after(*program, own);
  for (const std::string& other : replicas->all_gather(state)) EXPECT_TRUE(other == state);
  EXPECT_EQ(state == wanted_state(graph, stage, replica), replicas->size() == 1);
}

}  // namespace
}  // namespace nearmetal
