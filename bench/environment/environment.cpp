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
#include "models/control_groups.h"
#include "models/errors.h"
#include "reports/files/sha256.h"
#include "reports/json/json.h"
#include "reports/json/report_files.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

Maybe<bool> hypervisor_flag(const fs::path& root) {
  const Maybe<std::string> flags = value_in(root / "proc/cpuinfo", "flags", ':');
  if (!flags) return Unknown{flags.reason};
  return (" " + *flags + " ").find(" hypervisor ") != std::string::npos;
}

// A limit of the control groups, of which some tell.
template <class T>
Maybe<T> limit_of(const std::optional<T>& limit, bool told) {
  if (limit) return *limit;
  return Unknown{told ? no_limit : "no control group could be read"};
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
  const GroupLimits limits = group_limits(root);
  found.cpu_quota = limit_of(limits.cpus, limits.tells_cpus);
  found.memory_bytes = memory_line(root, "MemTotal", 1024);
  found.memory_limit_bytes = limit_of(limits.memory_bytes, limits.tells_memory);
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
