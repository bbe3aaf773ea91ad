#include "bench/sweep/layout_workload.h"

#include <algorithm>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include "base/text.h"
#include "bench/cli/parse_value.h"
#include "bench/run/defaults.h"
#include "bench/run/prepare_device.h"

namespace nearmetal {
namespace {

constexpr size_t most_layouts = 1000;

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
  if (find_in(known, with_underscores) != nullptr) {
    return "it is " + with_underscores + " here";
  }
  return "`nearmetal run` has no " + flag + did_you_mean(lower_case(with_underscores), known);
}

// Sets what layout files call `name`, from the text that its option takes.
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

// Whether a run takes one of these settings alone, such as steps or duration_seconds.
bool exclude_each_other(const std::string& setting, const std::string& other) {
  return std::ranges::any_of(alternatives, [&](const auto& pair) {
    return (setting == pair.first && other == pair.second) ||
           (setting == pair.second && other == pair.first);
  });
}

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
  append(workload.given, above.given);
}

// Takes over what the hosts of a layout are claimed to be; its ranks check the claim.
void apply_claim(RunConfig& config, const Placement& placement, const std::vector<Host>& hosts,
                 const std::string& source) {
  std::set<std::string> claims;
  std::optional<MachineKind> claim;
  for (const PlacedRank* rank : ranks_of(placement)) {
    claim = std::ranges::find(hosts, rank->host, &Host::name)->environment;
    claims.insert(claim ? to_string(*claim) : "nothing");
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
Workload completed(Workload workload, const LayoutFile& file, const Layout& layout,
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

Workload common_workload(const LayoutFile& file, const Layout& layout, const Placement& placement,
                         const Workload& asked) {
  Workload workload =
      completed(workload_in_file(file, layout, placement), file, layout, placement, asked);
  if (has_only_own_workloads(layout)) return workload;
  try {
    resolve_network(workload.config);
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
    workload = completed(std::move(workload), file, layout, placement, asked);
    resolve_network(workload.config);
    return workload;
  } catch (const std::invalid_argument& error) {
    const std::string reason = error.what();
    throw std::invalid_argument(reason.starts_with(layout.source) ? reason : place + ": " + reason);
  }
}

// A choice of how gradients are summed needs the machine to itself.
void require_one_choice(const Workload& workload, const Layout& layout,
                        const Placement& placement) {
  const RunConfig& config = workload.config;
  const std::vector<size_t> jobs = placement.training_jobs();
  const bool exchanges = std::ranges::any_of(jobs, [&](size_t job) {
    return exchanges_gradients(config, std::ssize(placement.jobs[job].ranks));
  });
  if (config.all_reduce != AllReduceKind::automatic || !exchanges || jobs.size() == 1) return;
  throw std::invalid_argument(layout.source +
                              ": --all-reduce auto: it times one job alone, and this layout has " +
                              std::to_string(jobs.size()) + "; name nccl or host");
}

[[noreturn]] void refuse(const GridAxis& axis, const std::string& why) {
  throw std::invalid_argument(axis.source + ": " + why);
}

// The name in the table of settings: "duration_seconds" of "duration".
std::string table_name(const std::string& layout_name) {
  const auto settings = settings_of_run();
  const Setting* found = find_in(settings, layout_name, layout_name_of);
  return found != nullptr ? found->name : layout_name;
}

// Whether a run that has one of them cannot have the other, by their names in layout files.
bool collide(const std::string& setting, const std::string& other) {
  return setting == other || exclude_each_other(table_name(setting), table_name(other));
}

// The value as the parser of the option reads it: 2 for "002". The batch of all ranks is no option.
std::string meaning_of(const GridAxis& axis, const std::string& value) {
  if (axis.setting == global_batch) {
    return std::to_string(parse_number<int64_t>(axis.source, value, {1, 1e9}));
  }
  Workload workload;
  set_by_layout_name(workload, axis.setting, value, axis.source);
  return joined(run_arguments(workload));
}

// Neither overrides the other.
void require_in_grid_alone(const GridAxis& axis, const std::string& setting,
                           const std::string& source) {
  if (collide(axis.setting, setting)) refuse(axis, source + " says it already; give one of them");
}

void require_in_grid_alone(const GridAxis& axis, const Settings& workload,
                           const std::string& place) {
  for (const auto& [setting, value] : workload.texts) {
    require_in_grid_alone(axis, setting, place + "/" + setting);
  }
}

void check_values(const GridAxis& axis) {
  if (axis.values.empty()) refuse(axis, "it names no value");
  std::map<std::string, std::string> known;  // by what they mean
  for (const std::string& value : axis.values) {
    const auto [same, is_new] = known.emplace(meaning_of(axis, value), value);
    if (is_new) continue;
    refuse(axis, same->second == value ? "it names " + value + " twice"
                                       : same->second + " and " + value + " are the same value");
  }
}

void check_axis(const GridAxis& axis, const std::vector<GridAxis>& earlier, const Workload& asked) {
  check_values(axis);
  for (const GridAxis& other : earlier) require_in_grid_alone(axis, other.setting, other.source);
  for (const Setting& setting : settings_of_run()) {
    if (!asked.is_given(setting.name)) continue;
    require_in_grid_alone(axis, layout_name_of(setting), flag_of(setting));
  }
}

// A setting of a job by itself would override the combination.
void require_in_no_job(const GridAxis& axis, const std::vector<Layout>& layouts) {
  for (const Layout& layout : layouts) {
    for (size_t job = 0; job < layout.jobs.size(); ++job) {
      require_in_grid_alone(axis, layout.jobs[job].workload,
                            layout.source + "/jobs/" + std::to_string(job) + "/workload");
    }
  }
}

// The first axis changes last.
std::vector<Settings> combinations(const Grid& grid) {
  std::vector<Settings> all = {{}};
  for (const GridAxis& axis : grid.axes) {
    std::vector<Settings> longer;
    for (const Settings& shorter : all) {
      for (const std::string& value : axis.values) {
        longer.push_back(shorter);
        longer.back().texts[axis.setting] = value;
      }
    }
    all = std::move(longer);
  }
  return all;
}

std::string name_of(const Layout& layout, bool one_of_several, const Grid& grid,
                    const Settings& combination) {
  std::vector<std::string> words;
  if (one_of_several) words.push_back(layout.name);
  for (const GridAxis& axis : grid.axes) {
    if (axis.values.size() == 1) continue;
    words.push_back(axis.setting + " " + combination.texts.at(axis.setting));
  }
  return words.empty() ? layout.name : joined(words);
}

}  // namespace

LayoutWorkloads layout_workloads(const LayoutFile& file, const Layout& layout,
                                 const Placement& placement, const Workload& asked) {
  LayoutWorkloads workloads{common_workload(file, layout, placement, asked)};
  for (size_t job = 0; job < layout.jobs.size(); ++job) {
    if (layout.jobs[job].workload.texts.empty()) continue;
    const auto own =
        workloads.of_jobs.emplace(job, job_workload(file, layout, job, placement, asked));
    require_one_choice(own.first->second, layout, placement);
  }
  require_one_choice(workloads, layout, placement);
  return workloads;
}

GridAxis grid_axis_from(const std::string& text) {
  const size_t sign = text.find('=');
  if (sign == 0 || sign == text.npos) {
    throw std::invalid_argument("--grid takes a setting and its values, such as batch=32,64; '" +
                                text + "' is none");
  }
  GridAxis axis{text.substr(0, sign), split(text.substr(sign + 1), ","), ""};
  std::ranges::replace(axis.setting, '-', '_');
  axis.source = "--grid " + axis.setting;
  return axis;
}

Grid whole_grid(const LayoutFile& file, const std::vector<GridAxis>& of_command_line,
                const Workload& asked) {
  std::vector<GridAxis> axes = of_command_line;
  for (const GridAxis& axis : file.grid.axes) {
    require_in_grid_alone(axis, file.workload, "/workload");
    for (const Layout& layout : file.layouts) {
      require_in_grid_alone(axis, layout.workload, layout.source + "/workload");
    }
    const bool overridden = std::ranges::any_of(
        of_command_line, [&](const GridAxis& over) { return collide(axis.setting, over.setting); });
    if (!overridden) axes.push_back(axis);
  }
  Grid grid;
  for (const GridAxis& axis : axes) {
    check_axis(axis, grid.axes, asked);
    require_in_no_job(axis, file.layouts);
    grid.axes.push_back(axis);
  }
  return grid;
}

std::vector<Layout> expand_grid(const std::vector<Layout>& layouts, const Grid& grid) {
  if (grid.axes.empty()) return layouts;
  if (combinations_of(grid) > most_layouts / layouts.size()) {
    refuse(grid.axes.front(), "the grid has too many combinations: at most " +
                                  std::to_string(most_layouts) + " can be run in one sweep");
  }
  std::vector<Layout> expanded;
  for (const Layout& layout : layouts) {
    for (const Settings& combination : combinations(grid)) {
      Layout& one = expanded.emplace_back(layout);
      one.grid = GridPoint{layout.name, combination.texts};
      one.name = name_of(layout, layouts.size() > 1, grid, combination);
    }
  }
  return expanded;
}

}  // namespace nearmetal
