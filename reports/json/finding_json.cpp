#include "reports/json/finding_json.h"

#include "reports/json/json_text.h"
#include "reports/json/report_fields.h"
#include "reports/json/schema_writer.h"

namespace nearmetal::json {

void fields(Archive& field, Finding& finding) {
  field.type("finding");
  field("severity", finding.severity);
  field("code", finding.code, code, "Stable, for scripts");
  field("seen", finding.seen);
  field("why", finding.why, "Why it matters for the number; empty where all is well");
  field("fix", finding.fix);
}

struct Findings {
  std::string schema = "nearmetal/doctor";
  std::string schema_version = "1.0";
  int64_t exit_code = 0;
  std::vector<Finding> findings;
  std::vector<Gpu> gpus;
  std::vector<RdmaDevice> rdma;
};

void fields(Archive& field, Findings& document) {
  field.type("doctor",
             "What was looked at on this machine. Fields that are not listed here are allowed: "
             "minor versions add them.");
  field("schema", document.schema, one_of("nearmetal/doctor"));
  field("schema_version", document.schema_version, readable_version);
  field("exit_code", document.exit_code);
  field("findings", document.findings);
  field.added("gpus", document.gpus, "All that the driver lists, with their ways to NICs");
  field.added("rdma", document.rdma, "NICs with RDMA");
}

}  // namespace nearmetal::json

namespace nearmetal {

std::string doctor_schema() {
  json::Json schema =
      json::SchemaWriter::document(json::Findings{}, "Findings of nearmetal doctor");
  schema["properties"]["exit_code"] = {{"description", "8 where there is a blocker"},
                                       {"enum", {0, 8}}};
  return json::schema_text(schema);
}

std::string findings_to_json(const std::vector<Finding>& findings, const Environment& machine,
                             int exit_code) {
  return json::lines_of(json::Findings{
      .exit_code = exit_code, .findings = findings, .gpus = machine.gpus, .rdma = machine.rdma});
}

}  // namespace nearmetal
