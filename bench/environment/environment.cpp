#include "bench/environment/environment.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>

#include "bench/environment/system_files.h"
#include "models/errors.h"
#include "reports/json/json.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

Maybe<bool> hypervisor_flag(const fs::path& root) {
  const Maybe<std::string> flags = value_in(root / "proc/cpuinfo", "flags", ':');
  if (!flags) return Unknown{flags.reason};
  return (" " + *flags + " ").find(" hypervisor ") != std::string::npos;
}

// Of control groups of version 2: the folder of this process below their mount, for a container
// usually the root of what it sees.
fs::path control_group(const fs::path& root) {
  const Maybe<std::string> group = value_in(root / "proc/self/cgroup", "0", ':');
  fs::path mount = root / "sys/fs/cgroup";
  if (!group) return mount;
  const fs::path own = mount / fs::path(group->substr(group->find('/') + 1));
  return fs::exists(own / "cgroup.controllers") ? own : mount;
}

Maybe<double> cpu_quota(const fs::path& group) {
  const auto line = first_line(group / "cpu.max");
  if (!line) return Unknown{(group / "cpu.max").string() + " cannot be read"};
  double quota = 0;
  double period = 0;
  if (!(std::istringstream(*line) >> quota >> period) || quota <= 0 || period <= 0) {
    return Unknown{"no limit is set"};
  }
  return quota / period;
}

Maybe<int64_t> memory_limit(const fs::path& group) {
  const auto line = first_line(group / "memory.max");
  if (!line) return Unknown{(group / "memory.max").string() + " cannot be read"};
  if (*line == "max") return Unknown{"no limit is set"};
  return std::strtoll(line->c_str(), nullptr, 10);
}

int64_t usable_cpus(int64_t logical_cpus) {
  cpu_set_t mask;
  return sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : logical_cpus;
}

const Unknown left_out{"left out (--no-host-info)"};

// What is told instead, by the text that is not to be told.
using Secrets = std::map<std::string, std::string>;

// Of an absolute path the name of the file: its folders have names of users and customers.
void leave_out_folders(std::string& path, Secrets& secrets) {
  if (!path.starts_with('/')) return;
  const std::string name = std::filesystem::path(path).filename().string();
  if (!name.empty()) secrets.emplace(path, name);
  path = name.empty() ? left_out_name : name;
}

void leave_out_folders(Invocation& invocation, Secrets& secrets) {
  for (std::string& argument : invocation.argv) {
    const size_t equals = argument.starts_with("--") ? argument.find('=') : argument.npos;
    const size_t value = equals == argument.npos ? 0 : equals + 1;
    std::string path = argument.substr(value);
    leave_out_folders(path, secrets);
    argument.replace(value, argument.npos, path);
  }
}

void leave_out_folders(RunConfig& config, Secrets& secrets) {
  for (auto* path : {&config.output, &config.plan_cache, &config.plans, &config.host_facts}) {
    if (*path) leave_out_folders(**path, secrets);
  }
}

void take(Secrets& secrets, Maybe<std::string>& value) {
  if (!value) return;
  secrets.emplace(*value, left_out_name);
  value = left_out;
}

void clear(Environment& environment, Secrets& secrets) {
  secrets.emplace(environment.host_name, left_out_name);
  environment.host_name = left_out_name;
  take(secrets, environment.boot_id);
  for (Gpu& gpu : environment.gpus) {
    take(secrets, gpu.uuid);
    take(secrets, gpu.serial);
    for (MigInstance& instance : gpu.mig_instances) take(secrets, instance.uuid);
  }
  for (auto& [name, value] : environment.variables) {
    // Addresses of Open MPI's daemons, and GPUs that this process was given by name.
    const bool names_somebody = value.find("://") != value.npos ||
                                value.find("GPU-") != value.npos ||
                                value.find("MIG-") != value.npos;
    if (names_somebody) value = left_out_name;
    leave_out_folders(value, secrets);
  }
  for (auto& [name, value] : environment.host_facts) {
    for (const char* word : {"name", "uuid", "serial", "address"}) {
      if (name.find(word) != name.npos) value = left_out_name;
    }
  }
}

}  // namespace

bool may_record_variable(std::string_view name) {
  constexpr std::array prefixes = {"NCCL_",     "CUDA_", "NVIDIA_", "CUDNN_", "OMP_",
                                   "OMPI_MCA_", "UCX_",  "DNNL_",   "ONEDNN_"};
  return std::ranges::any_of(prefixes,
                             [&](const char* prefix) { return name.starts_with(prefix); });
}

Environment find_environment(const fs::path& root, const SystemQueries& queries) {
  Environment found;
  utsname system{};
  uname(&system);
  found.host_name = system.nodename;
  found.boot_id = first_line(root / "proc/sys/kernel/random/boot_id");
  found.kernel = std::string(system.sysname) + " " + system.release;
  found.architecture = system.machine;
  found.distribution = value_in(root / "etc/os-release", "PRETTY_NAME", '=');
  found.cpu_model = value_in(root / "proc/cpuinfo", "model name", ':');
  found.logical_cpus = std::max(1L, sysconf(_SC_NPROCESSORS_ONLN));
  found.usable_cpus = usable_cpus(found.logical_cpus);
  const fs::path group = control_group(root);
  found.cpu_quota = cpu_quota(group);
  found.memory_bytes = memory_line(root, "MemTotal", 1024);
  found.memory_limit_bytes = memory_limit(group);
  found.hypervisor_cpu_flag = hypervisor_flag(root);
  found.virtualisation = find_virtualisation(root, queries, found.hypervisor_cpu_flag);
  found.processor = find_processor(root);
  found.limits = find_limits(root);
  found.network = find_network(root);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t at = text.find('=');
    if (at != text.npos && may_record_variable(std::string_view(text).substr(0, at))) {
      found.variables[text.substr(0, at)] = text.substr(at + 1);
    }
  }
  const char* preload = std::getenv("LD_PRELOAD");
  found.ld_preload = preload != nullptr && preload[0] != '\0';
  return found;
}

std::map<std::string, std::string> read_host_facts(const std::filesystem::path& path) {
  try {
    return host_facts_from_json(file_text(path));
  } catch (const InvalidReport& error) {
    throw std::invalid_argument("--host-facts " + path.string() + ": " + error.what());
  }
}

void leave_out_host_info(Report& report) {
  Secrets secrets;
  leave_out_folders(report.invocation, secrets);
  leave_out_folders(report.invocation.config, secrets);
  for (Arm& arm : report.arms) {
    if (arm.config) leave_out_folders(*arm.config, secrets);
  }
  for (Environment& environment : report.environments) clear(environment, secrets);
  const auto clean = [&](std::string& text) {
    for (const auto& [secret, told] : secrets) {
      if (!secret.empty()) text = replaced(text, secret, told);
    }
  };
  for (std::string& argument : report.invocation.argv) clean(argument);
  for (Environment& environment : report.environments) {
    for (auto& [name, value] : environment.variables) clean(value);
    for (auto& [name, value] : environment.host_facts) clean(value);
  }
  for (Arm& arm : report.arms) {
    for (Run& run : arm.runs) {
      if (run.failure) clean(*run.failure);
      for (Warning& warning : run.warnings) clean(warning.text);
    }
  }
}

}  // namespace nearmetal
