#include "bench/run/rank_exchange.h"

#include "bench/run/bucket_size.h"
#include "bench/run/gpu_ranks.h"
#include "bench/run/together.h"
#include "comm/nccl_log.h"

namespace nearmetal {
namespace {

NcclSetUp nccl_set_up(const RankTask& task) {
  return {.algorithm = task.config.nccl_algorithm,
          .keep_log = task.config.launch == LaunchMode::graph};
}

Exchange join_nccl(const RankTask& task) {
  const World& world = task.world;
  const NcclGroup group = new_nccl_group(task.world, nccl_set_up(task));
  Exchange joined{nullptr, AllReduceKind::nccl};
  or_abort(task, "to join the others", [&] {
    joined.all_reduce =
        group.nccl.join(group.name, world.rank(), world.size(), static_cast<int>(task.config.gpu));
  });
  return joined;
}

Exchange join_between_hosts(const RankTask& task, const HostPlace& place) {
  Nccl& nccl = set_up_nccl(task.world, nccl_set_up(task));
  const std::string group = new_host_group(task.world, nccl, place);
  Exchange joined{nullptr, AllReduceKind::hierarchical};
  or_abort(task, "to join the others", [&] {
    joined.all_reduce =
        join_hierarchical(task.world, nccl, group, place, static_cast<int>(task.config.gpu),
                          [&task](const std::string& why) {
                            abort_job(task, "to sum gradients with the other hosts", why);
                          });
  });
  return joined;
}

Exchange join_hierarchical_or_nccl(const RankTask& task) {
  const std::vector<RankHost> hosts = hosts_of_ranks(task.world);
  HostPlace place;
  together(task.world, [&] { place = place_of(hosts, task.world.rank()); });
  if (place.hosts > 1) return join_between_hosts(task, place);
  task.terminal.remark("all ranks are on " + hosts[0].name +
                       ": NCCL alone sums gradients (--all-reduce hierarchical)");
  return join_nccl(task);
}

Exchange join_through_host(const RankTask& task) {
  const std::vector<RankHost> hosts = hosts_of_ranks(task.world);
  together(task.world, [&] { require_one_host(hosts); });
  Nccl& nccl = set_up_nccl(task.world, {});
  Exchange joined{nullptr, AllReduceKind::host};
  or_abort(task, "to join the others", [&] {
    joined.all_reduce = nccl.join_through_host(task.world, static_cast<int>(task.config.gpu));
  });
  return joined;
}

Exchange join_gpus(const RankTask& task) {
  if (task.config.all_reduce == AllReduceKind::hierarchical) return join_hierarchical_or_nccl(task);
  if (task.config.all_reduce == AllReduceKind::host) return join_through_host(task);
  return join_nccl(task);
}

std::string nccl_log(const RankTask& task) {
  return task.config.device == Device::cuda ? load_nccl().log() : "";
}

// Throws where they are not those that were asked for.
Maybe<NcclChoices> checked_choices(const RankTask& task, const Exchange& exchange,
                                   size_t earlier_bytes_of_log) {
  if (task.config.device != Device::cuda) return Unknown{"NCCL is for GPUs"};
  if (exchange.kind == AllReduceKind::host) return Unknown{"copy engines sum, not NCCL"};
  if (task.world.rank() > 0) return Unknown{"NCCL tells rank 0"};
  if (task.config.launch != LaunchMode::graph)
    return Unknown{"told only of steps that are one graph"};
  const std::string log = nccl_log(task);
  const char* operations =
      exchange.kind == AllReduceKind::hierarchical ? "Reduce|Broadcast" : "AllReduce";
  Maybe<NcclChoices> choices = log.empty() ? Unknown{"no log of NCCL is kept: unset NCCL_DEBUG"}
                                           : parse_nccl_log(log, earlier_bytes_of_log, operations);
  require_algorithm(choices, task.config.nccl_algorithm);
  return choices;
}

}  // namespace

void abort_job(const RankTask& task, const std::string& what, const std::string& why) {
  // In one piece, since a teller may write to the same stream.
  task.terminal.err << "nearmetal: rank " + std::to_string(task.world.rank()) + " (" + host_name() +
                           ") failed " + what + ": " + why + "\n"
                    << std::flush;
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
  if (task.config.device != Device::cuda) return {task.world.all_reduce(), AllReduceKind::mpi};
  return join_gpus(task);
}

Communication prepare_exchange(const RankTask& task, Program& program, const Exchange& exchange,
                               std::span<const float> parameters) {
  AllReduce& all_reduce = *exchange.all_reduce;
  Communication prepared;
  prepared.all_reduce = exchange.kind;
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
