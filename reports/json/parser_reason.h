// Why a text is not JSON, in one line of bounded length.
#pragma once

#include <string>

namespace nearmetal {

/// From what nlohmann::json throws, "[json.exception...] parse error at ...": the word where it
/// stopped is quoted there, however long, so that what goes beyond 200 bytes is cut.
std::string parser_reason(const std::string& what);

}  // namespace nearmetal
