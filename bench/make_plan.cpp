#include "bench/make_plan.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <stdexcept>

#include "bench/command_table.h"
#include "bench/defaults.h"
#include "bench/fractions_found.h"
#include "bench/hosts_found.h"
#include "bench/mig_found.h"
#include "bench/parse_value.h"
#include "bench/suggest.h"
#include "comm/fraction_layouts.h"
#include "comm/layout_json.h"
#include "comm/layout_names.h"
#include "comm/plan_json.h"
#include "comm/short_form.h"
#include "models/load_module.h"

namespace nearmetal {
namespace {

// Options of `run` that follow from the layout or from how a sweep speaks with its ranks.
const std::set<std::string> planned_options = {
    "device",       "emulated",    "environment", "force",      "gpu",
    "gpu-part",     "help",        "host-facts",  "json",       "monitor-hz",
    "no-host-info", "no-progress", "output",      "plan-cache", "plans",
    "quiet",        "ranks",       "sharers",     "through-mps"};

std::vector<OptionText> options_of_run() {
  for (CommandText& command : command_table().commands) {
    if (command.name == "run") return std::move(command.options);
  }
  throw std::logic_error("there is no command `run`");
}

// Throws what the parser of the command line does, with the place before it.
void check_flag(const std::string& flag, const std::string& place) {
  try {
    parse_command_line({"nearmetal", "run", flag});
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(place + ": " + error.what());
  }
}

// The settings of a layout file as flags of `run`.
std::vector<std::string> flags_of(const Settings& settings, const std::string& place) {
  static const std::vector<OptionText> options = options_of_run();
  std::vector<std::string> flags;
  for (const auto& [name, text] : settings.texts) {
    std::string flag = "--" + name;
    std::replace(flag.begin() + 2, flag.end(), '_', '-');
    const auto found = std::find_if(options.begin(), options.end(), [&](const OptionText& option) {
      return std::find(option.names.begin(), option.names.end(), flag) != option.names.end();
    });
    if (found == options.end() || flag.starts_with("--expect-") ||
        planned_options.contains(flag.substr(2))) {
      throw std::invalid_argument(place + "/" + name + " is no setting of a workload: " +
                                  (found == options.end() ? "`nearmetal run` has no " + flag
                                                          : "the plan sets " + flag + " itself"));
    }
    const bool toggle = found->value.empty();
    if (toggle && text != "true" && text != "false") {
      throw std::invalid_argument(place + "/" + name + " must be true or false");
    }
    if (!toggle) flag += "=" + text;
    check_flag(flag, place + "/" + name);
    if (!toggle || text == "true") flags.push_back(flag);
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
  if (expect.environment) flags.push_back("--expect-environment=" + *expect.environment);
}

constexpr const char* global_batch = "global_batch";
constexpr const char* fraction_batch = "64";  // that fits a small share, too
// Steps. Beside neighbours that fill the GPU, each may take seconds.
constexpr const char* disturbed_warm_up = "20";

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

Layout layout_of(const std::string& short_form) {
  Layout layout;
  layout.name = short_form;
  layout.shape = short_form;
  layout.source = short_form;
  const auto shapes = parse_short_form(short_form);
  // The hosts of a command line are alone on their nodes.
  layout.emulate = std::any_of(shapes.begin(), shapes.end(),
                               [](const JobShape& shape) { return shape.vms > 1; });
  return layout;
}

// 1, 2, 4, ... and `all`.
std::vector<int64_t> doubled_up_to(int64_t all) {
  std::vector<int64_t> counts;
  for (int64_t count = 1; count < all; count *= 2) counts.push_back(count);
  counts.push_back(all);
  return counts;
}

std::vector<Layout> scaling_of(const std::vector<Host>& hosts) {
  const Host& first = hosts.front();
  const int64_t slots = first.gpus > 0
                            ? std::ssize(visible_gpus_of(first))
                            : std::max<int64_t>(1, static_cast<int64_t>(cpus_of(first).size()));
  std::vector<Layout> layouts;
  if (hosts.size() == 1) {
    for (const int64_t gpus : doubled_up_to(slots)) {
      layouts.push_back(layout_of("1x1x" + std::to_string(gpus)));
    }
  } else {
    for (const int64_t nodes : doubled_up_to(static_cast<int64_t>(hosts.size()))) {
      layouts.push_back(layout_of(std::to_string(nodes) + "x1x" + std::to_string(slots)));
    }
  }
  return layouts;
}

bool is_file(const std::vector<std::string>& words) {
  const bool any_file = std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return !looks_like_short_form(word);
  });
  if (any_file && words.size() > 1) {
    throw std::invalid_argument("give one layout file, or short forms such as 1x1x2 alone");
  }
  return any_file;
}

Fractions fractions_in(const PlanForm& form) {
  return {*form.fractions, form.batches, form.neighbours};
}

LayoutFile asked_file(const PlanForm& form) {
  const bool from_file = is_file(form.layouts);
  if (form.fractions && !form.layouts.empty()) {
    throw std::invalid_argument("--fractions says which layouts; give no others");
  }
  if (!form.fractions && !form.neighbours.empty()) {
    throw std::invalid_argument("--neighbours is for --fractions, which says how many jobs");
  }
  if (!form.fractions && !form.batches.empty()) {
    throw std::invalid_argument("--batches is for --fractions; give --batch for one");
  }
  LayoutFile file = from_file ? read_layout(form.layouts.front()) : LayoutFile{};
  if (form.hosts && !file.hosts.empty()) {
    throw std::invalid_argument("the layout file names hosts already; leave --hosts out");
  }
  if (file.hosts.empty()) {
    file.hosts = form.hosts ? hosts_from(*form.hosts) : std::vector{this_machine()};
  }
  for (const std::string& word : form.layouts) {
    if (!from_file) file.layouts.push_back(layout_of(word));
  }
  if (form.fractions) {
    const Host& host = with_mig_devices(file.hosts.front());
    file.layouts = fraction_layouts(host, fractions_in(form));
    if (host.gpus > 0) file.workload.texts["batch"] = fraction_batch;
    if (!form.neighbours.empty()) file.workload.texts["warmup"] = disturbed_warm_up;
  }
  if (file.layouts.empty()) file.layouts = scaling_of(file.hosts);
  settle_mig(file, form.mig_config, from_file ? form.layouts.front() : "");
  if (form.repeats) file.repeats = *form.repeats;
  check(file);
  return file;
}

std::string own_path() {
  std::string path = program_path().string();
  if (is_plain_text(path)) return path;
  throw std::invalid_argument("the path of this program cannot be part of a command line: " + path);
}

// Names of hosts, and how the program is called there, where a scheduler decides.
void settle_addresses(LayoutFile& file, const std::string& format) {
  const bool mpi_job = format == "mpijob";
  if (are_unnamed(file.hosts) && !mpi_job && format != "slurm") {
    throw std::invalid_argument(
        "hosts without names are for --format slurm and mpijob; name them: --hosts vm0:2,vm1:2");
  }
  for (size_t i = 0; mpi_job && i < file.hosts.size(); ++i) {
    file.hosts[i].address = mpi_job_worker(static_cast<int64_t>(i));
  }
  if (!file.launcher.program) file.launcher.program = mpi_job ? "nearmetal" : own_path();
}

// Scripts start the jobs of a layout at once, and nothing else.
void require_script_can(const Layout& layout, const Placement& placement) {
  const std::optional<Share>& share = placement.share();
  if (placement.jobs_that_train() < placement.jobs.size()) {
    throw std::invalid_argument(layout.source + ": neighbours that disturb are for `nearmetal " +
                                "sweep`; a script cannot end them");
  }
  if (layout.expect.mig_config) {
    throw std::invalid_argument(layout.source + "/expect/mig_config: it is held against the GPUs " +
                                "by `nearmetal sweep`; a script cannot");
  }
  if (!share || (share->way != "serial" && !through_mps(*share))) return;
  throw std::invalid_argument(layout.source + ": jobs that share by " + share->way +
                              " are for `nearmetal sweep`; a script cannot start them");
}

}  // namespace

RunConfig run_config(const LaunchPlan& plan, size_t layout) {
  std::vector<std::string> arguments = {"nearmetal"};
  const std::vector<std::string>& of_run = plan.run_arguments.at(layout);
  arguments.insert(arguments.end(), of_run.begin(), of_run.end());
  CommandLine line = parse_command_line(arguments);
  fill_defaults(line.run, choose_device(line.run.device));
  check_settings(line.run, line.origins);
  return line.run;
}

LaunchPlan make_plan(const CommandLine& line) {
  const PlanForm& form = line.plan;
  if (!form.batches.empty() && line.origins.at("batch") == Origin::flag) {
    throw std::invalid_argument("--batch and --batches both say how large; give one of them");
  }
  LaunchPlan plan;
  plan.file = asked_file(form);
  plan.source = is_file(form.layouts) ? form.layouts.front() + ": " : "";
  if (form.fractions) plan.unsupported = leave_out_fractions(plan.file, fractions_in(form));
  settle_addresses(plan.file, form.format);
  const bool script = form.format != "text" && form.format != "json";
  plan.options = {.as_root = !script && geteuid() == 0,
                  .timeout_seconds = plan.file.limits.job_seconds};
  try {
    for (size_t i = 0; i < plan.file.layouts.size(); ++i) {
      const Layout& layout = plan.file.layouts[i];
      plan.placements.push_back(place(layout, plan.file.hosts, plan.file.launcher.variables));
      if (script) require_script_can(layout, plan.placements[i]);
      std::vector<std::string> flags;
      for (const auto& [settings, place] :
           {std::pair(plan.file.workload, std::string("/workload")),
            std::pair(layout.workload, layout.source + "/workload")}) {
        append(flags, flags_of(with_batch_of_a_rank(settings, plan.placements[i], place), place));
      }
      append(flags, line.run_flags);
      const char* device = plan.placements[i].on_gpus() ? "--device=cuda" : "--device=cpu";
      flags.insert(flags.begin(), {"run", device});
      append_expectations(flags, layout, plan.placements[i].on_gpus());
      flags.emplace_back(script ? "--json" : "--conducted");
      plan.run_arguments.push_back(flags);
      run_config(plan, i);
    }
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(plan.source + error.what());
  } catch (const NotSupported& error) {
    throw NotSupported(plan.source + error.what());
  }
  plan.launches = launch_order(plan.file.layouts.size(), plan.file.repeats,
                               plan.file.order == "randomised", plan.file.seed);
  return plan;
}

}  // namespace nearmetal
