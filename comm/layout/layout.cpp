#include "comm/layout/layout.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <numeric>
#include <set>
#include <stdexcept>

#include "base/pattern.h"
#include "base/text.h"
#include "comm/layout/gpu_profiles.h"

namespace nearmetal {
namespace {

// A variable's name has letters, digits and '_', the first no digit, at most 200.
bool is_variable_name(const std::string& text) {
  static const Pattern form("[A-Za-z_][A-Za-z0-9_]{0,199}");
  return text.size() <= 200 && form.matches(text);
}

constexpr int64_t largest_cpu = 65535;

[[noreturn]] void refuse_cpus(const std::string& text) {
  throw std::invalid_argument("a list of CPUs such as 0-3,8, each once, not '" + text + "'");
}

// One number at the start of `rest`, which moves on behind it.
int64_t take_number(const std::string& text, std::string_view& rest) {
  int64_t number = -1;
  const auto [stop, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (error != std::errc() || number < 0 || number > largest_cpu || rest.front() == '-') {
    refuse_cpus(text);
  }
  rest.remove_prefix(stop - rest.data());
  return number;
}

void require_gpu(const Host& host, int64_t gpu, const std::string& place) {
  if (gpu < host.gpus) return;
  refuse(place, "there is no GPU " + std::to_string(gpu) + ": the host has " +
                    std::to_string(host.gpus) + ", from 0");
}

void check_numa(const Host& host, const std::string& place) {
  if (host.cpus && !host.numa.empty()) {
    refuse(place + "/cpus", "the NUMA nodes of the host already say which CPUs; leave it out");
  }
  std::set<int64_t> cpus, gpus;
  for (size_t i = 0; i < host.numa.size(); ++i) {
    const std::string node = place + "/numa/" + std::to_string(i);
    for (const int64_t cpu : parse_cpu_list(host.numa[i].cpus)) {
      if (cpus.insert(cpu).second) continue;
      refuse(node + "/cpus", "CPU " + std::to_string(cpu) + " is in another NUMA node, too");
    }
    for (const int64_t gpu : host.numa[i].gpus) {
      require_gpu(host, gpu, node + "/gpus");
      if (gpus.insert(gpu).second) continue;
      refuse(node + "/gpus", "GPU " + std::to_string(gpu) + " is there twice");
    }
  }
  if (!host.numa.empty() && static_cast<int64_t>(gpus.size()) != host.gpus) {
    refuse(place + "/numa",
           "each of the " + std::to_string(host.gpus) + " GPUs must be in one of the NUMA nodes");
  }
}

void check_mig(const Host& host, const std::string& place) {
  std::set<std::string> uuids;
  for (size_t i = 0; i < host.mig.size(); ++i) {
    const std::string device = place + "/mig/" + std::to_string(i);
    require_gpu(host, host.mig[i].gpu, device + "/gpu");
    if (!uuids.insert(host.mig[i].uuid).second) refuse(device + "/uuid", "it is there twice");
  }
}

void check_hosts(const std::vector<Host>& hosts) {
  std::set<std::string> names, addresses;
  for (size_t i = 0; i < hosts.size(); ++i) {
    const std::string place = "/hosts/" + std::to_string(i);
    if (!names.insert(hosts[i].name).second) {
      refuse(place + "/name", "there is another host '" + hosts[i].name + "'");
    }
    if (!addresses.insert(address_of(hosts[i])).second) {
      refuse(place + "/address", "another host has '" + address_of(hosts[i]) + "', too");
    }
    check_numa(hosts[i], place);
    check_mig(hosts[i], place);
  }
}

void check_variables(const std::map<std::string, std::string>& variables) {
  for (const auto& [name, value] : variables) {
    if (!is_variable_name(name)) {
      refuse("/launcher/variables", "'" + name + "' is no name of a variable");
    }
    if (!value.empty() && !is_plain_text("x" + value)) {
      refuse("/launcher/variables/" + name, "a text without control characters is needed");
    }
  }
}

void check_device_share(const Job& job, const std::string& place) {
  const Share& share = *job.share;
  const bool mig = share.mode == SharingMode::mig, vgpu = share.mode == SharingMode::vgpu;
  if (share.profile && !mig && !vgpu) refuse(place + "/profile", "only mig and vgpu have profiles");
  if (share.instance && !mig) refuse(place + "/instance", "only mig has instances");
  if (share.instance && share.profile) {
    refuse(place, "an instance has the profile that it has: give one of them");
  }
  if (mig && share.profile && !is_mig_profile(*share.profile)) {
    refuse(place + "/profile", "it is no MIG profile, such as 1g.18gb");
  }
  if (vgpu && (!share.profile || !parse_vgpu_profile(*share.profile))) {
    refuse(place + "/profile", "vgpu needs that of the vGPU, such as A100-40C or A100-3-20C");
  }
  if (!has_own_device(share.mode)) return;
  size_t gpus = 0;
  for (const Instance& instance : job.instances) {
    gpus += instance.gpus.size();
    if (instance.ranks > 0)
      refuse(place, std::string(to_string(share.mode)) + " is of GPUs, and the ranks are on CPUs");
  }
  if (share.instance && gpus > 1) refuse(place + "/instance", "one instance is for one rank");
}

// Whether its host decides what it takes.
bool is_open(const Instance& instance) { return instance.gpus.empty() && instance.ranks == 0; }

size_t ranks_of(const Job& job) {
  size_t ranks = 0;
  for (const Instance& instance : job.instances) {
    ranks += is_open(instance) ? 1 : instance.gpus.size() + static_cast<size_t>(instance.ranks);
  }
  return ranks;
}

void check_share(const Layout& layout, const Job& job, const std::string& place) {
  const std::optional<Share>& first = layout.jobs.front().share;
  if (job.share.has_value() != first.has_value() || (first && job.share->mode != first->mode)) {
    refuse(place, "the jobs of a layout share in one way, or none of them does");
  }
  if (!job.share) return;
  if (layout.emulate) refuse(place, "a GPU that is shared cannot be in an emulated VM, too");
  if (job.share->mode == SharingMode::alone && layout.jobs.size() > 1) {
    refuse(place, "a job that is alone is the only one of its layout");
  }
  if (!through_mps(*job.share) && (job.share->threads_percent || job.share->memory_gib)) {
    refuse(place, "only mps and sm have limits of threads and memory");
  }
  check_device_share(job, place);
  if (job.share->mode != SharingMode::sm) return;
  if (!job.share->threads_percent)
    refuse(place, "sm needs a threads_percent: how large its part is");
  if (ranks_of(job) != 1) refuse(place, "a job with multiprocessors of its own is one rank");
}

// The parts of each GPU that the jobs so far take.
using Parts = std::map<std::pair<std::string, int64_t>, int64_t>;

void check_parts(const Job& job, Parts& percents, const std::string& place) {
  if (!job.share || job.share->mode != SharingMode::sm) return;
  for (const Instance& instance : job.instances) {
    for (const int64_t gpu : instance.gpus) {
      int64_t& sum = percents[{instance.host, gpu}];
      sum += *job.share->threads_percent;
      if (sum > 100) refuse(place, "the parts of GPU " + std::to_string(gpu) + " are more than it");
    }
  }
}

void check_stress(const Layout& layout, const Job& job, const std::string& place) {
  if (!job.stress) return;
  const bool at_once =
      job.share && job.share->mode != SharingMode::serial && job.share->mode != SharingMode::alone;
  if (!at_once) refuse(place, "a job that disturbs others shares with them, at once");
  if (ranks_of(job) != 1) refuse(place, "a job that disturbs others is one process");
  if (std::ranges::all_of(layout.jobs, [](const Job& other) { return other.stress.has_value(); })) {
    refuse(place, "there is no job that trains");
  }
  if (*job.stress == NeighbourLoad::pcie && job.instances[0].ranks > 0) {
    refuse(place, "without a GPU there is nothing to copy to");
  }
  for (const auto& [name, text] : job.workload.texts) {
    refuse(place, name == "stress" ? "the job says it beside its workload, too; give it once"
                                   : "a job that disturbs trains nothing; leave " + name + " out");
  }
}

void check_layout(const Layout& layout, const std::string& place) {
  if (layout.shape.has_value() == !layout.jobs.empty()) {
    refuse(place, "a layout has either a shape or jobs");
  }
  Parts parts;
  for (size_t j = 0; j < layout.jobs.size(); ++j) {
    const std::string job = place + "/jobs/" + std::to_string(j);
    const auto& instances = layout.jobs[j].instances;
    if (instances.empty()) refuse(job + "/instances", "a job needs at least one");
    check_share(layout, layout.jobs[j], job + "/share");
    check_parts(layout.jobs[j], parts, job + "/share/threads_percent");
    check_stress(layout, layout.jobs[j], job + "/workload/stress");
    for (size_t k = 0; k < instances.size(); ++k) {
      if (!instances[k].gpus.empty() && instances[k].ranks > 0) {
        refuse(job + "/instances/" + std::to_string(k),
               "it has either GPUs or, on CPUs, a number of ranks");
      }
    }
  }
}

// ADDRESS/BITS, the address as inet_pton takes it of that family.
bool is_address_prefix(const std::string& text, int family, int most_bits) {
  static const Pattern form("([0-9a-fA-F:.]{2,45})/(0|[1-9][0-9]{0,2})");
  constexpr size_t longest = 49;
  if (text.size() > longest) return false;
  const std::vector<std::string> parts = form.groups_of(text);
  in6_addr address{};
  return !parts.empty() && inet_pton(family, parts[1].c_str(), &address) == 1 &&
         std::stoi(parts[2]) <= most_bits;
}

}  // namespace

NM_DEFINE_SPECIAL_MEMBERS(Host);
NM_DEFINE_SPECIAL_MEMBERS(Layout);

void check(const LayoutFile& file) {
  check_hosts(file.hosts);
  check_variables(file.launcher.variables);
  const bool emulates = std::ranges::any_of(file.layouts, &Layout::emulate);
  for (const char* name : {"OMPI_MCA_pml", "UCX_TLS", "UCX_NET_DEVICES"}) {
    if (!file.launcher.mpi || !file.launcher.variables.contains(name)) continue;
    if (name[0] == 'U' && (!emulates || file.launcher.mpi != MpiTransport::ucx)) continue;
    refuse(std::string("/launcher/variables/") + name, "/launcher/mpi decides it");
  }
  std::set<std::string> names;
  for (size_t i = 0; i < file.layouts.size(); ++i) {
    const std::string place = "/layouts/" + std::to_string(i);
    if (!names.insert(file.layouts[i].name).second) {
      refuse(place + "/name", "two layouts have the name '" + file.layouts[i].name + "'");
    }
    check_layout(file.layouts[i], place);
  }
}

void refuse(const std::string& place, const std::string& reason) {
  throw std::invalid_argument(place + ": " + reason);
}

std::vector<Layout> fill_in_instances(std::vector<Layout> layouts, const std::vector<Host>& hosts) {
  for (Layout& layout : layouts) {
    layout.portable = !layout.jobs.empty();
    for (Job& job : layout.jobs) {
      for (Instance& instance : job.instances) {
        const bool open = is_open(instance);
        layout.portable = layout.portable && open;
        const auto host = std::ranges::find(hosts, instance.host, &Host::name);
        if (!open || host == hosts.end()) continue;
        if (visible_gpus_of(*host).empty()) {
          instance.ranks = 1;
        } else {
          instance.gpus = {first_gpu_of(*host)};
        }
      }
    }
  }
  return layouts;
}

size_t combinations_of(const Grid& grid) {
  size_t count = 1;
  for (const GridAxis& axis : grid.axes) {
    if (count <= 1'000'000) count *= axis.values.size();
  }
  return count;
}

std::string grid_text(const Grid& grid) {
  std::vector<std::string> axes;
  for (const GridAxis& axis : grid.axes) axes.push_back(axis.setting + " " + joined(axis.values));
  return joined(axes, " x ") + ": " +
         counted(static_cast<int64_t>(combinations_of(grid)), "combination");
}

std::vector<int64_t> visible_gpus_of(const Host& host) {
  if (host.visible_gpus) return *host.visible_gpus;
  std::vector<int64_t> all(host.gpus);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

int64_t first_gpu_of(const Host& host) {
  const std::vector<int64_t> gpus = visible_gpus_of(host);
  return gpus.empty() ? 0 : gpus.front();
}

std::vector<int64_t> cpus_of(const Host& host) {
  if (host.cpus) return parse_cpu_list(*host.cpus);
  std::vector<int64_t> cpus;
  for (const NumaNode& node : host.numa) append(cpus, parse_cpu_list(node.cpus));
  std::ranges::sort(cpus);
  return cpus;
}

const GpuFound& gpu_facts(const Host& host, int64_t gpu) {
  static const GpuFound unknown;
  return gpu < std::ssize(host.found) ? host.found[static_cast<size_t>(gpu)] : unknown;
}

const std::string& address_of(const Host& host) { return host.address ? *host.address : host.name; }
const std::string& node_of(const Host& host) { return host.node ? *host.node : host.name; }

bool is_host_name(const std::string& text) {
  static const Pattern form("[A-Za-z0-9][A-Za-z0-9._-]{0,252}");
  return text.size() <= 253 && form.matches(text);
}

bool is_plain_text(const std::string& text) {
  return !text.empty() && text.size() <= 1000 && text.front() != '-' &&
         std::ranges::none_of(
             text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

std::optional<int64_t> bits_per_second_of(const std::string& rate) {
  static const Pattern form(R"(([0-9]{1,4}(?:\.[0-9]{1,3})?)([MGT]))");
  const std::vector<std::string> parts = form.groups_of(rate);
  if (parts.empty()) return std::nullopt;
  const char unit = parts[2].front();
  const double factor = unit == 'M' ? 1e6 : unit == 'G' ? 1e9 : 1e12;
  const int64_t bits = std::llround(std::stod(parts[1]) * factor);
  return bits > 0 ? std::optional(bits) : std::nullopt;
}

std::string text_of(const LinkClaim& link) {
  return link.rate + (link.network ? "," + *link.network : "");
}

bool is_network(const std::string& text) { return is_address_prefix(text, AF_INET, 32); }

bool is_ipv6_network(const std::string& text) { return is_address_prefix(text, AF_INET6, 128); }

std::vector<int64_t> parse_cpu_list(const std::string& text) {
  std::vector<int64_t> cpus;
  std::string_view rest = text;
  do {
    if (!cpus.empty()) rest.remove_prefix(1);  // the comma
    if (rest.empty()) refuse_cpus(text);
    const int64_t first = take_number(text, rest);
    int64_t last = first;
    if (rest.starts_with('-')) {
      rest.remove_prefix(1);
      if (rest.empty()) refuse_cpus(text);
      last = take_number(text, rest);
    }
    if (last < first) refuse_cpus(text);
    for (int64_t cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (static_cast<int64_t>(cpus.size()) > largest_cpu + 1) refuse_cpus(text);  // before it grows
  } while (rest.starts_with(','));
  std::ranges::sort(cpus);
  if (!rest.empty() || std::ranges::adjacent_find(cpus) != cpus.end()) refuse_cpus(text);
  return cpus;
}

std::string to_cpu_list(const std::vector<int64_t>& cpus) {
  std::string text;
  for (size_t first = 0, last = 0; first < cpus.size(); first = last + 1) {
    last = first;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(cpus[first]);
    if (last > first) text += '-' + std::to_string(cpus[last]);
  }
  return text;
}

std::vector<int64_t> part_of(const std::vector<int64_t>& cpus, int64_t index, int64_t parts) {
  const auto size = static_cast<int64_t>(cpus.size());
  const auto start = [&](int64_t part) {
    return cpus.begin() + part * (size / parts) + std::min(part, size % parts);
  };
  return {start(index), start(index + 1)};
}

}  // namespace nearmetal
