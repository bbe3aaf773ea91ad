#include "bench/doctor/checkup.h"

#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <future>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "base/errors.h"
#include "base/text.h"
#include "bench/cli/process.h"
#include "bench/environment/child_process.h"
#include "bench/environment/environment.h"
#include "bench/environment/gpu.h"
#include "bench/environment/system_files.h"
#include "bench/monitor/monitor_sources.h"
#include "bench/run/prepare_device.h"
#include "bench/run/rank_facts.h"
#include "bench/sweep/hosts_found.h"
#include "bench/sweep/make_launch_plan.h"
#include "bench/sweep/supported_layouts.h"
#include "comm/launch/launch_plan.h"
#include "comm/layout/peer_rules.h"
#include "models/load_module.h"
#include "models/probe.h"
#include "models/program.h"
#include "reports/conditions/condition.h"
#include "reports/json/kernel_cache.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds moment{500};
constexpr double mpi_may_take_seconds = 30;
constexpr double nccl_may_take_seconds = 60;
constexpr double hosts_may_take_seconds = 30;
constexpr double copies_may_take_seconds = 30;
constexpr unsigned busy_percent = 50;  // of the time, with the link as at full load

void collect_gpus(Checkup& checkup) {
  try {
    const Nvml nvml;
    checkup.nvml = nvml.driver_version();
    checkup.environment.gpus = all_gpus(nvml, "/");
    for (const Gpu& gpu : checkup.environment.gpus) {
      GpuNow& now = checkup.gpus_now.emplace_back();
      if (!gpu.pci_id) continue;
      const GpuSource source("libnvidia-ml.so.1", *gpu.pci_id);
      now.processes = source.processes();
      now.throttle_bits = scaled<int64_t>(source.throttle_bits(), 1);
    }
  } catch (const NvmlDown& error) {
    checkup.nvml = Unknown{error.what()};
    checkup.nvml_status = error.status;
  }
}

// Copies to the GPU for a moment in another process, as idle GPUs lower their link, and looks
// meanwhile: whether there was load, and the best that the link showed.
bool look_under_load(const Nvml& nvml, Gpu& gpu) {
  const Maybe<NvmlDevice> device = nvml.device_at(*gpu.pci_id);
  if (!device || !gpu.uuid) return false;
  const std::string seconds = std::to_string(std::chrono::duration<double>(moment).count());
  std::future<ChildOutput> copies = std::async(std::launch::async, [&] {
    return run_child({"env", "CUDA_VISIBLE_DEVICES=" + *gpu.uuid, program_path().string(), "micro",
                      std::string("^") + input_probe + "$", "--device", "cuda", "--seconds",
                      seconds, "--repetitions", "1"},
                     copies_may_take_seconds);
  });
  struct Utilisation {
    unsigned gpu, memory;  // percent
  };
  bool busy = false;
  do {
    const auto now = nvml.ask<Utilisation>("nvmlDeviceGetUtilizationRates", *device);
    const auto generation = nvml.ask<unsigned>("nvmlDeviceGetCurrPcieLinkGeneration", *device);
    busy = busy || (now && now->gpu >= busy_percent);
    if (generation) gpu.link_generation = std::max<int64_t>(*gpu.link_generation, *generation);
  } while (copies.wait_for(std::chrono::milliseconds(10)) != std::future_status::ready);
  return copies.get().exit_status == 0 || busy;
}

void look_at_links(Checkup& checkup) {
  if (!checkup.nvml) return;
  const Nvml nvml;
  std::vector<std::future<void>> looks;
  for (size_t i = 0; i < checkup.environment.gpus.size(); ++i) {
    Gpu& gpu = checkup.environment.gpus[i];
    if (!gpu.pci_id || !is_below(gpu.link_generation, gpu.largest_link_generation)) continue;
    looks.push_back(std::async(std::launch::async, [&nvml, &gpu, &now = checkup.gpus_now[i]] {
      const bool loaded = look_under_load(nvml, gpu);
      now.link_is_slow = loaded && is_below(gpu.link_generation, gpu.largest_link_generation);
    }));
  }
  for (std::future<void>& look : looks) look.get();
}

BackendCheck check_backend(const std::string& name) {
  Obstacle next = Obstacle::not_loaded;
  try {
    Backend& backend = load_backend(name);
    next = Obstacle::no_device;
    backend.describe(0);
    return {};
  } catch (const NotBuilt& error) {
    return {Obstacle::not_built, error.what()};
  } catch (const DriverTooOld& error) {
    return {Obstacle::old_driver, error.what(), error.fix};
  } catch (const std::exception& error) {
    return {next, message_of(error)};
  }
}

MpiLaunch launch(const std::vector<std::string>& command, double may_take_seconds) {
  const ChildOutput output = run_child(command, may_take_seconds);
  MpiLaunch launch;
  launch.status = output.exit_status;
  std::istringstream lines(output.text);
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();  // of ssh
    launch.ranks += line.starts_with("nearmetal ") ? 1 : 0;
    const bool failed = launch.status != 0 && !line.empty();
    if (failed && launch.text.empty() && line.find_first_not_of('-') != line.npos) {
      launch.text = line;
    }
  }
  return launch;
}

// On this machine, as a sweep starts its jobs.
MpiLaunch launch_two(const std::vector<std::string>& arguments, double may_take_seconds) {
  Launcher launcher;
  launcher.program = program_path().string();
  Host here;
  here.name = this_host;
  LaunchOptions options;
  options.as_root = geteuid() == 0;
  options.in_allocation = is_in_allocation();
  return launch(launch_command(one_rank_each({here, here}, launcher), launcher, arguments, options),
                may_take_seconds);
}

std::vector<std::string> short_sum(const std::string& library) {
  const std::string probe = exchange_probe_name(library, "allreduce", exchanged_bytes[0]);
  return {"micro", probe, "--seconds", "0.01", "--repetitions", "1"};
}

void try_two_ranks(Checkup& checkup) {
  if (run_child({"mpirun", "--version"}, 5).exit_status != 0) return;
  checkup.mpi = launch_two({"--version"}, mpi_may_take_seconds);
  if (checkup.environment.gpus.size() < 2 || checkup.mpi->status != 0) return;
  checkup.nccl = launch_two(short_sum("nccl"), nccl_may_take_seconds);
}

bool is_here(const Host& host) { return is_this_machine(address_of(host)); }

void try_hosts(const LayoutFile& layouts, Checkup& checkup) {
  if (std::ranges::all_of(layouts.hosts, is_here)) return;
  checkup.host_names = transformed(layouts.hosts, &Host::name);
  if (!checkup.mpi) return;
  Launcher launcher = layouts.launcher;
  if (!launcher.program) launcher.program = program_path().string();
  const std::vector<HostFacts> facts = ask_hosts(layouts.hosts, launcher);
  checkup.one_machine = hosts_of_one_machine(layouts.hosts, facts);
  checkup.unlike_variables = unlike_variables(facts);
  if (!launcher.network) checkup.shared_addresses = shared_addresses(facts);
  launcher.networks_left_out = transformed(checkup.shared_addresses, &SharedAddress::network);
  const LaunchOptions options{.as_root = geteuid() == 0, .timeout_seconds = hosts_may_take_seconds};
  checkup.hosts = launch(
      launch_command(one_rank_each(layouts.hosts, launcher), launcher, short_sum("mpi"), options),
      hosts_may_take_seconds + mpi_may_take_seconds);
}

void collect_files(Checkup& checkup) {
  if (const auto path = default_kernel_cache_path()) {
    fs::path folder = path->parent_path();
    std::error_code ignored;
    while (!fs::exists(folder, ignored) && folder.has_relative_path())
      folder = folder.parent_path();
    checkup.plan_cache_folder = folder.string();
    checkup.plan_cache_writable = access(folder.c_str(), W_OK) == 0;
  } else {
    checkup.plan_cache_writable = Unknown{"there is no home folder"};
  }
  struct statvfs disk {};
  checkup.free_disk_bytes = Unknown{"this folder's disk does not say"};
  if (statvfs(".", &disk) == 0) {
    checkup.free_disk_bytes = static_cast<int64_t>(disk.f_bavail * disk.f_frsize);
  }
  timex clock{};
  const int state = adjtimex(&clock);
  checkup.clock_synchronised = Unknown{"the kernel does not say"};
  if (state >= 0) checkup.clock_synchronised = state != TIME_ERROR;
}

Maybe<double> cpus_busy_with_others() {
  CpuSource cpus("/", 1);
  std::this_thread::sleep_for(moment);
  const std::vector<std::string> names = CpuSource::names();
  std::vector<double> values(names.size());
  cpus.read(values.data());
  const double busy = values[std::ranges::find(names, busy_with_others_series) - names.begin()];
  if (std::isnan(busy)) return Unknown{"the kernel does not say"};
  return busy;
}

std::string too_few_gpus(const Host& host, const Checkup& checkup) {
  const auto listed = std::ssize(checkup.environment.gpus);
  if (!is_here(host) || host.gpus <= listed) return "";
  return "host '" + host.name + "' is said to have " + counted(host.gpus, "GPU") +
         ", and the driver lists " + (listed == 0 ? "none" : std::to_string(listed)) +
         (checkup.nvml ? "" : " (" + checkup.nvml.reason + ")");
}

// The same look as a rank takes before it trains.
std::string not_as_expected(const LaunchPlan& plan, size_t index, const Checkup& checkup) {
  const Layout& layout = plan.file.layouts[index];
  const Placement& placement = plan.placements[index];
  for (const PlacedJob& job : placement.jobs) {
    for (const PlacedRank& placed : job.ranks) {
      const bool known = !placed.gpu || *placed.gpu < std::ssize(checkup.environment.gpus);
      if (!is_this_machine(placed.address) || !known) continue;
      try {
        require_expected(layout.expect, checkup.environment,
                         placed.gpu ? &checkup.environment.gpus[*placed.gpu] : nullptr);
      } catch (const std::invalid_argument& error) {
        return layout.source + "/expect: " + error.what();
      }
    }
  }
  return "";
}

void hold(const LaunchPlan& plan, const Checkup& checkup, LayoutCheck& check) {
  const auto add = [&](const std::string& problem) {
    if (!problem.empty()) check.problems.push_back(check.file + ": " + problem);
  };
  for (const Host& host : plan.file.hosts) add(too_few_gpus(host, checkup));
  check.names_this_machine =
      plan.file.hosts.empty() || std::ranges::any_of(plan.file.hosts, is_here);
  for (size_t i = 0; i < plan.placements.size(); ++i) add(not_as_expected(plan, i, checkup));
}

// Their hosts, with what the driver tells of this machine's GPUs.
std::vector<Host> with_gpus_here(std::vector<Host> hosts, const Checkup& checkup) {
  for (Host& host : hosts) {
    if (!is_here(host)) continue;
    host.found.clear();
    for (const Gpu& gpu : checkup.environment.gpus) host.found.push_back({gpu.name});
  }
  return hosts;
}

}  // namespace

Checkup collect_checkup(const LayoutFile& layouts) {
  Checkup checkup;
  checkup.cpus_busy_with_others = cpus_busy_with_others();  // before processes of its own
  checkup.environment = find_environment();
  checkup.gpu_device_files = choose_device(Device::automatic).first == Device::cuda;
  collect_gpus(checkup);
  for (const char* name : {"cpu", "cuda"}) checkup.backends[name] = check_backend(name);
  look_at_links(checkup);
  try_two_ranks(checkup);
  try_hosts(layouts, checkup);
  collect_files(checkup);
  return checkup;
}

LayoutCheck check_layout(const std::string& file, const Checkup& checkup) {
  LayoutCheck check{file, 0, {}};
  try {
    PlanRequest request;
    request.layouts = {file};
    const LaunchPlan plan = make_launch_plan(request);
    check.layouts = std::ssize(plan.placements);
    check.left_out = plan.unsupported;
    hold(plan, checkup, check);
    check.peers = peer_findings(plan.placements, with_gpus_here(plan.file.hosts, checkup));
    require_shares(plan);
  } catch (const std::exception& error) {
    check.problems.emplace_back(message_of(error));
  }
  return check;
}

}  // namespace nearmetal
