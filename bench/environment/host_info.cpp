#include <set>

#include "bench/environment/environment.h"
#include "reports/host_facts_json.h"
#include "reports/json.h"

namespace nearmetal {
namespace {

const Unknown left_out{"left out (--no-host-info)"};

void replace_all(std::string& text, const std::string& secret) {
  if (secret.empty()) return;
  for (size_t at = 0; (at = text.find(secret, at)) != text.npos;) {
    text.replace(at, secret.size(), left_out_name);
    at += std::char_traits<char>::length(left_out_name);
  }
}

void take(std::set<std::string>& secrets, Maybe<std::string>& value) {
  if (!value) return;
  secrets.insert(*value);
  value = left_out;
}

void clear(Environment& environment, std::set<std::string>& secrets) {
  secrets.insert(environment.host_name);
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
  std::set<std::string> secrets;
  for (Environment& environment : report.environments) clear(environment, secrets);
  const auto clean = [&](std::string& text) {
    for (const std::string& secret : secrets) replace_all(text, secret);
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
