#include "bench/cmd_doctor.h"

#include <algorithm>

#include "bench/doctor/collect.h"

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

ExitCode cmd_doctor(bool json, const Terminal& terminal) {
  const std::vector<Finding> findings = diagnose(collect_checkup());
  const auto blockers = std::count_if(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.severity == Urgency::blocker;
  });
  const ExitCode code = blockers > 0 ? ExitCode::not_supported : ExitCode::ok;
  if (json) {
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
