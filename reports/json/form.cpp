#include "reports/json/form.h"

#include <algorithm>
#include <string_view>

#include "base/errors.h"

namespace nearmetal::json {
namespace {

// One element of a pattern: characters, as in "a-z_", and how often one of them must be there.
struct Element {
  std::string_view characters;
  size_t fewest = 1;
  size_t most = 1;

  bool has(char c) const {
    for (size_t i = 0; i < characters.size(); ++i) {
      const bool is_range = i + 2 < characters.size() && characters[i + 1] == '-';
      const char last = is_range ? characters[i + 2] : characters[i];
      if (c >= characters[i] && c <= last) return true;
      if (is_range) i += 2;
    }
    return false;
  }
};

std::string_view take(std::string_view& text, size_t count) {
  const std::string_view taken = text.substr(0, count);
  text.remove_prefix(count);
  return taken;
}

Element take_element(std::string_view& pattern) {
  Element element;
  if (pattern.front() == '[') {
    const std::string_view set = take(pattern, pattern.find(']') + 1);
    element.characters = set.substr(1, set.size() - 2);
  } else {
    if (pattern.front() == '\\') take(pattern, 1);
    element.characters = take(pattern, 1);
  }
  if (pattern.starts_with('+')) {
    take(pattern, 1);
    element.most = std::string_view::npos;
  } else if (pattern.starts_with('{')) {
    const std::string counts(take(pattern, pattern.find('}') + 1).substr(1));
    const size_t comma = counts.find(',');
    element.fewest = std::stoul(counts);
    element.most = comma == counts.npos ? element.fewest : std::stoul(counts.substr(comma + 1));
  }
  return element;
}

// In linear time and without recursion, however long the text: std::regex has neither.
bool follows(std::string_view pattern, std::string_view text) {
  pattern.remove_prefix(1);  // ^
  pattern.remove_suffix(1);  // $
  while (!pattern.empty()) {
    const Element element = take_element(pattern);
    size_t count = 0;
    while (count < element.most && count < text.size() && element.has(text[count])) ++count;
    if (count < element.fewest) return false;
    take(text, count);
  }
  return text.empty();
}

}  // namespace

bool is_time_stamp(const std::string& text) {
  if (!follows("^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$", text)) return false;
  const auto number_at = [&](size_t place) { return std::stoul(text.substr(place, 2)); };
  constexpr std::array<size_t, 13> days = {0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const size_t month = number_at(5), day = number_at(8);
  return month < days.size() && day >= 1 && day <= days.at(month) && number_at(11) < 24 &&
         number_at(14) < 60 && number_at(17) < 60;
}

std::vector<std::string> Form::all_names() const {
  return {names.begin(), std::ranges::find(names, nullptr)};
}

bool Form::accepts(const std::string& text) const {
  if (matches != nullptr) return matches(text);
  if (pattern != nullptr) return follows(pattern, text);
  const auto end = std::ranges::find(names, nullptr);
  return names.front() == nullptr || std::find(names.begin(), end, text) != end;
}

std::string Form::must_be() const {
  if (names.front() == nullptr) return description;
  std::string list;
  const std::vector<std::string> all = all_names();
  for (size_t i = 0; i < all.size(); ++i) {
    if (i > 0) list += i + 1 < all.size() ? ", " : " or ";
    list += all[i];
  }
  return list;
}

std::string Place::pointer() const {
  if (parent == nullptr) return "";
  std::string text = parent->pointer() + "/";
  if (index) return text + std::to_string(*index);
  for (const char c : key) {
    if (c == '~') {
      text += "~0";
    } else if (c == '/') {
      text += "~1";
    } else {
      text += c;
    }
  }
  return text;
}

void fail(const Place& place, const std::string& must_be) {
  const std::string pointer = place.pointer();
  throw InvalidReport((pointer.empty() ? "/" : pointer) + " must be " + must_be);
}

}  // namespace nearmetal::json
