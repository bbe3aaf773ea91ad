#include "comm/launch/launch_command.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <span>
#include <utility>

#include "comm/layout/shell_text.h"

namespace nearmetal {
namespace {

using Ranks = std::span<const PlacedRank>;

// Addresses with their ranks, "vm0:2,vm1:2", in the order in which mpirun fills their slots.
std::string hosts_of(const PlacedJob& job) {
  std::string hosts;
  const Ranks all = job.ranks;
  for (size_t first = 0, end = 0; first < all.size(); first = end) {
    while (end < all.size() && all[end].address == all[first].address) ++end;
    hosts += (hosts.empty() ? "" : ",") + all[first].address + ":" + std::to_string(end - first);
  }
  return hosts;
}

void append(std::vector<std::string>& command, std::initializer_list<std::string> words) {
  command.insert(command.end(), words);
}

void append_global(std::vector<std::string>& command, const PlacedJob& job,
                   const Launcher& launcher, const LaunchOptions& options) {
  const bool one_host = job.ranks.front().address == job.ranks.back().address;
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

std::string assignment(const std::pair<const std::string, std::string>& variable) {
  return variable.first + "=" + variable.second;
}

// The variables that all ranks have with one value.
std::map<std::string, std::string> common_variables(const PlacedJob& job) {
  std::map<std::string, std::string> common = job.ranks.front().variables;
  std::erase_if(common, [&](const auto& variable) {
    return std::ranges::any_of(job.ranks, [&](const PlacedRank& rank) {
      return rank.variables.at(variable.first) != variable.second;
    });
  });
  return common;
}

// What a rank has beside the words that all have: before these, and behind them. Ranks that train
// check the GPU that they see; neighbours take what they are given.
struct OwnWords {
  std::vector<std::string> before, behind;

  bool operator==(const OwnWords&) const = default;
};

OwnWords own_words(const PlacedRank& rank, const std::map<std::string, std::string>& common,
                   bool trains) {
  OwnWords words;
  for (const auto& variable : rank.variables) {
    if (!common.contains(variable.first)) words.before.push_back(assignment(variable));
  }
  if (!words.before.empty()) words.before.insert(words.before.begin(), "env");
  if (!rank.cpus.empty()) append(words.before, {"taskset", "-c", rank.cpus});
  // An emulated VM: its ranks cannot tell by their place on the host which GPU is theirs.
  if (rank.vm && rank.visible_gpu) words.behind = {"--gpu=" + std::to_string(*rank.visible_gpu)};
  if (!trains || !rank.mig) return words;
  append(words.behind, {"--expect-uuid=" + rank.mig->uuid});
  if (!rank.mig->profile.empty()) append(words.behind, {"--expect-mig=" + rank.mig->profile});
  return words;
}

// A shell's script that starts, by the rank, the words behind it with those that are the rank's
// own.
std::string choice_by_rank(const std::vector<OwnWords>& words) {
  std::vector<std::pair<OwnWords, std::string>> cases;  // with their ranks, "0|2"
  for (size_t rank = 0; rank < words.size(); ++rank) {
    const auto found =
        std::ranges::find(cases, words[rank], &std::pair<OwnWords, std::string>::first);
    if (found == cases.end()) {
      cases.emplace_back(words[rank], std::to_string(rank));
    } else {
      found->second += "|" + std::to_string(rank);
    }
  }
  std::string text = "case $OMPI_COMM_WORLD_RANK in ";
  for (const auto& [own, ranks] : cases) {
    text += ranks + ") exec ";
    for (const std::string& word : own.before) text += shell_quoted(word) + " ";
    text += "\"$@\"";
    for (const std::string& word : own.behind) text += " " + shell_quoted(word);
    text += ";; ";
  }
  return text + "*) echo not started by mpirun of Open MPI >&2; exit 2;; esac";
}

}  // namespace

std::vector<std::string> launch_command(const PlacedJob& job, const Launcher& launcher,
                                        const std::vector<std::string>& run_arguments,
                                        const LaunchOptions& options) {
  std::vector<std::string> command;
  append_global(command, job, launcher, options);
  append(command, {"--host", hosts_of(job), "-np", std::to_string(job.ranks.size())});
  const auto common = common_variables(job);
  for (const auto& variable : common) append(command, {"-x", assignment(variable)});
  std::vector<OwnWords> words;
  for (const PlacedRank& rank : job.ranks) words.push_back(own_words(rank, common, !job.stress));
  const bool alike = std::ranges::count(words, words.front()) == std::ssize(words);
  const OwnWords& around =
      alike ? words.front() : OwnWords{{"sh", "-c", choice_by_rank(words), "sh"}, {}};
  const auto add = [&](const std::vector<std::string>& part) {
    command.insert(command.end(), part.begin(), part.end());
  };
  add(around.before);
  command.push_back(launcher.program.value_or("nearmetal"));
  add(run_arguments);
  add(around.behind);
  return command;
}

}  // namespace nearmetal
