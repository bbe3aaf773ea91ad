#include "comm/layout/shell_text.h"

#include <algorithm>
#include <string_view>

#include "base/text.h"

namespace nearmetal {
namespace {

constexpr char mark = '\x1f';  // the unit separator of ASCII, on both sides of an index

std::string quoted_literal(std::string_view text) {
  constexpr std::string_view harmless =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  const bool plain = text.find_first_not_of(harmless) == std::string_view::npos;
  if (plain && !text.empty()) return std::string(text);
  return "'" + replaced(std::string(text), "'", "'\\''") + "'";
}

}  // namespace

std::string node_variable(int64_t index) { return mark + std::to_string(index) + mark; }

std::string shell_quoted(const std::string& text) {
  if (text.find(mark) == std::string::npos) return quoted_literal(text);
  std::string word;
  std::string_view rest = text;
  for (bool variable = false; !rest.empty(); variable = !variable) {
    const std::string_view part = rest.substr(0, rest.find(mark));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    if (variable) {
      word += "\"${nodes[" + std::string(part) + "]}\"";
    } else if (!part.empty()) {
      word += quoted_literal(part);
    }
  }
  return word;
}

std::string shell_quoted(const std::vector<std::string>& words) {
  std::vector<std::string> quoted;
  for (const std::string& word : words) quoted.push_back(shell_quoted(word));
  return joined(quoted, " ");
}

}  // namespace nearmetal
