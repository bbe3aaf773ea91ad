#include "bench/doctor/findings.h"
#include "reports/text/text.h"

namespace nearmetal {

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

}  // namespace nearmetal
