#include "bench/sweep/make_launch_plan.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "bench/cli/parse_value.h"
#include "bench/run/prepare_device.h"
#include "bench/sweep/executable.h"
#include "bench/sweep/grid.h"
#include "bench/sweep/hosts_found.h"
#include "bench/sweep/layouts_left_out.h"
#include "bench/sweep/mig_found.h"
#include "bench/sweep/shipped_layouts.h"
#include "comm/launch/launch_plan_json.h"
#include "comm/launch/mpi_job_yaml.h"
#include "comm/layout/fraction_layouts.h"
#include "comm/layout/layout.h"
#include "comm/layout/layout_json.h"
#include "comm/layout/short_form.h"
#include "models/errors.h"
#include "models/load_module.h"
#include "reports/files/sha256.h"
#include "reports/json/json.h"
#include "reports/text/text.h"

namespace nearmetal {

NM_DEFINE_SPECIAL_MEMBERS(PlanRequest);
namespace {

constexpr const char* fraction_batch = "64";  // fits a small share, too
// Steps. Beside neighbours that fill the GPU, each may take seconds.
constexpr const char* disturbed_warm_up = "20";

Layout layout_of(const std::string& short_form) {
  Layout layout;
  layout.name = short_form;
  layout.shape = short_form;
  layout.source = short_form;
  const auto shapes = parse_short_form(short_form);
  // The hosts of a command line are alone on their nodes.
  layout.emulate = std::ranges::any_of(shapes, [](const JobShape& shape) { return shape.vms > 1; });
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
  const bool any_file = std::ranges::any_of(
      words, [](const std::string& word) { return !looks_like_short_form(word); });
  if (any_file && words.size() > 1) {
    throw std::invalid_argument("give one layout file, or short forms such as 1x1x2 alone");
  }
  return any_file;
}

Fractions fractions_in(const PlanRequest& request) {
  return {*request.fractions, request.neighbours};
}

void settle_executables(LayoutFile& file, const std::filesystem::path& path) {
  for (Layout& layout : file.layouts) {
    if (!layout.executable) continue;
    layout.executable = std::filesystem::absolute(path.parent_path() / *layout.executable)
                            .lexically_normal()
                            .string();
  }
}

LayoutFile asked_file(const PlanRequest& request) {
  const bool from_file = is_file(request.layouts);
  if (request.fractions && !request.layouts.empty()) {
    throw std::invalid_argument("--fractions says which layouts; give no others");
  }
  if (!request.fractions && !request.neighbours.empty()) {
    throw std::invalid_argument("--neighbours is for --fractions, which says how many jobs");
  }
  LayoutFile file = request.file ? *request.file
                    : from_file  ? read_layout(request.layouts.front())
                                 : LayoutFile{};
  if (request.hosts && !file.hosts.empty()) {
    throw std::invalid_argument("the layout file names hosts already; leave --hosts out");
  }
  if (file.hosts.empty()) {
    file.hosts =
        request.hosts ? hosts_from(*request.hosts) : std::vector{this_machine_for(file.layouts)};
  }
  for (const std::string& word : request.layouts) {
    if (!from_file) file.layouts.push_back(layout_of(word));
  }
  if (request.fractions && file.hosts.size() > 1) {
    throw std::invalid_argument("--fractions is for one GPU of one host, and --hosts names " +
                                std::to_string(file.hosts.size()) + ": name one");
  }
  if (request.fractions) {
    const Host& host = with_mig_devices(file.hosts.front());
    file.layouts = fraction_layouts(host, fractions_in(request));
    if (host.gpus > 0) file.workload.texts["batch"] = fraction_batch;
    if (!request.neighbours.empty()) file.workload.texts["warmup"] = disturbed_warm_up;
  }
  if (file.layouts.empty()) file.layouts = scaling_of(file.hosts);
  if (std::ranges::any_of(file.layouts, [](const Layout& one) { return one.shape.has_value(); })) {
    for (Host& host : file.hosts) add_gpu_places(host);
  }
  settle_instances(file);
  settle_mig(file, request.mig_config, from_file ? request.layouts.front() : "");
  if (from_file) settle_executables(file, request.layouts.front());
  if (request.repeats) file.repeats = *request.repeats;
  if (request.job_seconds) file.limits.job_seconds = *request.job_seconds;
  check(file);
  return file;
}

std::string own_path() {
  std::string path = program_path().string();
  if (is_plain_text(path)) return path;
  throw std::invalid_argument("the path of this program cannot be part of a command line: " + path);
}

// Names of hosts, and how the program is called there, where a scheduler decides.
void settle_addresses(LayoutFile& file, const PlanRequest& request) {
  const bool mpi_job = request.starter == Starter::mpi_job;
  if (are_unnamed(file.hosts) && !mpi_job && request.starter != Starter::slurm) {
    throw std::invalid_argument(
        "hosts without names are for --format slurm and mpijob; name them: --hosts vm0:2,vm1:2");
  }
  for (size_t i = 0; mpi_job && i < file.hosts.size(); ++i) {
    file.hosts[i].address = mpi_job_worker(request.job_name, static_cast<int64_t>(i));
  }
  if (!file.launcher.program) file.launcher.program = mpi_job ? "nearmetal" : own_path();
}

// Scripts start the jobs of a layout at once, and nothing else.
void require_script_can(const Layout& layout, const Placement& placement) {
  const std::optional<Share>& share = placement.share();
  if (placement.training_jobs().size() < placement.jobs.size()) {
    throw std::invalid_argument(layout.source + ": neighbours that disturb are for `nearmetal " +
                                "sweep`; a script cannot end them");
  }
  if (layout.expect.mig_config) {
    throw std::invalid_argument(layout.source + "/expect/mig_config: `nearmetal sweep` checks it " +
                                "against the GPUs; a script cannot");
  }
  if (!share || (share->mode != SharingMode::serial && !through_mps(*share))) return;
  throw std::invalid_argument(layout.source + ": jobs that share by " + to_string(share->mode) +
                              " are for `nearmetal sweep`; a script cannot start them");
}

// Plans hold for one size: on another share of a GPU other kernels are the fastest.
void require_equal_shares(const Layout& layout, const Placement& placement) {
  std::set<std::string> sizes;
  for (const PlacedJob& job : placement.jobs) {
    if (!job.stress) sizes.insert(share_size(job));
  }
  if (sizes.size() <= 1) return;
  throw std::invalid_argument(layout.source + ": --plans holds for shares of one size, and its " +
                              "jobs have several: " + joined({sizes.begin(), sizes.end()}));
}

// Adds the workloads of the jobs of `layout`, which is the next one of the plan.
void add_workloads(LaunchPlan& plan, const Layout& layout, const Placement& placement,
                   const Workload& asked) {
  Workload workload = layout_workload(plan.file, layout, placement, asked);
  decltype(plan.job_workloads) of_jobs;
  for (size_t job = 0; job < layout.jobs.size(); ++job) {
    if (layout.jobs[job].workload.texts.empty()) continue;
    const auto own = of_jobs.emplace(std::pair(plan.workloads.size(), job),
                                     job_workload(plan.file, layout, job, placement, asked));
    require_one_choice(own.first->second, layout, placement, plan.conducted);
  }
  require_one_choice(workload, layout, placement, plan.conducted);
  RunConfig& config = workload.config;
  if (config.plans && !of_jobs.empty()) {
    throw std::invalid_argument(layout.source + ": --plans holds for one workload, and its jobs " +
                                "have their own");
  }
  if (config.plans) {
    require_equal_shares(layout, placement);
    config.plans = place_of_kernel_choices(config, layout.name);
  }
  plan.workloads.push_back(std::move(workload));
  plan.job_workloads.merge(of_jobs);
}

// Where one layout has no combination of the grid left, it is at fault, and not these.
void require_combinations(const std::vector<Layout>& kept, const std::vector<Layout>& left_out,
                          const std::vector<UnsupportedArm>& reasons) {
  for (size_t i = 0; i < left_out.size(); ++i) {
    const bool any = std::ranges::any_of(kept, [&](const Layout& layout) {
      return layout.grid->layout == left_out[i].grid->layout;
    });
    if (!any) throw std::invalid_argument(reasons.at(i).reason);
  }
}

// Places and workloads of the file's layouts, but for combinations of a grid whose settings do not
// go together.
void add_layouts(LaunchPlan& plan, const PlanRequest& request) {
  const bool script = request.starter != Starter::sweep;
  std::vector<Layout> kept, left_out;
  std::vector<UnsupportedArm> reasons;
  for (const Layout& layout : plan.file.layouts) {
    const Placement placement = place(layout, plan.file.hosts, plan.file.launcher.variables);
    if (script) require_script_can(layout, placement);
    try {
      add_workloads(plan, layout, placement, request.workload);
    } catch (const std::invalid_argument& error) {
      if (!layout.grid) throw;
      left_out.push_back(layout);
      reasons.push_back({layout.name, error.what()});
      continue;
    }
    if (!script && layout.executable) {
      plan.executables.emplace(kept.size(), find_executable(*layout.executable, layout.source));
    }
    plan.placements.push_back(placement);
    kept.push_back(layout);
  }
  require_combinations(kept, left_out, reasons);
  plan.file.layouts = std::move(kept);
  std::ranges::move(reasons, std::back_inserter(plan.unsupported));
}

}  // namespace

LaunchPlan make_launch_plan(PlanRequest request) {
  if (is_file(request.layouts)) request.layouts.front() = layout_place(request.layouts.front());
  LaunchPlan plan;
  plan.file = asked_file(request);
  plan.source = is_file(request.layouts) ? request.layouts.front() + ": " : "";
  plan.unsupported = request.fractions ? leave_out_fractions(plan.file, fractions_in(request))
                                       : leave_out_portable(plan.file);
  for (GridAxis& axis : plan.file.grid.axes) axis.source = plan.source + axis.source;
  expand_grid(plan.file, request.grid, request.workload);
  settle_addresses(plan.file, request);
  const bool script = request.starter != Starter::sweep;
  plan.options = {.as_root = !script && geteuid() == 0,
                  .timeout_seconds = plan.file.limits.job_seconds,
                  .plain_alone = request.plain_alone};
  plan.conducted = !script;
  try {
    check(plan.file);
    add_layouts(plan, request);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(plan.source + error.what());
  } catch (const NotSupported& error) {
    throw NotSupported(plan.source + error.what());
  }
  plan.launches = launch_order(plan.file.layouts.size(), plan.file.repeats,
                               plan.file.order == Order::randomised, plan.file.seed);
  return plan;
}

std::vector<std::string> files_of(const LaunchPlan& plan, const PlanRequest& request) {
  std::vector<std::string> files;
  for (const std::string& word : request.layouts) {
    if (!looks_like_short_form(word)) files.push_back(layout_place(word));
  }
  if (request.hosts) files.push_back(*request.hosts);
  if (plan.file.launcher.program) files.push_back(*plan.file.launcher.program);
  for (const Layout& layout : plan.file.layouts) {
    if (layout.executable) files.push_back(*layout.executable);
    const std::string config = layout.expect.mig_config.value_or("");  // FILE or FILE#LABEL
    files.insert(files.end(), {config, config.substr(0, config.rfind('#'))});
  }
  return files;
}

std::string plan_sha256(const LaunchPlan& plan) {
  std::set<std::string> reports;
  for (const Workload& workload : plan.workloads) {
    if (workload.config.plans) reports.insert(*workload.config.plans);
  }
  // More repeats, other builds, this program elsewhere, and what hosts are like: the same plan.
  LaunchPlan once = plan;
  once.launches.clear();
  once.executables.clear();
  once.file.hosts.clear();
  if (once.file.launcher.program == own_path()) once.file.launcher.program = "nearmetal";
  std::string text = plan_json(once);
  for (const std::string& report : reports)
    text += kernel_choices_sha256(pinned_kernel_choices(report));
  return sha256(text);
}

}  // namespace nearmetal
