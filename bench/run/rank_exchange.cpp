#include "bench/run/rank_exchange.h"

#include <cmath>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "base/errors.h"
#include "base/text.h"
#include "bench/run/defaults.h"
#include "bench/run/rank_run.h"
#include "bench/run/together.h"
#include "reports/document/communication.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

constexpr int64_t sizes_mib[] = {0, 4, 8, 16, 32};
constexpr double seconds_per_try = 0.5;
constexpr double fewest_tried_steps = 2, most_tried_steps = 20;  // beside the first

double step_seconds(Program& program) {
  program.enqueue_step();
  return program.wait_step().seconds;
}

// Between two turns, of all ranks at once: they wait for one another in the steps.
void end_if_stopped(World& world, const std::atomic<int>& stop) {
  throw_if_stopped(static_cast<int>(maximum_of_ranks(world, stop)));
}

double of_slowest_rank(World& world, double seconds) {
  return 1e-9 * static_cast<double>(maximum_of_ranks(world, std::llround(1e9 * seconds)));
}

// The median of the slowest rank.
double median_step_seconds(World& world, Program& program) {
  const double first = step_seconds(program);
  const int64_t steps = maximum_of_ranks(
      world,
      std::llround(std::clamp(seconds_per_try / first, fewest_tried_steps, most_tried_steps)));
  std::vector<double> seconds;
  for (int64_t i = 0; i < steps; ++i) seconds.push_back(step_seconds(program));
  return of_slowest_rank(world, median(seconds));
}

// The time of a step, over so many that are queued as in the timed window.
double median_of_steps(Program& program, int64_t steps) {
  const int64_t ahead = program.max_steps_in_flight();
  std::vector<double> seconds;
  for (int64_t step = 0; step < steps + ahead; ++step) {
    if (step >= ahead) seconds.push_back(program.wait_step().seconds);
    if (step < steps) program.enqueue_step();
  }
  return median(seconds);
}

std::string milliseconds(double seconds) { return significant(1e3 * seconds) + " ms"; }

// Loads what `collective` needs and returns NCCL's name of the group, empty where it does not sum.
std::string make_group(const RankTask& task, const Collective& collective, const HostPlace& place) {
  if (!collective.on_gpus) return "";
  if (collective.nccl == NcclGroup::none) {
    set_up_nccl(task.world);
    return "";
  }
  Nccl& nccl = set_up_nccl(task.world, {.algorithm = task.config().nccl_algorithm,
                                        .keep_log = task.config().launch == LaunchMode::graph});
  const bool each_host = collective.nccl == NcclGroup::each_host;
  return new_nccl_group(task.replicas(), nccl, each_host ? place.first_rank : 0);
}

std::string nccl_log(const RankTask& task) {
  return task.config().device == Device::cuda ? load_nccl().log() : "";
}

// Throws where they are not those that were asked for.
Maybe<NcclChoices> checked_choices(const RankTask& task, const Exchange& exchange,
                                   size_t earlier_bytes_of_log) {
  if (task.config().device != Device::cuda) return Unknown{"NCCL is for GPUs"};
  if (exchange.collective->nccl == NcclGroup::none) return Unknown{exchange.collective->no_nccl};
  if (task.world.rank() > 0) return Unknown{"NCCL reports it to rank 0"};
  if (task.config().launch != LaunchMode::graph)
    return Unknown{"known only for steps that are one graph"};
  const std::string log = nccl_log(task);
  Maybe<NcclChoices> choices =
      log.empty() ? Unknown{"no log of NCCL is kept: unset NCCL_DEBUG"}
                  : parse_nccl_log(log, earlier_bytes_of_log, exchange.collective->nccl_operations);
  require_algorithm(choices, task.config().nccl_algorithm);
  return choices;
}

// The one that is asked for, or all that the fastest is to be found of.
std::vector<const Collective*> collectives_to_join(const RankTask& task,
                                                   std::span<const RankHost> hosts) {
  const Collective& asked =
      collective_for(task.config().all_reduce, task.config().device == Device::cuda);
  if (task.config().all_reduce != AllReduceKind::automatic) {
    together(task.world, [&] { require_hosts_for(asked, hosts); });
    return {&asked};
  }
  const bool several_hosts = place_of(hosts, 0).hosts > 1;
  if (maximum_of_ranks(task.world, several_hosts) != 0) {  // of stages of a pipeline, of any
    task.terminal.remark(std::string("--all-reduce auto takes ") + asked.title +
                         ": ranks on several hosts share no memory");
    return {&asked};
  }
  std::vector<const Collective*> timed;
  for (const Collective& row : collectives) {
    if (row.is_timed) timed.push_back(&row);
  }
  return timed;
}

Exchange join(const RankTask& task, const Collective& asked, std::span<const RankHost> hosts) {
  World& replicas = task.replicas();
  const Collective* collective = &asked;
  const HostPlace place = place_of(hosts, replicas.rank());
  if (collective->nccl == NcclGroup::each_host && place.hosts == 1) {
    task.terminal.remark("all ranks are on " + hosts[0].name +
                         ": NCCL alone sums gradients (--all-reduce " + collective->name + ")");
    collective = &collective_for(AllReduceKind::nccl, collective->on_gpus);
  }
  Exchange joined{nullptr, collective};
  const std::string group = make_group(task, *collective, place);
  or_abort(task, "to join the others", [&] {
    joined.all_reduce = join_all_reduce(
        *collective, {.world = replicas,
                      .place = place,
                      .gpu = static_cast<int>(task.config().gpu),
                      .group = group,
                      .failed = [&task](const std::string& why) {
                        abort_job(task, "to sum gradients with the other hosts", why);
                      }});
  });
  return joined;
}

// Measures the candidates and puts the fastest first.
std::vector<TriedAllReduce> choose(const RankTask& task, Program& program,
                                   std::vector<Exchange>& candidates,
                                   std::span<const float> parameters) {
  task.terminal.remark("timing the ways to sum gradients (--all-reduce auto)");
  const int64_t bucket_mib = task.config().bucket_mib.value_or(*RunConfig{}.bucket_mib);
  std::vector<TriedAllReduce> tried = try_all_reduces(
      task.world, program, candidates, bucket_mib << 20, parameters, task.context.stop);
  const AllReduceKind taken = fastest(tried).all_reduce;
  const auto place = std::ranges::find_if(
      candidates, [&](const Exchange& each) { return each.collective->kind == taken; });
  std::swap(candidates.front(), *place);
  task.terminal.remark(choice_text(tried));
  return tried;
}

// Trains a few steps from `parameters` with buckets of each size, from small to large and back
// again, since a GPU's clock moves meanwhile; of each size the faster of the two. Collective.
std::vector<TriedBucket> try_buckets(World& world, Program& program, AllReduce& all_reduce,
                                     std::span<const float> parameters,
                                     const std::atomic<int>& stop) {
  std::vector<TriedBucket> tried;
  for (const int64_t size : sizes_mib) tried.push_back({size, INFINITY});
  const auto attempt = [&](TriedBucket& bucket) {
    end_if_stopped(world, stop);
    program.exchange_gradients(all_reduce, bucket.bucket_mib << 20);
    program.restart(parameters);
    bucket.step_seconds = std::min(bucket.step_seconds, median_step_seconds(world, program));
  };
  std::ranges::for_each(tried, attempt);
  std::for_each(tried.rbegin(), tried.rend(), attempt);
  return tried;
}

// "4 MiB 25.1 ms, all at once 27.0 ms"
std::string text_of(const std::vector<TriedBucket>& tried) {
  return joined(transformed(tried, [](const TriedBucket& bucket) {
    const std::string size =
        bucket.bucket_mib == 0 ? "all at once" : std::to_string(bucket.bucket_mib) + " MiB";
    return size + " " + milliseconds(bucket.step_seconds);
  }));
}

// What must be the same on all ranks that exchange gradients: the library that sums them, and for
// each parameter where its gradient lies.
std::string exchange_lines(const Graph& graph, const Program& program,
                           const AllReduce& all_reduce) {
  std::string lines = all_reduce.library() + "\n";
  const std::vector<GradientPlace> places = program.gradient_places();
  for (size_t i = 0; i < places.size(); ++i) {
    const auto& [begin, elements, layout] = places[i];
    lines += graph.parameters()[i].name + ": " + counted(elements, "value") + " from " +
             std::to_string(begin) + (layout.empty() ? "" : ", " + layout) + "\n";
  }
  return lines;
}

// Sums over other layouts would be wrong, and over buckets of other sizes never end.
void require_same_exchange(const RankTask& task, const Program& program,
                           const AllReduce& all_reduce) {
  const std::string lines = exchange_lines(task.part(), program, all_reduce);
  std::istringstream own(lines), first(task.replicas().broadcast(lines));
  together(task.world, [&] {
    for (std::string mine, theirs; std::getline(own, mine);) {
      std::getline(first, theirs);
      if (mine == theirs) continue;
      throw std::invalid_argument(
          "it cannot exchange gradients with the first replica, which has " + theirs +
          ", as it has " + mine +
          ": ranks need the same libraries, CPUs with the same instruction "
          "sets, and the same ONEDNN_MAX_CPU_ISA");
    }
  });
}

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
std::string measured_cuts(const RankTask& task) {
  const PreparedDevice& device = task.device;
  RunConfig config = device.config;
  if (config.batch == largest_that_fits) config.batch = batch_for_balance;
  fill_defaults(config, config.device);
  ProgramOptions options = program_options(config, task.kernels);
  options.micro_batches = 1;
  options.pipeline = {};
  options.stop = &task.context.stop;
  const auto program = device.backend.prepare(device.graph, options);
  program->restart(start_parameters(config));
  const std::vector<double> seconds =
      node_seconds(device.graph, program->profile(balance_repeats, false));
  return cut_names(device.graph,
                   balanced_cuts(device.graph, seconds, static_cast<int>(config.pipeline)));
}

}  // namespace

std::vector<TriedAllReduce> try_all_reduces(World& world, Program& program,
                                            std::span<const Exchange> candidates,
                                            int64_t bucket_bytes, std::span<const float> parameters,
                                            const std::atomic<int>& stop, const TryLength& length) {
  std::vector<TriedAllReduce> tried(candidates.size());
  const auto steps_in = [&](double seconds, double step) {
    return maximum_of_ranks(world, std::max<int64_t>(1, std::llround(seconds / step)));
  };
  double settling = length.warm_up + length.settling;
  const auto take_turn = [&](size_t number) {
    program.exchange_gradients(*candidates[number].all_reduce, bucket_bytes);
    program.restart(parameters);
    const double first = median_of_steps(program, 2);
    end_if_stopped(world, stop);
    median_of_steps(program, steps_in(settling, first));
    settling = length.settling;
    end_if_stopped(world, stop);
    const double median = median_of_steps(program, steps_in(length.measured, first));
    constexpr double turns = 2;
    tried[number].all_reduce = candidates[number].collective->kind;
    tried[number].step_seconds += of_slowest_rank(world, median) / turns;
  };
  for (size_t i = 0; i < candidates.size(); ++i) take_turn(i);
  for (size_t i = candidates.size(); i-- > 0;) take_turn(i);
  return tried;
}

std::string choice_text(const std::vector<TriedAllReduce>& tried) {
  if (tried.empty()) return "";
  const TriedAllReduce& taken = fastest(tried);
  std::vector<std::string> others;
  for (const TriedAllReduce& other : tried) {
    if (&other != &taken) others.push_back(milliseconds(other.step_seconds));
  }
  return std::string("--all-reduce auto takes ") + collective_for(taken.all_reduce, true).title +
         ": " + milliseconds(taken.step_seconds) + " instead of " + joined(others);
}

std::vector<Exchange> join_exchanges(const RankTask& task) {
  if (!exchanges_gradients(task.config(), task.world.size())) return {};
  const std::vector<RankHost> hosts = hosts_of_ranks(task.replicas());
  return transformed(collectives_to_join(task, hosts),
                     [&](const Collective* collective) { return join(task, *collective, hosts); });
}

Communication prepare_exchange(const RankTask& task, Program& program,
                               std::vector<Exchange>& candidates,
                               std::span<const float> parameters) {
  require_same_exchange(task, program, *candidates.front().all_reduce);
  Communication prepared;
  size_t log_of_tries = 0;
  or_abort(task, "to prepare the exchange of gradients", [&] {
    if (candidates.size() > 1) {
      prepared.tried_all_reduces = choose(task, program, candidates, parameters);
    }
    AllReduce& all_reduce = *candidates.front().all_reduce;
    if (!task.config().bucket_mib) {
      task.terminal.remark("trying sizes of buckets");
      prepared.tried = try_buckets(task.world, program, all_reduce, parameters, task.context.stop);
      task.terminal.remark("step by size of bucket: " + text_of(prepared.tried));
    }
    prepared.bucket_mib =
        task.config().bucket_mib ? *task.config().bucket_mib : fastest(prepared.tried).bucket_mib;
    log_of_tries = nccl_log(task).size();
    program.exchange_gradients(all_reduce, prepared.bucket_mib << 20);
    // Only now does no step that is captured refer to the others.
    candidates.resize(1);
  });
  const Exchange& exchange = candidates.front();
  prepared.all_reduce = exchange.collective->kind;
  together(task.world, [&] { prepared.nccl = checked_choices(task, exchange, log_of_tries); });
  return prepared;
}

void choose_cuts(RankTask& task) {
  RunConfig& config = task.device.config;
  if (config.pipeline == 1 || config.cuts) return;
  std::string cuts;
  together(task.world, [&] {
    if (task.world.rank() == 0) cuts = measured_cuts(task);
  });
  config.cuts = task.world.broadcast(cuts);
  task.terminal.remark("cut behind " + *config.cuts + ", where stages take the most equal times");
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
  return {
      .stage = pipeline.stages->rank(),
      .replica = pipeline.replicas->rank(),
      .first_node = part.first_node,
      .last_node = part.last_node,
      .parameters = part.parameters.count,
      .gpipe_bytes = program.device_bytes_by(Schedule::gpipe),
      .one_forward_one_backward_bytes = program.device_bytes_by(Schedule::one_forward_one_backward),
      .boundary_bytes = program.boundary_bytes()};
}

BoundaryTest test_boundaries(RankPipeline& pipeline, StageLinks& links, const Program& program) {
  const std::vector<std::string> bytes =
      pipeline.stages->all_gather(std::to_string(program.boundary_bytes()));
  const int stage = pipeline.stages->rank();
  const int64_t from_previous = stage > 0 ? std::stoll(bytes[stage - 1]) : 0;
  return links.test(from_previous, program.boundary_bytes(), boundary_repeats);
}

}  // namespace nearmetal
