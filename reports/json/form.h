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
bool is_hash(const std::string& text);
bool is_commit(const std::string& text);
bool is_code(const std::string& text);
bool is_readable_version(const std::string& text);
/// In the calendar, but for leap years.
bool is_time_stamp(const std::string& text);
inline constexpr Form hash{"^[0-9a-f]{64}$", "64 hexadecimal digits", is_hash};
inline constexpr Form commit{"^[0-9a-f]{40,64}$", "a commit id", is_commit};
inline constexpr Form code{"^[a-z_]+$", "a code of lower-case letters and underscores", is_code};
inline constexpr Form readable_version{"^1\\.[0-9]+$", "1.x, the versions that this program reads",
                                       is_readable_version};
inline constexpr Form time_stamp{
    "^[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0["
    "1-9]|[12][0-9]))T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$",
    "a time such as 2026-01-31T12:00:00Z", is_time_stamp};

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
