#include "bench/environment/environment.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "bench/environment/rdma.h"
#include "bench/environment/system_files.h"
#include "models/errors.h"
#include "reports/files/sha256.h"
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

// The control group of version 2: the folder of this process below their mount, for a container
// usually the root of what it sees.
fs::path control_group(const fs::path& root) {
  const Maybe<std::string> group = value_in(root / "proc/self/cgroup", "0", ':');
  fs::path mount = root / "sys/fs/cgroup";
  if (!group) return mount;
  const fs::path own = mount / fs::path(group->substr(group->find('/') + 1));
  return fs::exists(own / "cgroup.controllers") ? own : mount;
}

// In version 1, each controller has groups and a mount of its own; a container sees its group
// there, whatever the path is outside.
fs::path control_group_of(const std::string& controller, const std::string& limit,
                          const fs::path& root) {
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // 4:cpu,cpuacct:/docker/abc
    std::istringstream fields(line);
    std::string number, controllers, path;
    std::getline(std::getline(std::getline(fields, number, ':'), controllers, ':'), path);
    if (("," + controllers + ",").find("," + controller + ",") == controllers.npos) continue;
    for (const std::string& mount : {controllers, controller}) {
      const fs::path all = root / "sys/fs/cgroup" / mount;
      for (const fs::path& group : {all / fs::path(path).relative_path(), all}) {
        if (fs::exists(group / limit)) return group;
      }
    }
  }
  return {};
}

Maybe<double> quota_of(const Maybe<std::string>& quota, const Maybe<std::string>& period) {
  const double microseconds = quota ? std::strtod(quota->c_str(), nullptr) : 0;
  const double in = period ? std::strtod(period->c_str(), nullptr) : 0;
  if (microseconds <= 0 || in <= 0) return Unknown{no_limit};
  return microseconds / in;
}

// A group is held to the limits of all groups above it, as far as they are seen, too.
template <class T, class Read>
void take_least(fs::path group, const fs::path& root, const Read& limit_in, Maybe<T>& least) {
  const fs::path mount = root / "sys/fs/cgroup";
  for (; group.string().starts_with(mount.string()); group = group.parent_path()) {
    const std::optional<Maybe<T>> limit = limit_in(group);
    if (!limit) continue;  // the group has none of its own
    if (!least || (*limit && **limit < *least)) least = *limit;
  }
}

std::optional<Maybe<double>> cpu_quota_in(const fs::path& group) {
  const auto line = first_line(group / "cpu.max");
  if (!line) return std::nullopt;
  const size_t space = line->find(' ');
  if (space == line->npos) return Unknown{no_limit};
  return quota_of(line->substr(0, space), line->substr(space + 1));
}

std::optional<Maybe<double>> older_cpu_quota_in(const fs::path& group) {
  const auto quota = first_line(group / "cpu.cfs_quota_us");
  if (!quota) return std::nullopt;
  return quota_of(quota, first_line(group / "cpu.cfs_period_us"));
}

Maybe<double> cpu_quota(const fs::path& group, const fs::path& root) {
  Maybe<double> least = Unknown{(group / "cpu.max").string() + " cannot be read"};
  take_least(group, root, cpu_quota_in, least);
  const fs::path older = control_group_of("cpu", "cpu.cfs_quota_us", root);
  if (!older.empty()) take_least(older, root, older_cpu_quota_in, least);
  return least;
}

Maybe<int64_t> memory_limit(const fs::path& group, const fs::path& root) {
  constexpr int64_t largest = int64_t{1} << 60;  // version 1 has the largest whole pages for none
  const auto limit_of_file = [](const char* file) {
    return [file](const fs::path& folder) -> std::optional<Maybe<int64_t>> {
      const auto line = first_line(folder / file);
      if (!line) return std::nullopt;
      const int64_t bytes = *line == "max" ? largest : std::strtoll(line->c_str(), nullptr, 10);
      return bytes < largest ? Maybe<int64_t>(bytes) : Unknown{no_limit};
    };
  };
  Maybe<int64_t> least = Unknown{(group / "memory.max").string() + " cannot be read"};
  take_least(group, root, limit_of_file("memory.max"), least);
  const fs::path older = control_group_of("memory", "memory.limit_in_bytes", root);
  if (!older.empty()) take_least(older, root, limit_of_file("memory.limit_in_bytes"), least);
  return least;
}

// A setting as NCCL reads it (src/misc/param.cc): the variable, else the user's file, else that of
// the machine. Empty: none sets it.
std::string nccl_setting(const char* name, const fs::path& root, const SystemQueries& queries) {
  if (std::string value = queries.variable(name); !value.empty()) return value;
  fs::path of_user = queries.variable("NCCL_CONF_FILE");
  if (of_user.empty()) of_user = fs::path(queries.variable("HOME")) / ".nccl.conf";
  for (const fs::path& file : {of_user, fs::path("/etc/nccl.conf")}) {
    if (const auto found = value_in(root / file.relative_path(), name, '=').value) return *found;
  }
  return {};
}

// The file that NCCL looks for (src/graph/topo.cc): what its setting names, else the file that a
// hypervisor's NVIDIA Topology Daemon gives its guests.
Maybe<std::string> nccl_topology_file(const fs::path& root, const SystemQueries& queries) {
  const std::string of_guests = "/var/run/nvidia-topologyd/virtualTopology.xml";
  const std::string named = nccl_setting("NCCL_TOPO_FILE", root, queries);
  std::string file = named.empty() ? of_guests : named;
  std::error_code ignored;
  if (fs::exists(root / fs::path(file).relative_path(), ignored)) return file;
  if (!named.empty()) return Unknown{"NCCL_TOPO_FILE names " + named + ", which is not there"};
  return Unknown{"NCCL_TOPO_FILE is not set, and " + of_guests + " is not there"};
}

int64_t usable_cpus(int64_t logical_cpus) {
  cpu_set_t mask;
  return sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : logical_cpus;
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
  found.machine_id = first_line(root / "etc/machine-id");
  // Who knows it could ask other software for the same machine; man 5 machine-id.
  if (found.machine_id) found.machine_id = sha256("nearmetal " + *found.machine_id);
  found.kernel = std::string(system.sysname) + " " + system.release;
  found.architecture = system.machine;
  found.distribution = value_in(root / "etc/os-release", "PRETTY_NAME", '=');
  found.cpu_model = value_in(root / "proc/cpuinfo", "model name", ':');
  found.logical_cpus = std::max(1L, sysconf(_SC_NPROCESSORS_ONLN));
  found.usable_cpus = usable_cpus(found.logical_cpus);
  const fs::path group = control_group(root);
  found.cpu_quota = cpu_quota(group, root);
  found.memory_bytes = memory_line(root, "MemTotal", 1024);
  found.memory_limit_bytes = memory_limit(group, root);
  found.hypervisor_cpu_flag = hypervisor_flag(root);
  found.virtualisation = find_virtualisation(root, queries, found.hypervisor_cpu_flag);
  found.processor = find_processor(root);
  found.limits = find_limits(root);
  found.network = find_network(root);
  found.rdma = find_rdma(root);
  found.nccl_topology_file = nccl_topology_file(root, queries);
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

}  // namespace nearmetal
