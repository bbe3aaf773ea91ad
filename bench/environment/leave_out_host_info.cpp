#include "bench/environment/leave_out_host_info.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/pattern.h"
#include "base/text.h"
#include "reports/document/settings.h"
#include "reports/json/json.h"

namespace nearmetal {
namespace {

const Unknown left_out{"left out (--no-host-info)"};

// A text that is not to be reported, and the one that is reported instead.
struct Secret {
  Pattern pattern;
  std::string instead;
};

// Never within another word.
Secret secret_word(const std::string& pattern, const std::string& instead) {
  return {Pattern("(^|[^0-9a-z])" + pattern + "(?![0-9a-z])", Letters::of_any_case),
          "$01" + replaced(instead, "$", "$$")};
}

// With the domain that may be written behind it. As long as DNS allows for: std::regex takes stack
// for each character that it repeats.
Secret secret_host(const std::string& name) {
  return secret_word(pattern_of(name) + "(\\.[0-9a-z_-]{1,63}){0,8}", left_out_name);
}

std::vector<Secret> addresses() {
  const std::string mac = "[0-9a-f]{2}([:-][0-9a-f]{2}){5,19}";  // and GUIDs of InfiniBand
  const std::string named_by_mac = "enx[0-9a-f]{12}";
  const std::string ipv4 = "[0-9]{1,3}(\\.[0-9]{1,3}){3}(/[0-9]{1,2})?";
  const std::string group = "[0-9a-f]{1,4}";
  const std::string groups = group + "(:" + group + "){0,6}";
  const std::string ipv6 = "((" + group + ":){7}" + group + "|" + groups + "::(" + groups +
                           ")?|::" + groups + ")(/[0-9]{1,3})?";
  const std::string uuid = "((GPU|MIG)-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}";
  return transformed(
      std::array{mac, named_by_mac, ipv4, ipv6, uuid},
      [](const std::string& pattern) { return secret_word(pattern, left_out_name); });
}

class HostInfo {
 public:
  void add_host(const std::string& name) {
    const bool is_address =
        name.find_first_not_of("0123456789.") == name.npos && name.find('.') != name.npos;
    if (name == "localhost" || name == left_out_name || is_address) return;
    add_host_text(name);
    const size_t dot = name.find('.');
    if (dot == name.npos) return;
    add_host_text(name.substr(0, dot));
    add_host_text(name.substr(dot + 1));
  }

  void add_path(const std::string& path, const std::string& instead) {
    secrets_.push_back(
        {Pattern(pattern_of(path) + "(?![0-9A-Za-z])"), replaced(instead, "$", "$$")});
  }

  void take(Maybe<std::string>& value) {
    if (!value) return;
    if (!value->empty()) secrets_.push_back(secret_word(pattern_of(*value), left_out_name));
    value = left_out;
  }

  std::string cleaned(std::string text) const {
    for (const Secret& secret : secrets_) {
      text = secret.pattern.replaced_in(text, secret.instead);
    }
    return text;
  }

 private:
  void add_host_text(const std::string& text) {
    if (!text.empty() && hosts_.insert(text).second) secrets_.push_back(secret_host(text));
  }

  std::vector<Secret> secrets_ = addresses();
  std::set<std::string> hosts_;
};

// An absolute path becomes the name of the file: its folders have names of users and customers.
void leave_out_folders(std::string& path, HostInfo& secrets) {
  if (!path.starts_with('/')) return;
  const std::string name = std::filesystem::path(path).filename().string();
  if (!name.empty()) secrets.add_path(path, name);
  path = name.empty() ? left_out_name : name;
}

void leave_out_folders(Invocation& invocation, HostInfo& secrets) {
  for (std::string& argument : invocation.argv) {
    const size_t equals = argument.starts_with("--") ? argument.find('=') : argument.npos;
    const size_t value = equals == argument.npos ? 0 : equals + 1;
    std::string path = argument.substr(value);
    leave_out_folders(path, secrets);
    argument.replace(value, argument.npos, path);
  }
}

void leave_out_folders(RunConfig& config, HostInfo& secrets) {
  visit_settings(
      [&](const Setting&, auto& member) {
        if constexpr (requires { leave_out_folders(*member, secrets); }) {
          if (member) leave_out_folders(*member, secrets);
        }
      },
      config);
}

bool speaks_of(const std::string& name, std::initializer_list<const char*> subjects) {
  return std::ranges::any_of(subjects, [&](const char* subject) {
    return Pattern(subject, Letters::of_any_case).is_in(name);
  });
}

void leave_out(Environment& environment, HostInfo& secrets) {
  secrets.add_host(environment.host_name);
  environment.host_name = left_out_name;
  secrets.take(environment.boot_id);
  secrets.take(environment.machine_id);
  environment.storage.device = left_out;  // of a file server
  for (Gpu& gpu : environment.gpus) {
    secrets.take(gpu.uuid);
    secrets.take(gpu.serial);
    for (MigInstance& instance : gpu.mig_instances) secrets.take(instance.uuid);
  }
  for (RdmaDevice& device : environment.rdma) {
    for (RdmaPort& port : device.ports) {
      for (RdmaGid& gid : port.gids) secrets.take(gid.gid);
    }
  }
  if (environment.nccl_topology_file)
    leave_out_folders(*environment.nccl_topology_file.value, secrets);
  for (auto& [name, value] : environment.variables) {
    const bool of_launch =
        std::ranges::find(variables_of_a_launch, name) != variables_of_a_launch.end();
    const bool names_somebody = speaks_of(name, {"hostid", "node_regex", "uri"}) ||
                                speaks_of(value, {"://", "GPU-", "MIG-"});
    if (of_launch || names_somebody) value = left_out_name;
    leave_out_folders(value, secrets);
  }
  for (auto& [name, value] : environment.host_facts) {
    if (speaks_of(name, {"name", "uuid", "serial", "address"})) value = left_out_name;
  }
}

// Arms stay as many as they are.
void rename_arms(Report& report, const HostInfo& secrets) {
  std::map<std::string, std::string> renamed;
  std::map<std::string, int64_t> times;
  for (Arm& arm : report.arms) {
    std::string& name = renamed[arm.name];
    name = secrets.cleaned(arm.name);
    const int64_t time = ++times[name];
    if (time > 1) name += " (" + std::to_string(time) + ")";
    arm.name = name;
  }
  for (Arm& arm : report.arms) {
    if (arm.speedup) arm.speedup->against = renamed[arm.speedup->against];
  }
}

void rename_interfaces(RdmaDevice& device, const HostInfo& secrets) {
  for (std::string& name : device.interfaces) name = secrets.cleaned(name);
  for (RdmaPort& port : device.ports) {
    for (RdmaGid& gid : port.gids) {
      if (gid.interface) gid.interface = secrets.cleaned(*gid.interface);
    }
  }
}

void rename_facts(std::map<std::string, std::string>& facts, const HostInfo& secrets) {
  std::map<std::string, std::string> renamed;
  for (const auto& [name, value] : facts) renamed[secrets.cleaned(name)] = value;
  facts = std::move(renamed);
}

}  // namespace

void leave_out_host_info(Report& report, const std::vector<std::string>& host_names) {
  HostInfo secrets;
  for (const std::string& name : host_names) secrets.add_host(name);
  leave_out_folders(report.invocation, secrets);
  leave_out_folders(report.invocation.config, secrets);
  for (Arm& arm : report.arms) {
    if (arm.config) leave_out_folders(*arm.config, secrets);
    for (RunConfig& workload : arm.workloads) leave_out_folders(workload, secrets);
    if (arm.executable) leave_out_folders(arm.executable->path, secrets);
  }
  for (Environment& environment : report.environments) leave_out(environment, secrets);
  for (Environment& environment : report.environments) {
    for (NetworkInterface& network : environment.network) {
      network.name = secrets.cleaned(network.name);
    }
    for (RdmaDevice& device : environment.rdma) rename_interfaces(device, secrets);
    rename_facts(environment.host_facts, secrets);
  }
  rename_arms(report, secrets);
  change_free_texts(report, [&](const std::string& text) { return secrets.cleaned(text); });
}

}  // namespace nearmetal
