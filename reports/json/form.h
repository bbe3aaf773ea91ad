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
  std::array<const char*, 8> names{};  // null after the last; none: any text
  // ^...$ of characters and [sets], each of them once, {n} times, {n,m} times or + (at least once),
  // but never followed by a character that it may be itself.
  const char* pattern = nullptr;
  const char* description = "";  // "must be ..."; of names: the names
  // Where a pattern of this kind does not say all: decides instead of it.
  bool (*matches)(const std::string& text) = nullptr;

  std::vector<std::string> all_names() const;
  bool accepts(const std::string& text) const;
  std::string must_be() const;
};
inline constexpr Form any_text{};
template <class... Texts>
constexpr Form one_of(Texts... texts) {
  return {.names = {texts...}};
}
inline constexpr Form hash{.pattern = "^[0-9a-f]{64}$", .description = "64 hexadecimal digits"};
inline constexpr Form commit{.pattern = "^[0-9a-f]{40,64}$", .description = "a commit id"};
/// In the calendar, but for leap years.
bool is_time_stamp(const std::string& text);
inline constexpr Form time_stamp{
    .pattern =
        "^[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|"
        "30)|02-(0[1-9]|[12][0-9]))T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$",
    .description = "a time such as 2026-01-31T12:00:00Z",
    .matches = is_time_stamp};
inline constexpr Form code{.pattern = "^[a-z_]+$",
                           .description = "a code of lower-case letters and underscores"};
inline constexpr Form readable_version{.pattern = "^1\\.[0-9]+$",
                                       .description = "1.x, the versions that this program reads"};

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
