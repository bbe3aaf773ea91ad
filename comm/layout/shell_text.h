// Words of command lines as a shell must read them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nearmetal {

/// One word of bash that means `text`, whatever is in it; a node_variable() in it is expanded.
std::string shell_quoted(const std::string& text);

/// The words with spaces between.
std::string shell_quoted(const std::vector<std::string>& words);

/// The element of the script's array `nodes`, in an address. It is marked by a control character,
/// which no text of a user has.
std::string node_variable(int64_t index);

}  // namespace nearmetal
