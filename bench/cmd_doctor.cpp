#include "bench/cmd_doctor.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "bench/doctor/collect.h"
#include "comm/layout_json.h"

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

// With the hosts to try; none where no file was named.
LayoutFile asked_layouts(const CommandLine& line) {
  if (!line.doctor_layout) return {};
  LayoutFile layouts = read_layout(*line.doctor_layout);
  if (layouts.hosts.size() < 2) {
    throw std::invalid_argument(*line.doctor_layout +
                                " has fewer than two hosts, and no path between any to try");
  }
  return layouts;
}

}  // namespace

ExitCode cmd_doctor(const CommandLine& line, const Terminal& terminal) {
  const LayoutFile layouts = asked_layouts(line);
  std::optional<MigConfig> mig_config;
  if (line.doctor_mig_config) mig_config = read_mig_config(*line.doctor_mig_config);
  Checkup checkup = collect_checkup(layouts);
  checkup.mig_config = std::move(mig_config);
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
