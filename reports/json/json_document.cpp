#include "reports/json/json_document.h"

namespace nearmetal::json {

Document document_of(const std::string& text) { return Document::parse(text); }

}  // namespace nearmetal::json
