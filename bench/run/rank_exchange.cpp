#include <algorithm>
#include <cmath>

#include "bench/run/rank_run.h"
#include "bench/run/together.h"
#include "comm/join_all_reduce.h"
#include "comm/nccl_log.h"
#include "models/errors.h"
#include "reports/statistics/statistics.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

constexpr int64_t sizes_mib[] = {0, 4, 8, 16, 32};
constexpr double seconds_per_try = 0.5;
constexpr double fewest_tried_steps = 2, most_tried_steps = 20;  // beside the first

double step_seconds(Program& program) {
  program.enqueue_step();
  return program.wait_step().seconds;
}

// The median of the slowest rank.
double median_step_seconds(World& world, Program& program) {
  const double first = step_seconds(program);
  const int64_t steps = maximum_of_ranks(
      world,
      std::llround(std::clamp(seconds_per_try / first, fewest_tried_steps, most_tried_steps)));
  std::vector<double> seconds;
  for (int64_t i = 0; i < steps; ++i) seconds.push_back(step_seconds(program));
  return 1e-9 * static_cast<double>(maximum_of_ranks(world, std::llround(1e9 * median(seconds))));
}

// Trains a few steps from `parameters` with buckets of each size, from small to large and back
// again, since a GPU's clock moves meanwhile; of each size the faster of the two.
std::vector<TriedBucket> try_buckets(World& world, Program& program, AllReduce& all_reduce,
                                     std::span<const float> parameters) {
  std::vector<TriedBucket> tried;
  for (const int64_t size : sizes_mib) tried.push_back({size, INFINITY});
  const auto attempt = [&](TriedBucket& bucket) {
    program.exchange_gradients(all_reduce, bucket.bucket_mib << 20);
    program.restart(parameters);
    bucket.step_seconds = std::min(bucket.step_seconds, median_step_seconds(world, program));
  };
  std::ranges::for_each(tried, attempt);
  std::for_each(tried.rbegin(), tried.rend(), attempt);
  return tried;
}

const TriedBucket& fastest(const std::vector<TriedBucket>& tried) {
  return *std::ranges::min_element(tried, {}, &TriedBucket::step_seconds);
}

// "4 MiB 25.1 ms, all at once 27.0 ms"
std::string text_of(const std::vector<TriedBucket>& tried) {
  std::vector<std::string> texts;
  for (const TriedBucket& bucket : tried) {
    const std::string size =
        bucket.bucket_mib == 0 ? "all at once" : std::to_string(bucket.bucket_mib) + " MiB";
    texts.push_back(size + " " + significant(1e3 * bucket.step_seconds) + " ms");
  }
  return joined(texts);
}

// Loads what `collective` needs and returns NCCL's name of the group, empty where it does not sum.
std::string make_group(const RankTask& task, const Collective& collective, const HostPlace& place) {
  if (!collective.on_gpus) return "";
  if (collective.nccl == NcclGroup::none) {
    set_up_nccl(task.world);
    return "";
  }
  Nccl& nccl = set_up_nccl(task.world, {.algorithm = task.config.nccl_algorithm,
                                        .keep_log = task.config.launch == LaunchMode::graph});
  const bool each_host = collective.nccl == NcclGroup::each_host;
  return new_nccl_group(task.replicas(), nccl, each_host ? place.first_rank : 0);
}

std::string nccl_log(const RankTask& task) {
  return task.config.device == Device::cuda ? load_nccl().log() : "";
}

// Throws where they are not those that were asked for.
Maybe<NcclChoices> checked_choices(const RankTask& task, const Exchange& exchange,
                                   size_t earlier_bytes_of_log) {
  if (task.config.device != Device::cuda) return Unknown{"NCCL is for GPUs"};
  if (exchange.collective->nccl == NcclGroup::none) return Unknown{exchange.collective->no_nccl};
  if (task.world.rank() > 0) return Unknown{"NCCL reports it to rank 0"};
  if (task.config.launch != LaunchMode::graph)
    return Unknown{"known only for steps that are one graph"};
  const std::string log = nccl_log(task);
  Maybe<NcclChoices> choices =
      log.empty() ? Unknown{"no log of NCCL is kept: unset NCCL_DEBUG"}
                  : parse_nccl_log(log, earlier_bytes_of_log, exchange.collective->nccl_operations);
  require_algorithm(choices, task.config.nccl_algorithm);
  return choices;
}

}  // namespace

void abort_job(const RankTask& task, const std::string& what, const std::string& why) {
  const int64_t rank = task.world.rank();
  const std::string stage = stage_text(task.config, rank);
  const std::string text = "rank " + std::to_string(rank) + " (" + host_name() + ")" +
                           (stage.empty() ? "" : ", " + stage + ",") + " failed " + what + ": " +
                           why;
  if (task.reporter != nullptr) {
    task.reporter->tell(failure_event(JobFailure(text, ExitCode::run_failed, false)));
  }
  // In one piece, since a ProgressReporter may write to the same stream.
  task.terminal.err << "nearmetal: " + text + "\n" << std::flush;
  task.world.abort(static_cast<int>(ExitCode::run_failed));
}

void or_abort(const RankTask& task, const char* what, const std::function<void()>& work) {
  if (task.world.size() == 1) return work();
  try {
    work();
  } catch (const std::exception& error) {
    abort_job(task, what, error.what());
  }
}

Exchange join_exchange(const RankTask& task) {
  if (!exchanges_gradients(task.config, task.world.size())) return {};
  const bool on_gpus = task.config.device == Device::cuda;
  const Collective* collective = &collective_for(task.config.all_reduce, on_gpus);
  World& replicas = task.replicas();
  const std::vector<RankHost> hosts = hosts_of_ranks(replicas);
  together(task.world, [&] { require_hosts_for(*collective, hosts); });
  const HostPlace place = place_of(hosts, replicas.rank());
  if (collective->nccl == NcclGroup::each_host && place.hosts == 1) {
    task.terminal.remark("all ranks are on " + hosts[0].name +
                         ": NCCL alone sums gradients (--all-reduce " + collective->name + ")");
    collective = &collective_for(AllReduceKind::nccl, on_gpus);
  }
  Exchange joined{nullptr, collective};
  const std::string group = make_group(task, *collective, place);
  or_abort(task, "to join the others", [&] {
    joined.all_reduce = join_all_reduce(
        *collective, {.world = replicas,
                      .place = place,
                      .gpu = static_cast<int>(task.config.gpu),
                      .group = group,
                      .failed = [&task](const std::string& why) {
                        abort_job(task, "to sum gradients with the other hosts", why);
                      }});
  });
  return joined;
}

Communication prepare_exchange(const RankTask& task, Program& program, const Exchange& exchange,
                               std::span<const float> parameters) {
  AllReduce& all_reduce = *exchange.all_reduce;
  Communication prepared;
  prepared.all_reduce = exchange.collective->kind;
  size_t log_of_tries = 0;
  or_abort(task, "to prepare the exchange of gradients", [&] {
    if (!task.config.bucket_mib) {
      task.terminal.remark("trying sizes of buckets");
      prepared.tried = try_buckets(task.world, program, all_reduce, parameters);
      task.terminal.remark("step by size of bucket: " + text_of(prepared.tried));
    }
    prepared.bucket_mib =
        task.config.bucket_mib ? *task.config.bucket_mib : fastest(prepared.tried).bucket_mib;
    log_of_tries = nccl_log(task).size();
    program.exchange_gradients(all_reduce, prepared.bucket_mib << 20);
  });
  together(task.world, [&] { prepared.nccl = checked_choices(task, exchange, log_of_tries); });
  return prepared;
}

}  // namespace nearmetal
