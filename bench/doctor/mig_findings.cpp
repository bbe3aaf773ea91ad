#include "bench/doctor/findings.h"

namespace nearmetal {

void add_mig_findings(const Checkup& checkup, std::vector<Finding>& findings) {
  if (!checkup.mig_config) return;
  const MigConfig& wanted = *checkup.mig_config;
  const std::string name = "'" + wanted.label + "' of " + wanted.file;
  constexpr const char* why = "jobs would have other parts of the GPUs, or none";
  if (checkup.gpus.empty()) {
    const std::string reason = checkup.nvml ? "the driver lists no GPU" : checkup.nvml.reason;
    findings.push_back({Urgency::blocker, "mig_config", "no GPU to hold against " + name, why,
                        "see to the driver first: " + reason});
    return;
  }
  const std::vector<std::string> differences = mig_differences(wanted, checkup.gpus);
  for (const std::string& difference : differences) {
    findings.push_back({Urgency::blocker, "mig_config", difference, why, apply_command(wanted)});
  }
  if (!differences.empty()) return;
  findings.push_back({Urgency::ok, "mig_config", "MIG is as " + name + " says", "", ""});
}

}  // namespace nearmetal
