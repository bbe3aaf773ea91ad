#include "bench/sweep/hosts_found.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <numeric>
#include <set>
#include <sstream>
#include <stdexcept>

#include "base/errors.h"
#include "base/file_kind.h"
#include "base/pattern.h"
#include "base/text.h"
#include "bench/cli/parse_value.h"
#include "bench/environment/system_files.h"
#include "bench/run/prepare_device.h"
#include "comm/layout/shell_text.h"
#include "comm/world.h"
#include "reports/json/report_files.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

constexpr size_t most_hosts = 4096;
constexpr int64_t most_gpus = 1024;
constexpr const char* no_host_name = "' is no name of a host";
constexpr size_t longest_entry = 1000;  // of a list or a hostfile: what a pattern is tried on

struct ListedGpu {
  std::string pci_id;
  std::string model;
};

// GPUs that the driver lists, in the order of the PCI bus, if their device nodes are here: those of
// a host that a container does not get have none.
std::vector<ListedGpu> listed_gpus(const fs::path& root) {
  std::vector<ListedGpu> gpus;
  const fs::path folder = root / "proc/driver/nvidia/gpus";
  for (const std::string& pci_id : names_in(folder)) {
    const fs::path information = folder / pci_id / "information";
    const Maybe<std::string> minor = value_in(information, "Device Minor", ':');
    if (!minor || !is_there(root / "dev" / ("nvidia" + *minor))) continue;
    gpus.push_back({pci_id, value_in(information, "Model", ':').value.value_or("")});
  }
  return gpus;
}

// CUDA counts the fastest first unless told otherwise, which is another order only where they
// differ.
bool counted_by_bus(const std::vector<ListedGpu>& gpus) {
  const char* order = std::getenv("CUDA_DEVICE_ORDER");
  if (order != nullptr && std::string(order) == "PCI_BUS_ID") return true;
  return std::ranges::all_of(gpus,
                             [&](const ListedGpu& gpu) { return gpu.model == gpus.front().model; });
}

std::vector<int64_t> cpus_next_to(const fs::path& root, const std::string& pci_id,
                                  const std::vector<int64_t>& usable) {
  const auto text = first_line(root / "sys/bus/pci/devices" / pci_id / "local_cpulist");
  std::vector<int64_t> near;
  try {
    const std::vector<int64_t> all = parse_cpu_list(text.value.value_or(""));
    std::set_intersection(all.begin(), all.end(), usable.begin(), usable.end(),
                          std::back_inserter(near));
  } catch (const std::invalid_argument&) {  // not known: no NUMA, or a VM without
  }
  return near;
}

// The GPU whose UUID begins so: as much of it as tells GPUs apart will do, for CUDA, too.
int64_t gpu_of_uuid(const std::string& beginning, const std::vector<ListedGpu>& gpus,
                    const std::string& nvml_library) {
  const Nvml nvml(nvml_library);
  std::vector<int64_t> found;
  for (size_t i = 0; i < gpus.size(); ++i) {
    const Maybe<NvmlDevice> device = nvml.device_at(gpus[i].pci_id);
    if (!device) continue;
    const Maybe<std::string> uuid = nvml.text("nvmlDeviceGetUUID", *device);
    if (uuid && uuid->starts_with(beginning)) found.push_back(static_cast<int64_t>(i));
  }
  if (found.size() == 1) return found.front();
  throw std::invalid_argument("the UUIDs of " + std::to_string(found.size()) + " of the " +
                              counted(std::ssize(gpus), "GPU") + " here begin with " + beginning);
}

// Without a list, or GPUs, nothing. -1 hides those behind it, as CUDA does.
std::optional<std::vector<int64_t>> visible_gpus(const char* list,
                                                 const std::vector<ListedGpu>& gpus,
                                                 const std::string& nvml_library) {
  if (list == nullptr || gpus.empty()) return std::nullopt;
  const std::string given = "CUDA_VISIBLE_DEVICES is '" + std::string(list) + "', and ";
  std::set<int64_t> visible;
  bool by_index = false;
  for (const std::string& entry : split(list, ",")) {
    if (entry.empty() || entry == "-1") break;
    const double last = static_cast<double>(gpus.size()) - 1;
    try {
      const bool by_uuid = entry.starts_with("GPU-");
      by_index = by_index || !by_uuid;
      visible.insert(by_uuid ? gpu_of_uuid(entry, gpus, nvml_library)
                             : parse_number<int64_t>(entry, entry, {0, last}));
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(
          given + "a sweep takes GPUs by UUID or by index, here 0 to " +
          std::to_string(gpus.size() - 1) + ": " + error.what() +
          "; give those, or list jobs with their GPUs or MIG devices in a layout file");
    } catch (const NvmlDown& error) {
      throw std::invalid_argument(given + "NVML does not tell whose UUID that is: " + error.what() +
                                  "; give GPUs by index");
    }
  }
  if (!by_index || counted_by_bus(gpus)) return std::vector(visible.begin(), visible.end());
  throw std::invalid_argument(given +
                              "a sweep counts in the order of the PCI bus, which here may " +
                              "be another, as GPUs differ; set CUDA_DEVICE_ORDER=PCI_BUS_ID, too");
}

void require_few(size_t hosts) {
  if (hosts <= most_hosts) return;
  throw std::invalid_argument("--hosts: more than " + std::to_string(most_hosts) + " hosts");
}

// "10.0.0.4", "user@10.0.0.4".
Host host_of(const std::string& text, const std::string& gpus) {
  const size_t at = text.find('@');
  Host host;
  host.name = text.substr(at == text.npos ? 0 : at + 1);
  if (at != text.npos) host.user = text.substr(0, at);
  if (!is_host_name(host.name) || (host.user && !is_host_name(*host.user))) {
    const bool like_ipv6 = host.name.find(':') != host.name.npos;
    throw std::invalid_argument(
        "--hosts: '" + text + no_host_name +
        (like_ipv6 ? "; mpirun takes no IPv6 addresses behind --host" : ""));
  }
  host.gpus = parse_number<int64_t>("--hosts: the GPUs of '" + text + "'", gpus,
                                    {0, static_cast<double>(most_gpus)});
  return host;
}

// "gpu[01-08,10]", as Slurm writes nodes whose names differ in a number: gpu01 to gpu08 and gpu10.
std::vector<std::string> expanded(const std::string& text) {
  static const Pattern nodes(R"(([^\[]+)\[([^\]]*)\](.*))");
  static const Pattern range("([0-9]{1,9})(?:-([0-9]{1,9}))?");
  const auto parts = nodes.groups_of(text);
  if (parts.empty()) return {text};
  std::vector<std::string> names;
  for (const std::string& numbers : split(parts[2], ",")) {
    const std::vector<std::string> bounds = range.groups_of(numbers);
    if (bounds.empty()) {
      throw std::invalid_argument("--hosts: '" + text + "' must be as gpu[01-08,10]");
    }
    const int64_t last = std::stoll(bounds[bounds[2].empty() ? 1 : 2]);
    for (int64_t i = std::stoll(bounds[1]); i <= last; ++i) {
      std::string digits = std::to_string(i);
      while (digits.size() < bounds[1].size()) digits.insert(0, "0");
      for (const std::string& rest : expanded(parts[3])) names.push_back(parts[1] + digits + rest);
      require_few(names.size());
    }
  }
  return names;
}

// Hosts as mpirun reads them, a line each: "NAME slots=8" (orte/util/hostfile/hostfile_lex.l of
// Open MPI has the words), "NAME:8", and a name alone for each slot, as in the PBS_NODEFILE of PBS.
// Lines of one name add; of names that are there alone and once nobody can tell how many GPUs they
// have.
std::vector<Host> hosts_of_lines(std::istream& lines, const std::string& source, bool is_list) {
  static const Pattern words(
      R"(\s*(\S*?[^\s:])(?::([^\s:]*))?((?:\s+(?:(?:max[-_])?(?:slots|cpu|count)(?:[-_]max)?|)"
      R"(boards|(?:sockets|cores)\S*?)\s*=\s*[0-9]+)*)\s*)");
  static const Pattern slots(R"(\s(?:slots|cpu|count)\s*=\s*([0-9]+))");
  std::vector<Host> hosts;
  std::string untold;
  bool any_told = false, any_again = false;
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string place = "line " + std::to_string(++number) + " of " + source;
    line.resize(std::min({line.size(), longest_entry, line.find('#'), line.find("//")}));
    if (line.find_first_not_of(" \t\r\f\v") == line.npos && !is_list) continue;
    const auto parts = words.groups_of(line);
    if (parts.empty()) {
      throw std::invalid_argument("--hosts: " +
                                  (is_list ? "'" + line.substr(0, line.rfind(':')) + no_host_name
                                           : place + " must be NAME slots=GPUS"));
    }
    const auto told = slots.groups_in(parts[3]);
    const std::string count = told.empty() ? parts[2] : told[1];
    if (count.empty() && untold.empty()) {
      const std::string missing = "'" + parts[1] + "' does not say how many GPUs";
      untold = is_list ? missing + ", as in " + parts[1] + ":4"
                       : place + " must be NAME slots=GPUS: " + missing;
    }
    any_told = any_told || !count.empty();
    for (const std::string& name : expanded(parts[1])) {
      const Host host = host_of(name, count.empty() ? "1" : count);
      const auto known = std::ranges::find(hosts, host.name, &Host::name);
      const bool again = known != hosts.end() && !is_list;
      any_again = any_again || again;
      again ? void(known->gpus += host.gpus) : void(hosts.push_back(host));
    }
  }
  if (untold.empty() || (any_again && !any_told)) return hosts;
  throw std::invalid_argument("--hosts: " + untold);
}

std::vector<Host> hosts_of_list(const std::string& list) {
  std::string lines = list;
  bool in_brackets = false;
  for (char& c : lines) {
    in_brackets = c == '[' || (in_brackets && c != ']');
    if (c == ',' && !in_brackets) c = '\n';
  }
  std::istringstream entries(lines);
  return hosts_of_lines(entries, list, true);
}

std::vector<Host> unnamed_hosts(const std::string& argument) {
  const size_t star = argument.find('*');
  const auto count = parse_number<int64_t>("--hosts: the number of hosts", argument.substr(0, star),
                                           {1, static_cast<double>(most_hosts)});
  std::vector<Host> hosts;
  for (int64_t i = 0; i < count; ++i) {
    hosts.push_back(host_of("node" + std::to_string(i), argument.substr(star + 1)));
    hosts.back().address = node_variable(i);
  }
  return hosts;
}

std::vector<Host> hosts_of_file(const std::string& path) {
  std::ifstream file;
  if (is_path(path)) file.open(path);
  if (!file.is_open() || fs::is_directory(path)) {
    const std::string hint = is_path(path) ? "" : file_of_that_name(path);
    throw std::invalid_argument("--hosts: '" + path + "' is no " +
                                (hint.empty() ? "file" : "list") +
                                "; a list has GPUs after each name, as in vm0:2,vm1:2" + hint);
  }
  try {
    return hosts_of_lines(file, path, false);
  } catch (const std::invalid_argument&) {
    const std::string other = other_kind(" slots=", file_text(path));
    if (other.empty()) throw;
    throw std::invalid_argument("--hosts: " + path + ": " + other);
  }
}

GpuPlace place_of(const Gpu& gpu, const std::vector<Gpu>& gpus) {
  GpuPlace place;
  for (const GpuPeer& peer : gpu.peers) {
    const auto other =
        std::ranges::find_if(gpus, [&](const Gpu& one) { return one.pci_id.value == peer.pci_id; });
    if (peer.nvlink.value == true && other != gpus.end()) {
      place.nvlinks.push_back(other - gpus.begin());
    }
  }
  for (const NicPath& path : gpu.nics) {
    if (!path.distance || (place.nearest_nic && *place.nearest_nic <= *path.distance)) continue;
    place.nearest_nic = *path.distance;
    place.nic = path.rdma_device;
  }
  return place;
}

std::optional<std::string> no_mig_of(const Gpu& gpu) {
  if (gpu.vgpu_profile) return "it is a vGPU, which the host of its VM divides";
  if (!gpu.mig) return "the GPU has no MIG (" + gpu.mig.reason + ")";
  if (!*gpu.mig) return mig_is_off;
  return std::nullopt;
}

}  // namespace

Host this_machine(const fs::path& root, const char* visible, const std::string& nvml_library) {
  const std::vector<int64_t> usable = usable_cpus();
  Host host;
  host.name = "localhost";
  const std::vector<ListedGpu> listed = listed_gpus(root);
  host.visible_gpus = visible_gpus(visible, listed, nvml_library);
  const bool hidden = host.visible_gpus && host.visible_gpus->empty();
  std::map<std::vector<int64_t>, std::vector<int64_t>> gpus_by_cpus;
  for (size_t i = 0; !hidden && i < listed.size(); ++i) {
    gpus_by_cpus[cpus_next_to(root, listed[i].pci_id, usable)].push_back(host.gpus++);
  }
  if (gpus_by_cpus.contains({})) {
    std::vector<int64_t> all(host.gpus);
    std::iota(all.begin(), all.end(), 0);
    gpus_by_cpus = {{usable, all}};
  }
  for (const auto& [cpus, gpus] : gpus_by_cpus) host.numa.push_back({to_cpu_list(cpus), gpus});
  if (host.gpus > 0) return host;
  const auto [device, reason] = choose_device(Device::automatic, root);
  if (device == Device::cuda && !hidden) {
    throw std::invalid_argument(reason +
                                ", but the driver does not list its GPUs; say how many there are: "
                                "--hosts localhost:N");
  }
  if (!usable.empty()) host.cpus = to_cpu_list(usable);
  return host;
}

Host this_machine_for(const std::vector<Layout>& layouts, const fs::path& root,
                      const char* visible) {
  bool named = false;
  for (const Layout& layout : layouts) {
    for (const Job& job : layout.jobs) {
      for (const Instance& instance : job.instances) named = named || !instance.gpus.empty();
    }
  }
  return this_machine(root, named ? nullptr : visible);
}

std::vector<std::string> gpu_models(const fs::path& root) {
  return transformed(listed_gpus(root), &ListedGpu::model);
}

bool is_this_machine(const std::string& address) {
  return address == "localhost" || address == host_name();
}

std::vector<Host> hosts_from(const std::string& argument) {
  const bool named = argument.find('/') == std::string::npos;
  const bool list = named && (argument.find(':') != argument.npos || argument.ends_with(']'));
  const bool unnamed = named && argument.find('*') != std::string::npos;
  std::vector<Host> hosts = list      ? hosts_of_list(argument)
                            : unnamed ? unnamed_hosts(argument)
                                      : hosts_of_file(argument);
  if (hosts.empty()) throw std::invalid_argument("--hosts: there is no host in '" + argument + "'");
  require_few(hosts.size());
  return hosts;
}

bool are_unnamed(const std::vector<Host>& hosts) {
  return std::ranges::any_of(hosts,
                             [](const Host& host) { return !is_host_name(address_of(host)); });
}

std::vector<Gpu> gpus_by_bus(const std::string& nvml_library) {
  std::vector<Gpu> gpus = all_gpus(Nvml(nvml_library), "/");
  std::erase_if(gpus, [](const Gpu& gpu) { return gpu.lost.has_value(); });
  std::ranges::stable_sort(gpus, {}, [](const Gpu& gpu) { return gpu.pci_id.value; });
  return gpus;
}

Host with_mig_devices(Host host, const std::string& nvml_library) {
  if (!is_this_machine(address_of(host)) || host.gpus == 0) return host;
  host.mig.clear();
  host.found.clear();
  try {
    const std::vector<Gpu> gpus = gpus_by_bus(nvml_library);
    for (int64_t i = 0; i < std::min<int64_t>(host.gpus, std::ssize(gpus)); ++i) {
      host.found.push_back({gpus[i].name, no_mig_of(gpus[i])});
      for (const MigInstance& instance : gpus[i].mig_instances) {
        if (!instance.uuid) continue;
        host.mig.push_back({i, *instance.uuid, instance.profile.value.value_or("")});
      }
    }
    host.found.resize(host.gpus, {"", "the driver does not list this GPU"});
  } catch (const NotSupported& error) {
    host.found.assign(host.gpus, {"", error.what()});
  }
  return host;
}

Host with_gpu_places(Host host, const std::string& nvml_library) {
  if (!is_this_machine(address_of(host)) || host.gpus < 2) return host;
  try {
    const std::vector<Gpu> gpus = gpus_by_bus(nvml_library);
    host.places = transformed(gpus, [&](const Gpu& gpu) { return place_of(gpu, gpus); });
  } catch (const NotSupported&) {  // a job takes the first
  }
  return host;
}

}  // namespace nearmetal
