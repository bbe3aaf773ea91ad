#include "bench/sweep/layout_flags.h"

#include <algorithm>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include "bench/cli/parse_value.h"
#include "bench/cli/setting_value.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

template <class Read>
void read_at(const std::string& place, const Read& read) {
  try {
    read();
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(place + ": " + error.what());
  }
}

// The flag of `run` that a setting of a layout file is; none for a toggle that is off. Throws
// std::invalid_argument, with the place before it, for what `run` does not take.
std::optional<std::string> flag_of_layout(const std::string& name, const std::string& text,
                                          const std::string& place) {
  std::string flag = "--" + name;
  std::replace(flag.begin() + 2, flag.end(), '_', '-');
  std::string refusal = "`nearmetal run` has no " + flag;
  std::optional<std::string> words;
  RunConfig scratch;
  visit_settings(
      [&](const Setting& setting, auto& member) {
        if (layout_name_of(setting) != name) return;
        refusal = (setting.commands & in_sweep) != 0 ? "" : "the plan sets " + flag + " itself";
        if (!refusal.empty()) return;
        words = flag + "=" + text;
        if constexpr (std::is_same_v<decltype(member), bool&>) {
          if (text != "true" && text != "false") {
            throw std::invalid_argument(place + " must be true or false");
          }
          words = text == "true" ? std::optional(flag) : std::nullopt;
        } else {
          read_at(place, [&] { parse_setting(setting, text, member); });
        }
      },
      scratch);
  if (refusal.empty()) return words;
  throw std::invalid_argument(place + " is no setting of a workload: " + refusal);
}

// The settings of a layout file as flags of `run`.
std::vector<std::string> flags_of(const Settings& settings, const std::string& place) {
  std::vector<std::string> flags;
  for (const auto& [name, text] : settings.texts) {
    const auto flag = flag_of_layout(name, text, place + "/" + name);
    if (flag) flags.push_back(*flag);
  }
  return flags;
}

// The ranks themselves look whether these hold.
void append_expectations(std::vector<std::string>& flags, const Layout& layout, bool on_gpus) {
  const Expectation& expect = layout.expect;
  if (expect.gpu && !on_gpus) {
    throw std::invalid_argument(layout.source + "/expect/gpu: the ranks compute on CPUs");
  }
  if (expect.gpu) flags.push_back("--expect-gpu=" + *expect.gpu);
  if (expect.environment)
    flags.push_back(std::string("--expect-environment=") + to_string(*expect.environment));
}

// What the hosts of a layout are claimed to be, which its ranks hold against what they find.
void append_claim(std::vector<std::string>& flags, const Placement& placement,
                  const std::vector<Host>& hosts, const std::string& source) {
  std::set<std::string> claims;
  for (const PlacedJob& job : placement.jobs) {
    for (const PlacedRank& rank : job.ranks) {
      const auto host = std::find_if(hosts.begin(), hosts.end(),
                                     [&](const Host& one) { return one.name == rank.host; });
      claims.insert(host->environment ? to_string(*host->environment) : "nothing");
    }
  }
  if (claims.size() > 1) {
    throw std::invalid_argument(source + ": its hosts claim different environments: " +
                                joined({claims.begin(), claims.end()}) +
                                "; claim the same of all, or nothing");
  }
  const std::string& claim = *claims.begin();
  if (claim == "nothing") return;
  const std::string flag = "--environment=" + claim;
  const auto other = std::find_if(flags.rbegin(), flags.rend(), [](const std::string& asked) {
    return asked.starts_with("--environment=");
  });
  if (other == flags.rend()) return flags.push_back(flag);
  if (*other != flag) {
    throw std::invalid_argument(source + ": its hosts claim to be " + claim + "; leave " + *other +
                                " out");
  }
}

constexpr const char* global_batch = "global_batch";

// How many ranks share the batch of a job.
int64_t ranks_of_a_job(const Placement& placement, const std::string& place) {
  const size_t ranks = placement.jobs.front().ranks.size();
  for (const PlacedJob& job : placement.jobs) {
    if (job.ranks.size() == ranks) continue;
    throw std::invalid_argument(place + ": the jobs of layout '" + placement.layout +
                                "' have different numbers of ranks; give each rank's batch");
  }
  return static_cast<int64_t>(ranks);
}

// Strong scaling is asked for by the batch of all ranks of a job, of which each takes its share.
Settings with_batch_of_a_rank(Settings settings, const Placement& placement,
                              const std::string& workload) {
  const auto asked = settings.texts.find(global_batch);
  if (asked == settings.texts.end()) return settings;
  const std::string place = workload + "/" + global_batch;
  if (settings.texts.contains("batch")) {
    throw std::invalid_argument(place + ": there is a batch of each rank, too; give one of them");
  }
  const auto images = parse_number<int64_t>(place, asked->second, {1, 1e9});
  const int64_t ranks = ranks_of_a_job(placement, place);
  if (images % ranks != 0) {
    throw std::invalid_argument(place + ": " + std::to_string(images) +
                                " images cannot be shared evenly by the " + std::to_string(ranks) +
                                " ranks of layout '" + placement.layout + "'");
  }
  settings.texts.erase(asked);
  settings.texts["batch"] = std::to_string(images / ranks);
  return settings;
}

bool says_how_long(const std::string& flag) {
  return flag.starts_with("--steps") || flag.starts_with("--duration");
}

// Later flags stand over earlier ones.
void append(std::vector<std::string>& flags, const std::vector<std::string>& more) {
  if (std::any_of(more.begin(), more.end(), says_how_long)) std::erase_if(flags, says_how_long);
  flags.insert(flags.end(), more.begin(), more.end());
}

}  // namespace

std::vector<std::string> layout_flags(const LayoutFile& file, const Layout& layout,
                                      const Placement& placement,
                                      const std::vector<std::string>& asked) {
  std::vector<std::string> flags;
  Settings of_all = file.workload;
  for (const auto& [name, text] : layout.workload.texts) {
    if (text == "false") of_all.texts.erase(name);  // no flag says it
  }
  for (const auto& [settings, place] : {std::pair(of_all, std::string("/workload")),
                                        std::pair(layout.workload, layout.source + "/workload")}) {
    append(flags, flags_of(with_batch_of_a_rank(settings, placement, place), place));
  }
  append(flags, asked);
  const auto batch = std::find_if(flags.rbegin(), flags.rend(), [](const std::string& flag) {
    return flag.starts_with("--batch=");
  });
  if (placement.share() && batch != flags.rend() && *batch == "--batch=auto") {
    throw std::invalid_argument(layout.source +
                                ": jobs that share a GPU need one batch for all: "
                                "--batch=auto would be another in each; give a number");
  }
  flags.insert(flags.begin(), {"run", placement.on_gpus() ? "--device=cuda" : "--device=cpu"});
  append_expectations(flags, layout, placement.on_gpus());
  append_claim(flags, placement, file.hosts, layout.source);
  return flags;
}

}  // namespace nearmetal
