#include "bench/doctor/diagnose.h"

#include "bench/doctor/findings.h"

namespace nearmetal {

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
