// The findings of doctor about a machine.
#pragma once

#include <string>
#include <vector>

#include "models/names.h"
#include "reports/document/environment.h"

namespace nearmetal {

/// ok: looked at and fine. note: not looked at, or good to know. warning: costs speed or trust.
/// blocker: runs of the kind that it names will not start, or not be what they seem.
enum class Urgency { ok, note, warning, blocker };
constexpr auto names_of(Urgency) { return std::array{"ok", "note", "warning", "blocker"}; }

struct Finding {
  Urgency severity = Urgency::ok;
  std::string code;  // stable, for scripts: lower case with underscores
  std::string seen;
  std::string why;  // it matters for the number; empty where all is well
  std::string fix;

  bool operator==(const Finding&) const = default;
};

/// The JSON Schema (2020-12) of what findings_to_json() writes.
std::string doctor_schema();

/// The findings and the machine that they were made on as JSON, of the schema that `nearmetal
/// schema doctor` prints.
std::string findings_to_json(const std::vector<Finding>& findings, const Environment& machine,
                             int exit_code);

namespace json {

class Archive;
void fields(Archive& field, Finding& finding);

}  // namespace json
}  // namespace nearmetal
