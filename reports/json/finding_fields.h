// A finding as JSON, as doctor and plan write it.
#pragma once

#include "reports/document/finding.h"
#include "reports/json/json_archive.h"

namespace nearmetal::json {

template <class Archive>
void fields(Archive& field, In<Archive, Finding> finding) {
  field.type("finding");
  field("severity", finding.severity);
  field("code", finding.code, code, "Stable, for scripts");
  field("seen", finding.seen);
  field("why", finding.why, "Why it matters for the number; empty where all is well");
  field("fix", finding.fix);
}

}  // namespace nearmetal::json
