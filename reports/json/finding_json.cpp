#include <stdexcept>

#include "reports/document/finding.h"
#include "reports/json/json_archive.h"

namespace nearmetal::json {

struct Findings {
  std::string schema = "nearmetal/doctor";
  std::string schema_version = "1.0";
  int64_t exit_code = 0;
  std::vector<Finding> findings;
};

template <class Archive>
void fields(Archive& field, In<Archive, Finding> finding) {
  field("severity", finding.severity);
  field("code", finding.code);
  field("seen", finding.seen);
  field("why", finding.why);
  field("fix", finding.fix);
}

template <class Archive>
void fields(Archive& field, In<Archive, Findings> document) {
  field("schema", document.schema);
  field("schema_version", document.schema_version);
  field("exit_code", document.exit_code);
  field("findings", document.findings);
}

}  // namespace nearmetal::json

namespace nearmetal {

const char* to_string(Urgency severity) {
  switch (severity) {
    case Urgency::ok:
      return "ok";
    case Urgency::note:
      return "note";
    case Urgency::warning:
      return "warning";
    case Urgency::blocker:
      return "blocker";
  }
  throw std::logic_error("unnamed Urgency");
}

std::string findings_to_json(const std::vector<Finding>& findings, int exit_code) {
  json::Findings document;
  document.exit_code = exit_code;
  document.findings = findings;
  return json::Writer::json_of(document).dump(2, ' ', false, json::replace_bad_utf8) + "\n";
}

}  // namespace nearmetal
