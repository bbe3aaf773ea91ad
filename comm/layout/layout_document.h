// JSON as people write it, within limits: comments are allowed, a key given twice is not.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace nearmetal {

/// Throws std::invalid_argument with the place for text that is larger than 1 MiB, nested deeper
/// than 16, no JSON, or has an object with two members of one key.
nlohmann::json parse_layout_document(std::string_view text);

}  // namespace nearmetal
