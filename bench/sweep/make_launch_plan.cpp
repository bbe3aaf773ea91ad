#include "bench/sweep/make_launch_plan.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "bench/cli/parse_value.h"
#include "bench/run/prepare_device.h"
#include "bench/sweep/executable.h"
#include "bench/sweep/hosts_found.h"
#include "bench/sweep/layouts_left_out.h"
#include "bench/sweep/mig_found.h"
#include "bench/sweep/shipped_layouts.h"
#include "comm/launch/launch_plan_json.h"
#include "comm/launch/mpi_job_yaml.h"
#include "comm/layout/fraction_layouts.h"
#include "comm/layout/layout.h"
#include "comm/layout/layout_json.h"
#include "comm/layout/mig_placement.h"
#include "comm/layout/short_form.h"
#include "models/errors.h"
#include "models/load_module.h"
#include "reports/files/sha256.h"
#include "reports/json/json.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

constexpr const char* fraction_batch = "64";  // that fits a small share, too
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

// This machine, with all of its GPUs where the layouts name those that they take.
Host host_for(const std::vector<Layout>& layouts) {
  const bool named = !layouts.empty() && std::ranges::none_of(layouts, [](const Layout& layout) {
    return layout.shape.has_value();
  });
  return named ? this_machine("/", nullptr) : this_machine();
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
  return {*request.fractions, request.batches, request.neighbours};
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
  if (!request.fractions && !request.batches.empty()) {
    throw std::invalid_argument("--batches is for --fractions; give --batch for one");
  }
  LayoutFile file = request.file ? *request.file
                    : from_file  ? read_layout(request.layouts.front())
                                 : LayoutFile{};
  if (request.hosts && !file.hosts.empty()) {
    throw std::invalid_argument("the layout file names hosts already; leave --hosts out");
  }
  if (file.hosts.empty()) {
    file.hosts = request.hosts ? hosts_from(*request.hosts) : std::vector{host_for(file.layouts)};
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
void settle_addresses(LayoutFile& file, Starter starter) {
  const bool mpi_job = starter == Starter::mpi_job;
  if (are_unnamed(file.hosts) && !mpi_job && starter != Starter::slurm) {
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
  if (placement.training_jobs().size() < placement.jobs.size()) {
    throw std::invalid_argument(layout.source + ": neighbours that disturb are for `nearmetal " +
                                "sweep`; a script cannot end them");
  }
  if (layout.expect.mig_config) {
    throw std::invalid_argument(layout.source + "/expect/mig_config: it is held against the GPUs " +
                                "by `nearmetal sweep`; a script cannot");
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

// What the jobs of a layout do.
void add_workloads(LaunchPlan& plan, size_t index, const Workload& asked) {
  const Layout& layout = plan.file.layouts[index];
  const Placement& placement = plan.placements[index];
  plan.workloads.push_back(layout_workload(plan.file, layout, placement, asked));
  for (size_t job = 0; job < layout.jobs.size(); ++job) {
    if (layout.jobs[job].workload.texts.empty()) continue;
    plan.job_workloads.emplace(std::pair(index, job),
                               job_workload(plan.file, layout, job, placement, asked));
  }
  RunConfig& config = plan.workloads.back().config;
  if (!config.plans) return;
  if (has_own_workloads(plan, index)) {
    throw std::invalid_argument(layout.source + ": --plans holds for one workload, and its jobs " +
                                "have their own");
  }
  require_equal_shares(layout, placement);
  config.plans = place_of_kernel_choices(config, layout.name);
}

}  // namespace

LaunchPlan make_launch_plan(PlanRequest request) {
  if (is_file(request.layouts)) request.layouts.front() = layout_place(request.layouts.front());
  if (!request.batches.empty() && request.workload.is_given("batch")) {
    throw std::invalid_argument("--batch and --batches both say how large; give one of them");
  }
  LaunchPlan plan;
  plan.file = asked_file(request);
  plan.source = is_file(request.layouts) ? request.layouts.front() + ": " : "";
  plan.unsupported = request.fractions ? leave_out_fractions(plan.file, fractions_in(request))
                                       : leave_out_portable(plan.file);
  settle_addresses(plan.file, request.starter);
  const bool script = request.starter != Starter::sweep;
  plan.options = {.as_root = !script && geteuid() == 0,
                  .timeout_seconds = plan.file.limits.job_seconds,
                  .plain_alone = request.plain_alone};
  plan.conducted = !script;
  try {
    for (size_t i = 0; i < plan.file.layouts.size(); ++i) {
      const Layout& layout = plan.file.layouts[i];
      plan.placements.push_back(place(layout, plan.file.hosts, plan.file.launcher.variables));
      if (script) require_script_can(layout, plan.placements[i]);
      if (!script && layout.executable) {
        plan.executables.emplace(i, find_executable(*layout.executable, layout.source));
      }
      add_workloads(plan, i, request.workload);
    }
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
  // More repeats, other builds, and this program elsewhere are of the same plan.
  LaunchPlan once = plan;
  once.launches.clear();
  once.executables.clear();
  if (once.file.launcher.program == own_path()) once.file.launcher.program = "nearmetal";
  std::string text = plan_json(once);
  for (const std::string& report : reports)
    text += kernel_choices_sha256(pinned_kernel_choices(report));
  return sha256(text);
}

}  // namespace nearmetal
