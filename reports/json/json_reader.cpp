#include "reports/json/json_reader.h"

#include <algorithm>
#include <cmath>

#include "models/errors.h"
#include "reports/text/nearest_word.h"
#include "reports/text/text.h"

namespace nearmetal {

std::string parser_reason(const std::string& what) {
  constexpr size_t longest = 200;
  const size_t number_end = what.find("] ");
  std::string reason = number_end == what.npos ? what : what.substr(number_end + 2);
  if (reason.size() <= longest) return reason;
  size_t end = longest;
  const auto inside_character = [&] { return (reason[end] & 0xC0) == 0x80; };  // of UTF-8
  while (end > 0 && inside_character()) --end;
  return reason.substr(0, end) + "...";
}

}  // namespace nearmetal

namespace nearmetal::json {
namespace {

std::string described(const Range& range) {
  const auto text = [](double bound) {
    const bool whole = std::abs(bound) < 1e15 && bound == std::trunc(bound);
    return whole ? std::to_string(static_cast<int64_t>(bound)) : Document(bound).dump();
  };
  if (std::isfinite(range.maximum)) {
    return "from " + text(range.minimum) + " to " + text(range.maximum);
  }
  return (range.above_minimum ? "above " : "at least ") + text(range.minimum);
}

void require_within(double number, const Place& place, const Range& range) {
  const bool below = range.above_minimum ? !(number > range.minimum) : number < range.minimum;
  if (below || number > range.maximum) fail(place, described(range));
}

double any_number_at(const Document& json, const Place& place) {
  if (!json.is_number()) fail(place, "a number");
  return json.get<double>();
}

std::string scalar_at(const Document& json, const Place& place) {
  if (json.is_structured() || json.is_null()) fail(place, "a text, a number, true or false");
  return json.is_string() ? json.get<std::string>() : json.dump();
}

}  // namespace

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

bool truth_at(const Document& json, const Place& place) {
  if (!json.is_boolean()) fail(place, "true or false");
  return json.get<bool>();
}

double number_at(const Document& json, const Place& place, const Range& range) {
  const double number = any_number_at(json, place);
  require_within(number, place, range);
  return number;
}

double integer_at(const Document& json, const Place& place, const Range& range) {
  const double number = any_number_at(json, place);
  if (number != std::trunc(number)) fail(place, "an integer");
  if (std::abs(number) > static_cast<double>(largest_integer)) {
    fail(place, "within the integers that a double holds");
  }
  require_within(number, place, range);
  return number;
}

std::string text_at(const Document& json, const Place& place, const Form& form) {
  if (!json.is_string()) fail(place, "a text");
  std::string text = json.get<std::string>();
  if (!form.accepts(text)) fail(place, form.must_be());
  return text;
}

size_t name_at(const Document& json, const Place& place, std::span<const char* const> names,
               Names allowed) {
  std::vector<std::string> others;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i == allowed.without) continue;
    if (json == names[i]) return i;
    others.emplace_back(names[i]);
  }
  const std::string last = others.back();
  others.pop_back();
  fail(place, joined(others) + " or " + last);
}

template <bool strict>
BasicReader<strict>::BasicReader(const Document& object, const Place& place, Origins* origins)
    : object_(object), place_(place), origins_(origins) {
  if (!object_.is_object()) fail(place_, "an object");
}

template <bool strict>
void BasicReader<strict>::scalars(std::map<std::string, std::string>& values) {
  for (const auto& [key, value] : object_.items()) {
    values[key] = scalar_at(value, Place{&place_, key, {}});
    if (strict) known_.push_back(key);
  }
}

template <bool strict>
void BasicReader<strict>::scalar_lists(std::map<std::string, std::vector<std::string>>& values) {
  for (const auto& [key, list] : object_.items()) {
    const Place place{&place_, key, {}};
    if (!list.is_array()) fail(place, "a list");
    std::vector<std::string>& texts = values[key];
    for (size_t i = 0; i < list.size(); ++i) {
      texts.push_back(scalar_at(list[i], Place{&place, {}, i}));
    }
    if (strict) known_.push_back(key);
  }
}

template <bool strict>
void BasicReader<strict>::require_all_known() const {
  for (const auto& [key, value] : object_.items()) {
    if (std::ranges::find(known_, key) != known_.end()) continue;
    std::vector<std::string> known;
    for (const std::string& name : known_) {
      if (std::ranges::find(known, name) == known.end()) known.push_back(name);
    }
    const std::string near = nearest_word(key, known);
    throw InvalidReport(
        Place{&place_, key, {}}.pointer() + " is not known; " +
        (near.empty() ? "there are: " : "did you mean '" + near + "'? There are: ") +
        joined(known));
  }
}

template <bool strict>
void BasicReader<strict>::refuse_misspelt(const char* missing) const {
  for (const auto& [key, value] : object_.items()) {
    const bool is_known = std::ranges::find(known_, key) != known_.end();
    if (is_known || nearest_word(key, {missing}).empty()) continue;
    throw InvalidReport(Place{&place_, key, {}}.pointer() + " is not known" +
                        did_you_mean(key, {missing}));
  }
}

template <bool strict>
const Document& BasicReader<strict>::member(const char* key) {
  if (strict) known_.emplace_back(key);
  const auto found = object_.find(key);
  const Place place{&place_, key, {}};
  if (strict && found == object_.end()) refuse_misspelt(key);
  if (found == object_.end()) fail(place, "there");
  if (origins_ == nullptr) return *found;
  BasicReader setting(*found, place);
  setting("origin", (*origins_)[key]);
  return setting.member("value");
}

template <bool strict>
const std::string& BasicReader<strict>::reason(const char* key) const {
  const auto reason = reasons_->find(key);
  if (reason != reasons_->end()) return reason->second;
  const Place unknown{&place_, "unknown", {}};
  fail(Place{&unknown, key, {}}, "there, as the value is null");
}

template <bool strict>
void BasicReader<strict>::read(const Document& json, const Place& place,
                               std::map<std::string, std::string>& values, const Form&) {
  if (!json.is_object()) fail(place, "an object");
  for (const auto& [key, value] : json.items()) {
    values[key] = text_at(value, Place{&place, key, {}}, any_text);
  }
}

template class BasicReader<false>;
template class BasicReader<true>;

}  // namespace nearmetal::json
