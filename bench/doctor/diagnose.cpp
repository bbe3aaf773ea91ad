#include "bench/doctor/diagnose.h"

#include "reports/text/text.h"

namespace nearmetal {
namespace {

// Whether MIG is as a configuration says, where one was named.
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

// Whether a sweep of a layout file could start, where one was named.
void add_layout_findings(const Checkup& checkup, std::vector<Finding>& findings) {
  if (!checkup.layout) return;
  const LayoutCheck& layout = *checkup.layout;
  for (const std::string& problem : layout.problems) {
    findings.push_back({Urgency::blocker, "layout", problem,
                        "a sweep of this file would refuse it, or its jobs would fail",
                        "change the file, or the machine as it says"});
  }
  if (layout.problems.empty()) {
    findings.push_back({Urgency::ok, "layout",
                        layout.file + ": all that a sweep of it (" +
                            counted(layout.layouts, "layout") + ") needs of this machine is there",
                        "", ""});
  }
  if (!checkup.host_names.empty()) return;
  findings.push_back({Urgency::note, "network_untried",
                      layout.file + " names no other host, so that no network was tried",
                      "its jobs stay on this machine",
                      "none, unless they are to go on others: name these in \"hosts\""});
}

}  // namespace

std::vector<Finding> diagnose(const Checkup& checkup) {
  std::vector<Finding> findings;
  add_software_findings(checkup, findings);
  for (size_t i = 0; i < checkup.gpus.size(); ++i) {
    const GpuNow now = i < checkup.gpus_now.size() ? checkup.gpus_now[i] : GpuNow{};
    add_gpu_findings(checkup.gpus[i], now, "GPU " + std::to_string(i), findings);
  }
  if (checkup.gpus.size() > 1) add_peer_findings(checkup.gpus, findings);
  add_mig_findings(checkup, findings);
  add_layout_findings(checkup, findings);
  add_system_findings(checkup, findings);
  return findings;
}

}  // namespace nearmetal
