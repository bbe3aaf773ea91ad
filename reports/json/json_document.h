// The text of a document, parsed: in a file of its own, as that takes most of the time of reading.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace nearmetal::json {

/// The document that is read: keys in a map, so that an object with many of them takes no quadratic
/// time.
using Document = nlohmann::json;

/// Throws Document::exception for what is no JSON.
Document document_of(const std::string& text);

}  // namespace nearmetal::json
