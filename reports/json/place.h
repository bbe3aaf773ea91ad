// Where a value stands in a document, for messages.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace nearmetal::json {

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
