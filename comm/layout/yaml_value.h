// YAML as plain data, within limits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nearmetal {

/// A text, a list, or an object with texts as keys, each once.
struct YamlValue {
  enum class Kind { nothing, text, list, object };

  Kind kind = Kind::nothing;
  int64_t line = 1;
  bool quoted = false;  // a text in quotes is a text alone; others may mean a number or truth value
  std::string text;
  std::string key;               // of a member of an object
  std::vector<YamlValue> items;  // or members
};

/// The value of one document. Throws std::invalid_argument, beginning with the line, for what is no
/// YAML, is larger than 1 MiB, nested deeper than 8, or has anchors, aliases, tags of its own, keys
/// that are no texts or given twice, or a second document.
YamlValue parse_yaml(std::string_view text);

}  // namespace nearmetal
