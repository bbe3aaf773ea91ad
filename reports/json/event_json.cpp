#include "reports/json/event_json.h"

#include "reports/json/archive.h"
#include "reports/json/report_fields.h"

namespace nearmetal {
namespace json {
namespace {

// A name that this version does not know is no error: it is read as none. None is written as "".
template <class Optional>
void known_name(Archive& field, const char* key, Optional& value) {
  std::string name = value ? to_string(*value) : "";
  field(key, name);
  if (field.reads()) value = from_name<typename Optional::value_type>(name);
}

}  // namespace

void fields(Archive& field, Failure& failure) {
  known_name(field, "code", failure.code);
  field("exit_code", failure.exit_code);
  field("text", failure.text);
}

void fields(Archive& field, Event& event) {
  known_name(field, "event", event.kind);
  field("rank", event.rank, at_least(0));
  field("host", event.host);
  field.optional("stage", event.stage);
  field.optional("unix_seconds", event.unix_seconds);
  known_name(field, "phase", event.phase);
  field("steps", event.steps, at_least(0));
  field.unit("sample", event.sample);
  field(field.words().per_second_key, event.samples_per_second, at_least(0));
  field("report", event.report);
  field("neighbour", event.neighbour);
  field.optional("failure", event.failure);
}

}  // namespace json

std::string to_json_line(const Event& event) { return json::line_of(event); }

Event event_from_json(const std::string& line) { return json::parsed<Event>(line); }

}  // namespace nearmetal
