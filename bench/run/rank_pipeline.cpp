#include "bench/run/rank_pipeline.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/text.h"
#include "bench/run/defaults.h"
#include "bench/run/together.h"

namespace nearmetal {
namespace {

constexpr int balance_repeats = 3;
constexpr int boundary_repeats = 5;
// The batch where it is still to be found.
constexpr int64_t batch_for_balance = 32;

// The seconds of each node of the graph in a profile, whose entries are named after nodes.
std::vector<double> node_seconds(const Graph& graph, const Profile& profile) {
  std::vector<double> seconds(graph.nodes().size());
  for (const ProfileEntry& entry : profile.entries) {
    const std::string name = entry.name.substr(0, entry.name.find_first_of(" ,"));
    const auto found = std::ranges::find(graph.nodes(), name, &Node::name);
    if (found != graph.nodes().end()) seconds[found - graph.nodes().begin()] += entry.seconds;
  }
  return seconds;
}

// The cuts by one micro-batch of the whole network.
std::string measured_cuts(const PreparedDevice& device, const KernelSource& kernels) {
  RunConfig config = device.config;
  if (config.batch == largest_that_fits) config.batch = batch_for_balance;
  fill_defaults(config, config.device);
  ProgramOptions options = program_options(config, kernels);
  options.micro_batches = 1;
  options.pipeline = {};
  const auto program = device.backend.prepare(device.graph, options);
  program->restart(start_parameters(config));
  const std::vector<double> seconds = node_seconds(device.graph, program->profile(balance_repeats));
  return cut_names(device.graph,
                   balanced_cuts(device.graph, seconds, static_cast<int>(config.pipeline)));
}

}  // namespace

void settle_cuts(PreparedDevice& device, const KernelSource& kernels, World& world,
                 const Terminal& terminal) {
  RunConfig& config = device.config;
  if (config.pipeline == 1 || config.cuts) return;
  std::string cuts;
  together(world, [&] {
    if (world.rank() == 0) cuts = measured_cuts(device, kernels);
  });
  config.cuts = world.broadcast(cuts);
  terminal.remark("cut behind " + *config.cuts + ", where stages take the most equal times");
}

std::unique_ptr<RankPipeline> join_pipeline(const PreparedDevice& device, World& world) {
  const RunConfig& config = device.config;
  if (config.pipeline == 1) return nullptr;
  const int rank = world.rank();
  const auto stage = static_cast<int>(stage_of(config, rank));
  const std::vector<int> cuts =
      named_cuts(device.graph, *config.cuts, static_cast<int>(config.pipeline));
  auto stages = world.split(static_cast<int>(replica_of(config, rank)));
  auto replicas = world.split(stage);
  return std::make_unique<RankPipeline>(
      RankPipeline{std::move(stages), std::move(replicas), make_stage(device.graph, cuts, stage)});
}

// Each stage makes names of its own, of which those count that StageGroups speaks of.
std::vector<StageGroups> stage_groups(World& stages, Nccl& nccl) {
  std::vector<StageGroups> groups(stages.size());
  for (std::string StageGroups::*which :
       {&StageGroups::values, &StageGroups::gradients, &StageGroups::sums}) {
    std::string name;
    together(stages, [&] { name = nccl.new_group(); });
    const std::vector<std::string> names = stages.all_gather(name);
    for (size_t i = 0; i < names.size(); ++i) groups[i].*which = names[i];
  }
  return groups;
}

RankStage prepared_stage(const RankPipeline& pipeline, const Program& program) {
  const PipelineStage& part = pipeline.part;
  RankStage stage{.stage = pipeline.stages->rank(),
                  .replica = pipeline.replicas->rank(),
                  .first_node = part.first_node,
                  .last_node = part.last_node,
                  .parameters = part.parameters.count,
                  .boundary_bytes = program.boundary_bytes()};
  stage.gpipe_bytes = program.device_bytes_by(Schedule::gpipe);
  stage.one_forward_one_backward_bytes =
      program.device_bytes_by(Schedule::one_forward_one_backward);
  return stage;
}

BoundaryTest test_boundaries(RankPipeline& pipeline, StageLinks& links, const Program& program) {
  const std::vector<std::string> bytes =
      pipeline.stages->all_gather(std::to_string(program.boundary_bytes()));
  const int stage = pipeline.stages->rank();
  const int64_t from_previous = stage > 0 ? std::stoll(bytes[stage - 1]) : 0;
  return links.test(from_previous, program.boundary_bytes(), boundary_repeats);
}

}  // namespace nearmetal
