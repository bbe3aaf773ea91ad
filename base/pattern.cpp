#include "base/pattern.h"

#include <regex>
#include <stdexcept>

#include "base/text.h"

namespace nearmetal {
namespace {

std::regex compiled(const std::string& text, Letters letters) {
  const bool any_case = letters == Letters::of_any_case;
  try {
    return std::regex(
        text, any_case ? std::regex::ECMAScript | std::regex::icase : std::regex::ECMAScript);
  } catch (const std::regex_error&) {
    throw std::invalid_argument("'" + text + "' is no regular expression");
  }
}

std::vector<std::string> groups(const std::smatch& found) {
  if (found.empty()) return {};  // where its iterators are at something
  return {found.begin(), found.end()};
}

}  // namespace

std::string pattern_of(const std::string& text) { return escaped(text, "^$\\.*+?()[]{}|/"); }

struct Pattern::Compiled {
  std::regex expression;
};

Pattern::Pattern(const std::string& text, Letters letters)
    : compiled_(new Compiled{compiled(text, letters)}) {}
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern::~Pattern() = default;

bool Pattern::matches(const std::string& text) const {
  return std::regex_match(text, compiled_->expression);
}

bool Pattern::is_in(const std::string& text) const {
  return std::regex_search(text, compiled_->expression);
}

std::vector<std::string> Pattern::groups_of(const std::string& whole) const {
  std::smatch found;
  std::regex_match(whole, found, compiled_->expression);
  return groups(found);
}

std::vector<std::string> Pattern::groups_in(const std::string& text) const {
  std::smatch found;
  std::regex_search(text, found, compiled_->expression);
  return groups(found);
}

std::string Pattern::replaced_in(const std::string& text, const std::string& format) const {
  return std::regex_replace(text, compiled_->expression, format);
}

}  // namespace nearmetal
