#include <algorithm>
#include <utility>

#include "bench/run/rank_run.h"
#include "bench/run/together.h"
#include "bench/run/try_exchanges.h"
#include "comm/join_ranks.h"
#include "comm/nccl.h"
#include "models/errors.h"
#include "reports/text/text.h"
#include "reports/text/text_table.h"

namespace nearmetal {
namespace {

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

// The one that is asked for, or all that the fastest is to be found of.
std::vector<const Collective*> collectives_to_join(const RankTask& task,
                                                   std::span<const RankHost> hosts) {
  const Collective& asked =
      collective_for(task.config.all_reduce, task.config.device == Device::cuda);
  if (task.config.all_reduce != AllReduceKind::automatic) {
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
                      .gpu = static_cast<int>(task.config.gpu),
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
  const int64_t bucket_mib = task.config.bucket_mib.value_or(*RunConfig{}.bucket_mib);
  std::vector<TriedAllReduce> tried =
      try_all_reduces(task.world, program, candidates, bucket_mib << 20, parameters);
  const AllReduceKind taken = fastest(tried).all_reduce;
  const auto place = std::ranges::find_if(
      candidates, [&](const Exchange& each) { return each.collective->kind == taken; });
  std::swap(candidates.front(), *place);
  task.terminal.remark(choice_text(tried));
  return tried;
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
  task.terminal.err << "nearmetal: " + printable(text) + "\n" << std::flush;
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

std::vector<Exchange> join_exchanges(const RankTask& task) {
  if (!exchanges_gradients(task.config, task.world.size())) return {};
  const std::vector<RankHost> hosts = hosts_of_ranks(task.replicas());
  std::vector<Exchange> joined;
  for (const Collective* collective : collectives_to_join(task, hosts)) {
    joined.push_back(join(task, *collective, hosts));
  }
  return joined;
}

Communication prepare_exchange(const RankTask& task, Program& program,
                               std::vector<Exchange>& candidates,
                               std::span<const float> parameters) {
  Communication prepared;
  size_t log_of_tries = 0;
  or_abort(task, "to prepare the exchange of gradients", [&] {
    if (candidates.size() > 1) {
      prepared.tried_all_reduces = choose(task, program, candidates, parameters);
    }
    AllReduce& all_reduce = *candidates.front().all_reduce;
    if (!task.config.bucket_mib) {
      task.terminal.remark("trying sizes of buckets");
      prepared.tried = try_buckets(task.world, program, all_reduce, parameters);
      task.terminal.remark("step by size of bucket: " + text_of(prepared.tried));
    }
    prepared.bucket_mib =
        task.config.bucket_mib ? *task.config.bucket_mib : fastest(prepared.tried).bucket_mib;
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

}  // namespace nearmetal
