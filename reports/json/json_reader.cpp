#include "reports/json/json_reader.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <stdexcept>

#include "base/errors.h"
#include "base/text.h"

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

double number_at(const Document& json, const Place& place, const Range& range = any_number) {
  if (!json.is_number()) fail(place, "a number");
  const auto number = json.get<double>();
  require_within(number, place, range);
  return number;
}

int64_t integer_at(const Document& json, const Place& place, const Range& range) {
  const double number = number_at(json, place);
  if (number != std::trunc(number)) fail(place, "an integer");
  if (std::abs(number) > static_cast<double>(largest_integer)) {
    fail(place, "within the integers that a double holds");
  }
  require_within(number, place, range);
  return static_cast<int64_t>(number);
}

std::string text_at(const Document& json, const Place& place, const Form& form) {
  if (!json.is_string()) fail(place, "a text");
  std::string text = json.get<std::string>();
  if (!form.accepts(text)) fail(place, form.must_be());
  return text;
}

// The index of the name that is there.
size_t name_at(const Document& json, const Place& place, std::span<const char* const> names,
               Names allowed) {
  std::vector<std::string> others;
  for (size_t i = 0; i < names.size(); ++i) {
    if (!allowed.allow(i)) continue;
    if (json == names[i]) return i;
    others.emplace_back(names[i]);
  }
  fail(place, alternatives(others));
}

std::string scalar_at(const Document& json, const Place& place) {
  if (json.is_structured() || json.is_null()) fail(place, "a text, a number, true or false");
  return json.is_string() ? json.get<std::string>() : json.dump();
}

void read_texts(const Document& json, const Place& place,
                std::map<std::string, std::string>& values) {
  if (!json.is_object()) fail(place, "an object");
  for (const auto& [key, value] : json.items()) {
    values[key] = text_at(value, Place{&place, key, {}}, any_text);
  }
}

}  // namespace

Document document_of(const std::string& text) { return Document::parse(text); }

Reader::Reader(const Document& object, const Place& place, Tolerance tolerance)
    : Archive(SampleUnit::image),
      object_(object),
      place_(place),
      strict_(tolerance == Tolerance::strict) {
  if (!object_.is_object()) fail(place_, "an object");
}

void Reader::unit(const char* key, SampleUnit& value) {
  value = unit_;
  optional(key, value);
  unit_ = value;
}

void Reader::take(const Field& field) {
  if (field.is_const) throw std::logic_error(std::string(field.key) + " is never read");
  if (strict_ && field.presence == Presence::optional) known_.emplace_back(field.key);
  if (may_be_missing(field.presence) && !object_.contains(field.key)) {
    if (origins_ != nullptr) (*origins_)[field.key] = Origin::standard;
    return;
  }
  if (field.type.kind == Type::Kind::maybe) return take_maybe(field);
  if (!strict_ && field.presence == Presence::optional && member(field.key).is_null()) {
    fail(Place{&place_, field.key, {}}, "left out where there is none, not null");
  }
  read(member(field.key), Place{&place_, field.key, {}}, field.type, field.value, field.check);
}

void Reader::take_maybe(const Field& field) {
  const Document& found = member(field.key);
  const bool has_none =
      field.presence == Presence::once_known && !found.is_null() && !object_.contains("unknown");
  if (!reasons_ && !has_none) {
    read_texts(member("unknown"), Place{&place_, "unknown", {}}, reasons_.emplace());
  }
  if (found.is_null()) field.type.reason(field.value) = reason(field.key);
  read(found, Place{&place_, field.key, {}}, *field.type.element, field.type.within(field.value),
       field.check);
}

void Reader::take_settings(const char* key, const Type& type, void* values, Origins& origins,
                           const char*) {
  const Document& found = member(key);
  if (found.is_null()) return origins.clear();
  const Place place{&place_, key, {}};
  Reader reader(found, place);
  reader.origins_ = &origins;
  type.visit(reader, values);
}

void Reader::scalars(std::map<std::string, std::string>& values) {
  for (const auto& [key, value] : object_.items()) {
    values[key] = scalar_at(value, Place{&place_, key, {}});
    if (strict_) known_.push_back(key);
  }
}

void Reader::scalar_lists(std::map<std::string, std::vector<std::string>>& values) {
  for (const auto& [key, list] : object_.items()) {
    const Place place{&place_, key, {}};
    if (!list.is_array()) fail(place, "a list");
    std::vector<std::string>& texts = values[key];
    for (size_t i = 0; i < list.size(); ++i) {
      texts.push_back(scalar_at(list[i], Place{&place, {}, i}));
    }
    if (strict_) known_.push_back(key);
  }
}

void Reader::require_all_known() const {
  for (const auto& [key, value] : object_.items()) {
    if (std::ranges::find(known_, key) != known_.end()) continue;
    std::vector<std::string> known;
    for (const std::string& name : known_) add_new(known, name);
    const std::string near = nearest_word(key, known);
    throw InvalidReport(
        Place{&place_, key, {}}.pointer() + " is not known; " +
        (near.empty() ? "there are: " : "did you mean '" + near + "'? There are: ") +
        joined(known));
  }
}

void Reader::refuse_misspelt(const char* missing) const {
  for (const auto& [key, value] : object_.items()) {
    const bool is_known = std::ranges::find(known_, key) != known_.end();
    if (is_known || nearest_word(key, {missing}).empty()) continue;
    throw InvalidReport(Place{&place_, key, {}}.pointer() + " is not known" +
                        did_you_mean(key, {missing}));
  }
}

const Document& Reader::member(const char* key) {
  if (strict_) known_.emplace_back(key);
  const auto found = object_.find(key);
  const Place place{&place_, key, {}};
  if (strict_ && found == object_.end()) refuse_misspelt(key);
  if (found == object_.end()) fail(place, "there");
  if (origins_ == nullptr) return *found;
  Reader setting(*found, place);
  setting("origin", (*origins_)[key]);
  return setting.member("value");
}

const std::string& Reader::reason(const char* key) const {
  const auto reason = reasons_->find(key);
  if (reason != reasons_->end()) return reason->second;
  const Place unknown{&place_, "unknown", {}};
  fail(Place{&unknown, key, {}}, "there, as the value is null");
}

void Reader::read(const Document& json, const Place& place, const Type& type, void* value,
                  const Check& check) const {
  switch (type.kind) {
    case Type::Kind::truth:
      if (!json.is_boolean()) fail(place, "true or false");
      as<bool>(value) = json.get<bool>();
      return;
    case Type::Kind::integer:
      return type.set(value, integer_at(json, place, check.range));
    case Type::Kind::number:
      as<double>(value) = number_at(json, place, check.range);
      return;
    case Type::Kind::text:
      as<std::string>(value) = text_at(json, place, *check.form);
      return;
    case Type::Kind::texts:
      return read_texts(json, place, as<std::map<std::string, std::string>>(value));
    case Type::Kind::name:
      return type.set(value, name_at(json, place, type.names, check.names));
    case Type::Kind::optional:
      type.clear(value, 0);
      if (strict_ || !json.is_null()) read(json, place, *type.element, type.append(value), check);
      return;
    case Type::Kind::list:
      return read_list(json, place, type, value, check);
    case Type::Kind::object:
      return read_object(json, place, type, value);
    case Type::Kind::maybe:
      break;
  }
  throw std::logic_error("a value that may not be known is a field of its own");
}

void Reader::read_list(const Document& json, const Place& place, const Type& type, void* list,
                       const Check& check) const {
  if (!json.is_array()) fail(place, "a list");
  type.clear(list, json.size());
  for (size_t i = 0; i < json.size(); ++i) {
    read(json[i], Place{&place, {}, i}, *type.element, type.append(list), check);
  }
}

void Reader::read_object(const Document& json, const Place& place, const Type& type,
                         void* object) const {
  Reader reader(json, place, strict_ ? Tolerance::strict : Tolerance::tolerant);
  reader.unit_ = unit_;
  type.visit(reader, object);
  if (strict_) reader.require_all_known();
}

}  // namespace nearmetal::json
