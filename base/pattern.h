// Regular expressions (ECMAScript) in one place: the header of the standard library costs each file
// that includes it seconds to compile.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace nearmetal {

enum class Letters { as_they_are, of_any_case };

/// The regular expression of this text alone.
std::string pattern_of(const std::string& text);

class Pattern {
 public:
  /// Throws std::invalid_argument where it is no regular expression.
  explicit Pattern(const std::string& text, Letters letters = Letters::as_they_are);
  Pattern(Pattern&&) noexcept;
  ~Pattern();

  /// Whether it is the whole of the text.
  bool matches(const std::string& text) const;
  /// Whether it is somewhere in the text.
  bool is_in(const std::string& text) const;
  /// What matched and then its groups, empty those that took no part; no element: nothing matched.
  std::vector<std::string> groups_of(const std::string& whole) const;
  std::vector<std::string> groups_in(const std::string& text) const;
  /// The text with each match replaced; in `format`, $1 is the first group and $$ a $.
  std::string replaced_in(const std::string& text, const std::string& format) const;

 private:
  struct Compiled;
  std::unique_ptr<const Compiled> compiled_;
};

}  // namespace nearmetal
