#include "bench/commands/doctor.h"

#include <algorithm>
#include <utility>

#include "bench/doctor/check_layout.h"
#include "bench/doctor/collect.h"
#include "comm/layout/layout_json.h"

namespace nearmetal {
namespace {

void print(std::ostream& out, const std::vector<Finding>& findings) {
  for (const Finding& finding : findings) {
    std::string severity = to_string(finding.severity);
    severity.resize(9, ' ');
    out << severity << finding.seen << '\n';
    if (!finding.why.empty()) out << "           why: " << finding.why << '\n';
    if (!finding.fix.empty()) out << "           fix: " << finding.fix << '\n';
  }
}

}  // namespace

ExitCode cmd_doctor(const CommandLine& line, const Terminal& terminal) {
  LayoutFile layouts;  // with the hosts to try
  if (line.doctor_layout) layouts = read_layout(*line.doctor_layout);
  std::optional<MigConfig> mig_config;
  if (line.doctor_mig_config) mig_config = read_mig_config(*line.doctor_mig_config);
  Checkup checkup = collect_checkup(layouts);
  checkup.mig_config = std::move(mig_config);
  if (line.doctor_layout) checkup.layout = check_layout(*line.doctor_layout, checkup);
  const std::vector<Finding> findings = diagnose(checkup);
  const auto blockers = std::count_if(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.severity == Urgency::blocker;
  });
  const ExitCode code = blockers > 0 ? ExitCode::not_supported : ExitCode::ok;
  if (line.doctor_json) {
    terminal.out << findings_to_json(findings, static_cast<int>(code));
    return code;
  }
  print(terminal.out, findings);
  terminal.out << "verdict: "
               << (blockers > 0 ? std::to_string(blockers) + " in the way of runs"
                                : std::string("nothing in the way of runs"))
               << " (exit " << static_cast<int>(code) << ")\n";
  return code;
}

}  // namespace nearmetal
