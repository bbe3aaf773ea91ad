#include "reports/json/json_text.h"

#include "base/errors.h"
#include "reports/json/json.h"
#include "reports/json/json_reader.h"
#include "reports/json/json_writer.h"
#include "reports/json/schema_writer.h"

namespace nearmetal::json {

std::string line_of(const Object& object) { return line_of(Writer::json_of(object)); }
std::string lines_of(const Object& object) { return lines_of(Writer::json_of(object)); }

std::string schema_text_of(const Object& sample, const char* title) {
  return schema_text(SchemaWriter::document(sample, title));
}

void parse(const std::string& text, const char* not_json, const Object& into) {
  require_within_limits(text);
  try {
    const Document document = document_of(text);
    Reader reader(document, Place{});
    into.visit(reader, into.value);
  } catch (const Document::exception&) {
    throw InvalidReport(not_json);
  }
}

}  // namespace nearmetal::json
