#include <algorithm>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include "bench/cli/parse_value.h"
#include "bench/run/defaults.h"
#include "bench/run/prepare_device.h"
#include "bench/sweep/make_launch_plan.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

// Settings that exclude each other: one that is given above takes the place of the other.
constexpr std::pair<const char*, const char*> alternatives[] = {
    {"steps", "duration_seconds"}, {"plans", "plan_cache"}, {"batch", global_batch}};

// Why nothing here has this name; that of an option or of another program may be meant.
std::string why_unknown(const std::string& name, const std::string& flag) {
  std::vector<std::string> known = {global_batch};
  for (const Setting& setting : settings_of_run()) {
    if ((setting.commands & in_sweep) != 0) known.push_back(layout_name_of(setting));
  }
  const std::string with_underscores = replaced(name, "-", "_");
  if (std::ranges::find(known, with_underscores) != known.end()) {
    return "it is " + with_underscores + " here";
  }
  return "`nearmetal run` has no " + flag + did_you_mean(lower_case(with_underscores), known);
}

}  // namespace

void set_by_layout_name(Workload& workload, const std::string& name, const std::string& text,
                        const std::string& place) {
  std::string flag = "--" + name;
  std::replace(flag.begin() + 2, flag.end(), '_', '-');
  std::string refusal = why_unknown(name, flag);
  visit_settings(
      [&](const Setting& setting, auto& member) {
        if (layout_name_of(setting) != name) return;
        refusal = (setting.commands & in_sweep) != 0 ? "" : "the plan sets " + flag + " itself";
        if (!refusal.empty()) return;
        if constexpr (std::is_same_v<decltype(member), bool&>) {
          if (text != "true" && text != "false") {
            throw std::invalid_argument(place + " must be true or false");
          }
          member = text == "true";
        } else {
          try {
            parse_setting(setting, text, member);
          } catch (const std::invalid_argument& error) {
            throw std::invalid_argument(place + ": " + error.what());
          }
        }
        workload.given.emplace_back(setting.name);
      },
      workload.config);
  if (refusal.empty()) return;
  throw std::invalid_argument(place + " is no setting of a workload: " + refusal);
}

bool exclude_each_other(const std::string& setting, const std::string& other) {
  return std::ranges::any_of(alternatives, [&](const auto& pair) {
    return (setting == pair.first && other == pair.second) ||
           (setting == pair.second && other == pair.first);
  });
}

namespace {

Workload workload_of(const Settings& settings, const std::string& place) {
  Workload workload;
  for (const auto& [name, text] : settings.texts) {
    set_by_layout_name(workload, name, text, place + "/" + name);
  }
  return workload;
}

void override_with(Workload& workload, const Workload& above) {
  const auto is_above = [&](const std::string& name) {
    return above.is_given(name) || std::ranges::any_of(above.given, [&](const std::string& other) {
             return exclude_each_other(name, other);
           });
  };
  for_each_setting([&](const Setting& setting, auto member) {
    if (is_above(setting.name)) workload.config.*member = above.config.*member;
  });
  std::erase_if(workload.given, is_above);
  workload.given.insert(workload.given.end(), above.given.begin(), above.given.end());
}

// Takes over what the hosts of a layout are claimed to be; its ranks check the claim.
void apply_claim(RunConfig& config, const Placement& placement, const std::vector<Host>& hosts,
                 const std::string& source) {
  std::set<std::string> claims;
  std::optional<MachineKind> claim;
  for (const PlacedJob& job : placement.jobs) {
    for (const PlacedRank& rank : job.ranks) {
      const auto host =
          std::ranges::find_if(hosts, [&](const Host& one) { return one.name == rank.host; });
      claim = host->environment;
      claims.insert(claim ? to_string(*claim) : "nothing");
    }
  }
  if (claims.size() > 1) {
    throw std::invalid_argument(source + ": its hosts claim different environments: " +
                                joined({claims.begin(), claims.end()}) +
                                "; claim the same of all, or nothing");
  }
  if (!claim) return;
  if (config.environment && config.environment != claim) {
    throw std::invalid_argument(source + ": its hosts claim to be " + to_string(*claim) +
                                "; leave --environment=" + to_string(*config.environment) + " out");
  }
  config.environment = claim;
}

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
// `job`: the one whose own settings they are; none: of all jobs of the layout.
Settings with_batch_of_a_rank(Settings settings, const Placement& placement,
                              const std::string& workload, std::optional<size_t> job = {}) {
  const auto asked = settings.texts.find(global_batch);
  if (asked == settings.texts.end()) return settings;
  const std::string place = workload + "/" + global_batch;
  if (settings.texts.contains("batch")) {
    throw std::invalid_argument(place + ": there is a batch of each rank, too; give one of them");
  }
  const auto samples = parse_number<int64_t>(place, asked->second, {1, 1e9});
  const int64_t ranks =
      job ? std::ssize(placement.jobs.at(*job).ranks) : ranks_of_a_job(placement, place);
  if (samples % ranks != 0) {
    throw std::invalid_argument(place + ": " + std::to_string(samples) +
                                " samples cannot be shared evenly by the " + std::to_string(ranks) +
                                " ranks of layout '" + placement.layout + "'");
  }
  settings.texts.erase(asked);
  settings.texts["batch"] = std::to_string(samples / ranks);
  return settings;
}

// The settings of one job must not be of the run as a whole.
void require_of_one_job(const Settings& settings, const std::string& place) {
  for (const Setting& setting : settings_of_run()) {
    const std::string name = layout_name_of(setting);
    const bool is_refused = (setting.commands & in_sweep) != 0 && holds_for_all_jobs(setting);
    if (!is_refused || !settings.texts.contains(name)) continue;
    throw std::invalid_argument(place + "/" + name +
                                ": it holds for all jobs of a layout; put it into the workload of "
                                "the layout or of the file");
  }
}

// Before the command line has its say.
Workload workload_in_file(const LayoutFile& file, const Layout& layout,
                          const Placement& placement) {
  Workload workload;
  workload.config.device = placement.on_gpus() ? Device::cuda : Device::cpu;
  workload.given = {"device"};
  bool shared = false;
  const Settings combination{layout.grid.value_or(GridPoint{}).settings};
  for (const auto& [settings, place] : {std::pair(file.workload, std::string("/workload")),
                                        std::pair(layout.workload, layout.source + "/workload"),
                                        std::pair(combination, std::string("grid"))}) {
    override_with(workload, workload_of(with_batch_of_a_rank(settings, placement, place), place));
    shared = shared || settings.texts.contains(global_batch);
  }
  const RunConfig& config = workload.config;
  if (shared && (config.pipeline > 1 || config.micro_batches > 1)) {
    throw std::invalid_argument(layout.source + ": " + global_batch +
                                " is shared by ranks; with a pipeline give batch, that of a "
                                "micro-batch");
  }
  return workload;
}

// The workload with what was asked for on the command line, and nothing left to choose.
Workload settled(Workload workload, const LayoutFile& file, const Layout& layout,
                 const Placement& placement, const Workload& asked) {
  RunConfig& config = workload.config;
  override_with(workload, asked);
  if (placement.share() && config.batch == largest_that_fits) {
    throw std::invalid_argument(layout.source +
                                ": jobs that share a GPU need a batch that is known: "
                                "--batch=auto would find another in each; give a number");
  }
  if (layout.expect.gpu && !placement.on_gpus()) {
    throw std::invalid_argument(layout.source + "/expect/gpu: the ranks compute on CPUs");
  }
  apply_claim(config, placement, file.hosts, layout.source);
  fill_defaults(config, config.device);
  check_settings(workload);
  for (const PlacedJob& job : placement.jobs) {
    if (!job.stress) require_whole_replicas(config, std::ssize(job.ranks));
  }
  return workload;
}

// Whether no job does what the layout says.
bool has_only_own_workloads(const Layout& layout) {
  return !layout.jobs.empty() && std::ranges::none_of(layout.jobs, [](const Job& job) {
    return job.workload.texts.empty();
  });
}

}  // namespace

Workload layout_workload(const LayoutFile& file, const Layout& layout, const Placement& placement,
                         const Workload& asked) {
  Workload workload =
      settled(workload_in_file(file, layout, placement), file, layout, placement, asked);
  if (has_only_own_workloads(layout)) return workload;
  try {
    settle_network(workload.config);
  } catch (const std::invalid_argument& error) {  // a combination is named where it is left out
    throw std::invalid_argument((layout.grid ? "" : layout.source + ": ") + error.what());
  }
  return workload;
}

Workload job_workload(const LayoutFile& file, const Layout& layout, size_t job,
                      const Placement& placement, const Workload& asked) {
  const std::string place = layout.source + "/jobs/" + std::to_string(job) + "/workload";
  const Settings& own = layout.jobs.at(job).workload;
  require_of_one_job(own, place);
  Workload workload = workload_in_file(file, layout, placement);
  override_with(workload, workload_of(with_batch_of_a_rank(own, placement, place, job), place));
  try {
    workload = settled(std::move(workload), file, layout, placement, asked);
    settle_network(workload.config);
    return workload;
  } catch (const std::invalid_argument& error) {
    const std::string reason = error.what();
    throw std::invalid_argument(reason.starts_with(layout.source) ? reason : place + ": " + reason);
  }
}

void require_one_choice(const Workload& workload, const Layout& layout, const Placement& placement,
                        bool conducted) {
  const RunConfig& config = workload.config;
  const std::vector<size_t> jobs = placement.training_jobs();
  const bool exchanges = std::ranges::any_of(jobs, [&](size_t job) {
    return exchanges_gradients(config, std::ssize(placement.jobs[job].ranks));
  });
  if (config.all_reduce != AllReduceKind::automatic || !exchanges) return;
  const std::string several =
      jobs.size() > 1 ? "it times one job alone, and this layout has " + std::to_string(jobs.size())
                      : "";
  const std::string why =
      conducted ? several : "it is for `nearmetal sweep`, whose runs take what the first chose";
  if (why.empty()) return;
  throw std::invalid_argument(layout.source + ": --all-reduce auto: " + why +
                              "; name nccl or host");
}

}  // namespace nearmetal
