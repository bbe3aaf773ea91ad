#include "comm/launch/launch_command.h"

#include <cmath>
#include <span>

namespace nearmetal {
namespace {

using Ranks = std::span<const PlacedRank>;
using Slots = std::map<std::string, int64_t>;  // ranks of the job by address

Slots slots_of(const PlacedJob& job) {
  Slots slots;
  for (const PlacedRank& rank : job.ranks) ++slots[rank.address];
  return slots;
}

// Of a pretended VM, whose ranks cannot tell by their place on the host which GPU is theirs.
std::optional<int64_t> gpu_argument(const PlacedRank& rank) {
  return rank.vm ? rank.visible_gpu : std::nullopt;
}

bool same_context(const PlacedRank& a, const PlacedRank& b) {
  return a.variables == b.variables && a.cpus == b.cpus && gpu_argument(a) == gpu_argument(b);
}

// Neighbours that share a context: on one host, or on several with all the ranks of each.
std::vector<Ranks> contexts_of(const PlacedJob& job) {
  const Slots slots = slots_of(job);
  std::vector<Ranks> parts;  // on one host each
  const Ranks all = job.ranks;
  for (size_t first = 0, end = 0; first < all.size(); first = end) {
    while (end < all.size() && all[end].address == all[first].address &&
           same_context(all[end], all[first])) {
      ++end;
    }
    parts.push_back(all.subspan(first, end - first));
  }
  std::vector<Ranks> contexts;
  bool may_grow = false;
  for (const Ranks part : parts) {
    const bool whole = static_cast<int64_t>(part.size()) == slots.at(part[0].address);
    if (may_grow && whole && same_context(contexts.back()[0], part[0])) {
      contexts.back() = {contexts.back().data(), contexts.back().size() + part.size()};
    } else {
      contexts.push_back(part);
    }
    may_grow = whole;
  }
  return contexts;
}

void append(std::vector<std::string>& command, std::initializer_list<std::string> words) {
  command.insert(command.end(), words);
}

void append_global(std::vector<std::string>& command, const PlacedJob& job,
                   const Launcher& launcher, const LaunchOptions& options) {
  const bool one_host = slots_of(job).size() == 1;
  const bool split = job.ranks.front().vm.has_value();
  append(command, {"mpirun", "--bind-to", "none", "--map-by", "slot", "--mca", "pml", "ob1"});
  append(command, {"--mca", "btl", one_host && !split ? "self,vader" : "self,tcp"});
  if (one_host && split) append(command, {"--mca", "btl_tcp_if_include", "lo"});
  if (!one_host && launcher.network) {
    append(command, {"--mca", "btl_tcp_if_include", *launcher.network});
    append(command, {"--mca", "oob_tcp_if_include", *launcher.network});
  }
  if (launcher.remote_shell) append(command, {"--mca", "plm_rsh_agent", *launcher.remote_shell});
  if (options.timeout_seconds) {
    append(command,
           {"--timeout", std::to_string(std::llround(std::ceil(*options.timeout_seconds)))});
  }
  if (options.as_root) append(command, {"--allow-run-as-root"});
}

// In each context a host has the slots of the whole job: Open MPI takes them from the first that
// names it. Each sets the same variables, as with Open MPI 5 those of the first reach the others.
void append_context(std::vector<std::string>& command, Ranks ranks, const Slots& slots,
                    const std::string& program, const std::vector<std::string>& run_arguments) {
  std::string hosts;
  const std::string* last = nullptr;
  for (const PlacedRank& rank : ranks) {
    if (last != nullptr && *last == rank.address) continue;
    last = &rank.address;
    hosts +=
        (hosts.empty() ? "" : ",") + rank.address + ":" + std::to_string(slots.at(rank.address));
  }
  append(command, {"--host", hosts, "-np", std::to_string(ranks.size())});
  for (const auto& [name, value] : ranks.front().variables) {
    append(command, {"-x", name + "=" + value});
  }
  if (!ranks.front().cpus.empty()) append(command, {"taskset", "-c", ranks.front().cpus});
  append(command, {program});
  command.insert(command.end(), run_arguments.begin(), run_arguments.end());
  if (const auto gpu = gpu_argument(ranks.front())) {
    append(command, {"--gpu=" + std::to_string(*gpu)});
  }
}

// Of ranks that train; what disturbs them sees what it is given.
void append_expectations(std::vector<std::string>& command, const PlacedRank& rank) {
  if (!rank.mig) return;
  append(command, {"--expect-uuid=" + rank.mig->uuid});
  if (!rank.mig->profile.empty()) append(command, {"--expect-mig=" + rank.mig->profile});
}

}  // namespace

std::vector<std::string> launch_command(const PlacedJob& job, const Launcher& launcher,
                                        const std::vector<std::string>& run_arguments,
                                        const LaunchOptions& options) {
  std::vector<std::string> command;
  append_global(command, job, launcher, options);
  const Slots slots = slots_of(job);
  bool first = true;
  for (const Ranks context : contexts_of(job)) {
    if (!first) append(command, {":"});
    first = false;
    append_context(command, context, slots, launcher.program.value_or("nearmetal"), run_arguments);
    if (!job.stress) append_expectations(command, context.front());
  }
  return command;
}

}  // namespace nearmetal
