#include "bench/sweep/make_launch_plan.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <utility>

#include "base/errors.h"
#include "base/sha256.h"
#include "base/text.h"
#include "bench/cli/parse_value.h"
#include "bench/run/prepare_device.h"
#include "bench/sweep/host_probe.h"
#include "bench/sweep/hosts_found.h"
#include "bench/sweep/layout_workload.h"
#include "bench/sweep/supported_layouts.h"
#include "comm/launch/launch_plan_text.h"
#include "comm/launch/launch_script.h"
#include "comm/layout/gpu_shares.h"
#include "comm/layout/layout_json.h"
#include "comm/layout/short_form.h"
#include "comm/layout/survey_layouts.h"
#include "comm/world.h"
#include "models/load_module.h"
#include "reports/json/json.h"
#include "reports/json/report_files.h"

namespace nearmetal {

NM_DEFINE_SPECIAL_MEMBERS(PlanRequest);
namespace {

namespace fs = std::filesystem;

// The folder beside the program as it is installed, and as it is built.
fs::path layouts_folder() {
  const fs::path above = program_path().parent_path().parent_path();
  const fs::path installed = above / "share/nearmetal/layouts";
  std::error_code ignored;
  return fs::is_directory(installed, ignored) ? installed : above / "layouts";
}

bool is_misspelt_short_form(const std::string& word) {
  const size_t first_number_end = word.find_first_not_of("0123456789");
  return first_number_end > 0 && first_number_end < word.size() && word[first_number_end] == 'x' &&
         word.find('.') == word.npos;
}

constexpr const char* fraction_batch = "64";  // fits a small share, too
// Steps. Beside neighbours that fill the GPU, each may take seconds.
constexpr const char* disturbed_warm_up = "20";

Layout short_layout(const std::string& short_form) {
  Layout layout;
  layout.name = short_form;
  layout.shape = short_form;
  layout.source = short_form;
  const auto shapes = parse_short_form(short_form);
  // The hosts of a command line are alone on their nodes.
  layout.emulate = std::ranges::any_of(shapes, [](const JobShape& shape) { return shape.vms > 1; });
  return layout;
}

// On 1, 2, 4, ... all GPUs of one host, or on as many of several hosts with all of their GPUs.
std::vector<Layout> scaling_layouts(const std::vector<Host>& hosts) {
  const Host& first = hosts.front();
  const int64_t slots = first.gpus > 0 ? std::ssize(visible_gpus_of(first))
                                       : std::max<int64_t>(1, std::ssize(cpus_of(first)));
  const bool one_host = hosts.size() == 1;
  const int64_t all = one_host ? slots : std::ssize(hosts);
  std::vector<Layout> layouts;
  for (int64_t count = 1; layouts.empty() || count < 2 * all; count *= 2) {
    const std::string taken = std::to_string(std::min(count, all));
    layouts.push_back(
        short_layout(one_host ? "1x1x" + taken : taken + "x1x" + std::to_string(slots)));
  }
  return layouts;
}

// The layout file that is asked for, or none: layouts in short, or those of this machine.
std::optional<std::string> path_of_file(const std::vector<std::string>& words) {
  if (std::ranges::all_of(words, looks_like_short_form)) return std::nullopt;
  if (words.size() == 1) return layout_place(words.front());
  throw std::invalid_argument("give one layout file, or short forms such as 1x1x2 alone");
}

std::string own_path() {
  std::string path = program_path().string();
  if (is_plain_text(path)) return path;
  throw std::invalid_argument("the path of this program cannot be part of a command line: " + path);
}

// The file as it is asked for, with what the command line says in its place.
LayoutFile asked_file(const PlanRequest& request, const std::optional<std::string>& path) {
  if (request.fractions && !request.layouts.empty()) {
    throw std::invalid_argument("--fractions says which layouts; give no others");
  }
  if (!request.fractions && !request.neighbours.empty()) {
    throw std::invalid_argument("--neighbours is for --fractions, which says how many jobs");
  }
  LayoutFile file = path ? read_layout(*path) : request.file.value_or(LayoutFile{});
  if (request.hosts && !file.hosts.empty()) {
    throw std::invalid_argument("the layout file names hosts already; leave --hosts out");
  }
  if (path) {
    const fs::path folder = fs::path(*path).parent_path();
    for (Layout& layout : file.layouts) {
      std::optional<std::string>& config = layout.expect.mig_config;
      if (config) config = (folder / *config).string();
      if (!layout.executable) continue;
      layout.executable = fs::absolute(folder / *layout.executable).lexically_normal().string();
    }
    for (GridAxis& axis : file.grid.axes) axis.source = *path + ": " + axis.source;
  } else {
    for (const std::string& word : request.layouts) file.layouts.push_back(short_layout(word));
  }
  if (request.repeats) file.repeats = *request.repeats;
  if (request.job_seconds) file.limits.job_seconds = *request.job_seconds;
  return file;
}

bool shares_by_mig(const LayoutFile& file, const std::string& host) {
  return std::ranges::any_of(file.layouts, [&](const Layout& layout) {
    return std::ranges::any_of(layout.jobs, [&](const Job& job) {
      return job.share && job.share->mode == SharingMode::mig &&
             std::ranges::find(job.instances, host, &Instance::host) != job.instances.end();
    });
  });
}

// With what the driver reports of them, as far as the layouts need it.
std::vector<Host> asked_hosts(const PlanRequest& request, const LayoutFile& file) {
  std::vector<Host> hosts = !file.hosts.empty() ? file.hosts
                            : request.hosts     ? hosts_from(*request.hosts)
                                                : std::vector{this_machine_for(file.layouts)};
  if (request.fractions && hosts.size() > 1) {
    throw std::invalid_argument("--fractions is for one GPU of one host, and --hosts names " +
                                std::to_string(hosts.size()) + ": name one");
  }
  const bool scaling = file.layouts.empty() && !request.fractions;
  const bool any_shape = std::ranges::any_of(
      file.layouts, [](const Layout& layout) { return layout.shape.has_value(); });
  for (Host& host : hosts) {
    if (is_this_machine(address_of(host))) host.models = gpu_models("/");
    if (scaling || any_shape) host = with_gpu_places(host);
    const bool divided = request.fractions || shares_by_mig(file, host.name);
    if (divided && host.mig.empty()) host = with_mig_devices(host);
  }
  return hosts;
}

std::optional<Fractions> asked_fractions(const PlanRequest& request) {
  if (!request.fractions) return std::nullopt;
  return Fractions{*request.fractions, request.neighbours};
}

// Other networks show whether GPUs compute the same bits, unless the user chose one; none does in
// fp32, which --digest refuses on GPUs.
std::vector<Layout> layouts_of_survey(const PlanRequest& request, const LayoutFile& file,
                                      const std::vector<Host>& hosts) {
  const auto& texts = file.workload.texts;
  const auto is_given = [&](const char* setting) {
    return request.workload.is_given(setting) || texts.contains(setting);
  };
  const bool is_fp32 = request.workload.is_given("precision")
                           ? request.workload.config.precision == Precision::fp32
                           : texts.contains("precision") && texts.at("precision") == "fp32";
  if (texts.contains("update") || !file.grid.axes.empty()) {
    throw std::invalid_argument("survey takes no grid, and decides itself who exchanges gradients");
  }
  const std::vector<Instance> instances =
      surveyed_instances(file.layouts, hosts, request.silent_hosts);
  const bool on_gpus = !instances.front().gpus.empty();
  return survey_layouts(instances, is_fp32 && on_gpus ? SurveyedBits::none
                                   : is_given("model") || is_given("precision")
                                       ? SurveyedBits::own
                                       : SurveyedBits::more);
}

// With the GPUs or CPUs of every instance, but for shapes.
std::vector<Layout> asked_layouts(const PlanRequest& request, const LayoutFile& file,
                                  const std::vector<Host>& hosts) {
  const std::optional<Fractions> fractions = asked_fractions(request);
  std::vector<Layout> layouts = request.survey         ? layouts_of_survey(request, file, hosts)
                                : fractions            ? fraction_layouts(hosts.front(), *fractions)
                                : file.layouts.empty() ? scaling_layouts(hosts)
                                                       : file.layouts;
  for (Layout& layout : layouts) {
    if (request.mig_config) layout.expect.mig_config = request.mig_config;
    std::optional<LinkClaim>& link = layout.expect.link;
    if (link && !link->network) link->network = file.launcher.network;
  }
  return fill_in_instances(std::move(layouts), hosts);
}

// Of all layouts.
Settings asked_workload(const PlanRequest& request, const LayoutFile& file,
                        const std::vector<Host>& hosts) {
  Settings workload = file.workload;
  if (request.fractions && hosts.front().gpus > 0) workload.texts["batch"] = fraction_batch;
  if (!request.neighbours.empty()) workload.texts["warmup"] = disturbed_warm_up;
  return workload;
}

// The hosts as the launcher calls them, where a scheduler may give their names.
std::vector<Host> addressed(std::vector<Host> hosts, const PlanRequest& request) {
  if (request.starter == Starter::mpi_job) {
    for (size_t i = 0; i < hosts.size(); ++i) {
      hosts[i].address = mpi_job_worker(request.job_name, static_cast<int64_t>(i));
    }
  } else if (request.starter != Starter::slurm && request.starter != Starter::srun &&
             are_unnamed(hosts)) {
    throw std::invalid_argument(
        "hosts without names are for --format slurm, srun and mpijob; name them: --hosts "
        "vm0:2,vm1:2");
  }
  return hosts;
}

// One command logs in everywhere: with the user that the hosts name.
Launcher asked_launcher(const PlanRequest& request, const std::vector<Host>& hosts,
                        Launcher launcher) {
  const std::optional<std::string>& user = hosts.front().user;
  if (std::ranges::count(hosts, user, &Host::user) < std::ssize(hosts)) {
    throw std::invalid_argument(
        "--hosts: mpirun logs in everywhere as one user: name the users in ~/.ssh/config instead");
  }
  for (const auto& [name, value] : request.variables) launcher.variables[name] = value;
  if (request.mpi) launcher.mpi = request.mpi;
  if (user) launcher.remote_shell = launcher.remote_shell.value_or("ssh") + " -l " + *user;
  if (launcher.program) return launcher;
  launcher.program = request.in_container ? "nearmetal" : own_path();
  return launcher;
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

// Each step of Slurm has all GPUs of its nodes that it asks for, the first ones.
void require_srun_can(const Layout& layout, const Placement& placement) {
  std::set<std::string> taken;
  for (const PlacedJob& job : placement.jobs) {
    std::set<std::string> of_job;
    for (const PlacedRank& rank : job.ranks) of_job.insert(rank.host);
    for (const std::string& host : of_job) {
      if (taken.insert(host).second) continue;
      throw std::invalid_argument(layout.source + ": --format srun starts one job at a time on a " +
                                  "host; --format slurm starts several");
    }
  }
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

// The workloads with the place of their plans in a report that was asked for.
LayoutWorkloads with_plans(LayoutWorkloads workloads, const Layout& layout,
                           const Placement& placement) {
  RunConfig& config = workloads.config;
  if (!config.plans) return workloads;
  if (!workloads.of_jobs.empty()) {
    throw std::invalid_argument(layout.source + ": --plans holds for one workload, and its jobs " +
                                "have their own");
  }
  require_equal_shares(layout, placement);
  config.plans = place_of_kernel_choices(config, layout.name);
  return workloads;
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

// The file's layouts with what each of them starts, but for combinations of a grid whose settings
// do not go together.
LaunchPlan place_layouts(const LayoutFile& file, const PlanRequest& request,
                         const std::string& source) try {
  check(file);
  const bool script = request.starter != Starter::sweep;
  LaunchPlan plan;
  plan.file = file;
  plan.file.layouts.clear();
  std::vector<Layout> left_out;
  for (const Layout& layout : file.layouts) {
    const Placement placement = place(layout, file.hosts, file.launcher.variables);
    if (script) require_script_can(layout, placement);
    if (request.starter == Starter::srun) require_srun_can(layout, placement);
    LayoutWorkloads workloads;
    try {
      workloads = with_plans(layout_workloads(file, layout, placement, request.workload), layout,
                             placement);
    } catch (const std::invalid_argument& error) {
      if (!layout.grid) throw;
      left_out.push_back(layout);
      plan.unsupported.push_back({layout.name, error.what()});
      continue;
    }
    plan.workloads.push_back(workloads);
    plan.placements.push_back(placement);
    Layout& planned = plan.file.layouts.emplace_back(layout);
    if (script || !layout.executable) continue;
    planned.build = find_executable(*layout.executable, layout.source);
  }
  require_combinations(plan.file.layouts, left_out, plan.unsupported);
  return plan;
} catch (const std::invalid_argument& error) {
  throw std::invalid_argument(source + error.what());
} catch (const NotSupported& error) {
  throw NotSupported(source + error.what());
}

}  // namespace

std::vector<std::string> shipped_layouts() {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(layouts_folder(), none)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

std::string shipped_layout_file(const std::string& name) {
  return (layouts_folder() / (name + ".json")).string();
}

std::string layout_place(const std::string& word) {
  std::error_code ignored;
  const bool in_folder = is_path(word) && fs::exists(word, ignored);
  if (word == "-" || word.find('/') != word.npos || in_folder) return word;
  const std::string name = word.ends_with(".json") ? fs::path(word).stem().string() : word;
  const std::vector<std::string> names = shipped_layouts();
  if (std::ranges::find(names, name) != names.end()) {
    std::string file = shipped_layout_file(name);
    require_trusted(file);
    return file;
  }
  if (is_misspelt_short_form(word)) parse_short_form(word);  // which says what it lacks
  const std::string hint = file_of_that_name(word);
  const std::string unread =
      hint.empty() ? std::string("it cannot be read: ") + std::strerror(ENOENT) + ", and " : "";
  throw std::invalid_argument(word + ": " + unread + "no layout of that name comes with nearmetal" +
                              did_you_mean(name, names) + " (" + joined(names) +
                              "); layouts in short are written as 1x1x2" + hint);
}

// Each line makes what it names, of which nothing changes afterwards.
std::vector<std::string> variables_left_here(const LaunchPlan& plan) {
  if (std::ranges::all_of(plan.file.hosts, [](const Host& host) {
        return is_this_machine(host.address.value_or(host.name));
      })) {
    return {};
  }
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string name = split(*entry, "=").front();
    if (steers_ranks(name) && !plan.file.launcher.variables.contains(name)) names.push_back(name);
  }
  if (names.empty()) return {};
  return {"set here, and given to no rank on another host without --variable NAME=VALUE: " +
          joined(names)};
}

LaunchPlan make_launch_plan(const PlanRequest& request) {
  const std::optional<std::string> path = path_of_file(request.layouts);
  const std::string source = path ? *path + ": " : "";
  const LayoutFile asked = asked_file(request, path);
  const std::vector<Host> hosts = asked_hosts(request, asked);
  const SupportedLayouts supported =
      supported_layouts(asked_layouts(request, asked, hosts), hosts, asked_fractions(request));
  const Grid grid = whole_grid(asked, request.grid, request.workload);
  const LayoutFile file{.hosts = addressed(hosts, request),
                        .launcher = asked_launcher(request, hosts, asked.launcher),
                        .layouts = expand_grid(supported.layouts, grid),
                        .workload = asked_workload(request, asked, hosts),
                        .grid = grid,
                        .repeats = asked.repeats,
                        .order = request.survey ? Order::listed : asked.order,
                        .seed = asked.seed,
                        .limits = asked.limits};
  LaunchPlan plan = place_layouts(file, request, source);
  plan.unsupported.insert(plan.unsupported.begin(), supported.left_out.begin(),
                          supported.left_out.end());
  plan.launches = launch_order(plan.file.layouts.size(), file.repeats,
                               file.order == Order::randomised, file.seed);
  plan.conducted = request.starter == Starter::sweep;
  plan.options = {.as_root = plan.conducted && geteuid() == 0,
                  .timeout_seconds = file.limits.job_seconds,
                  .in_allocation = plan.conducted && is_in_allocation(),
                  .by_srun = request.starter == Starter::srun,
                  .plain_alone = request.plain_alone};
  plan.source = source;
  return plan;
}

Executable find_executable(const std::string& path, const std::string& source) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored) || access(path.c_str(), X_OK) != 0) {
    throw std::invalid_argument(source + "/executable: '" + path +
                                "' is no program that can be started here");
  }
  Executable found{path, sha256(file_text(path)), {}};
  for (const fs::path& module : modules_of(fs::canonical(path))) {
    found.modules_sha256[module.filename()] = sha256(file_text(module));
  }
  return found;
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
  for (Layout& layout : once.file.layouts) layout.build.reset();
  once.file.hosts.clear();
  if (once.file.launcher.program == own_path()) once.file.launcher.program = "nearmetal";
  std::string text = plan_json(once);
  for (const std::string& report : reports)
    text += kernel_choices_sha256(pinned_kernel_choices(report));
  return sha256(text);
}

}  // namespace nearmetal
