// What must hold of the texts and the numbers of a document, and where one stands that does not.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nearmetal::json {

/// JSON readers at large (JavaScript, jq) hold integers in doubles: exact up to here.
inline constexpr int64_t largest_integer = (int64_t{1} << 53) - 1;

/// The form of a text: one of some names, or as a pattern says.
struct Form {
  const char* pattern = nullptr;  // as schemas have it
  const char* description = "";   // "must be ..."; of names: the names
  // Decides as the pattern does, in linear time and without recursion, which std::regex is not.
  bool (*matches)(const std::string& text) = nullptr;
  std::array<const char*, 8> names{};  // null after the last; none: any text

  std::vector<std::string> all_names() const;
  bool accepts(const std::string& text) const;
  std::string must_be() const;
};
/// "a, b or c"
std::string alternatives(std::vector<std::string> names);
inline constexpr Form any_text{};
template <class... Texts>
constexpr Form one_of(Texts... texts) {
  return {.names = {texts...}};
}
/// Of a time in the calendar, but for leap years.
extern const Form hash, commit, code, readable_version, time_stamp;

/// A chain from the root. The text is made only for an error.
struct Place {
  const Place* parent = nullptr;  // none: the root
  std::string_view key;           // of an object's member
  std::optional<size_t> index;    // of a list's element

  /// A JSON pointer (RFC 6901).
  std::string pointer() const;
};

/// Throws InvalidReport.
[[noreturn]] void fail(const Place& place, const std::string& must_be);

}  // namespace nearmetal::json
