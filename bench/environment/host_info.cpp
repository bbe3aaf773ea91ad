#include <filesystem>
#include <map>

#include "bench/environment/environment.h"
#include "reports/json/host_facts_json.h"
#include "reports/json/json.h"

namespace nearmetal {
namespace {

const Unknown left_out{"left out (--no-host-info)"};

// What is told instead, by the text that is not to be told.
using Secrets = std::map<std::string, std::string>;

void replace_all(std::string& text, const std::string& secret, const std::string& told) {
  if (secret.empty()) return;
  for (size_t at = 0; (at = text.find(secret, at)) != text.npos; at += told.size()) {
    text.replace(at, secret.size(), told);
  }
}

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
    for (const auto& [secret, told] : secrets) replace_all(text, secret, told);
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
