#include "reports/json/archive.h"

#include <algorithm>
#include <cctype>
#include <stdexcept>

#include "base/errors.h"
#include "base/text.h"
#include "reports/json/json.h"
#include "reports/json/json_reader.h"
#include "reports/json/json_writer.h"

namespace nearmetal::json {
namespace {

bool is_made_of(std::string_view characters, std::string_view text) {
  return text.find_first_not_of(characters) == text.npos;
}

constexpr std::string_view digits = "0123456789";
constexpr std::string_view hexadecimal_digits = "0123456789abcdef";

bool is_time_stamp(const std::string& text) {
  constexpr std::string_view like = "2026-01-31T12:00:00Z";
  const auto agrees = [](char wanted, char c) {
    return std::isdigit(wanted) != 0 ? digits.find(c) != digits.npos : c == wanted;
  };
  if (!std::ranges::equal(like, text, agrees)) return false;
  const auto number_at = [&](size_t place) { return std::stoul(text.substr(place, 2)); };
  constexpr std::array<size_t, 13> days = {0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const size_t month = number_at(5), day = number_at(8);
  return month < days.size() && day >= 1 && day <= days.at(month) && number_at(11) < 24 &&
         number_at(14) < 60 && number_at(17) < 60;
}

}  // namespace

constexpr Form hash{"^[0-9a-f]{64}$", "64 hexadecimal digits", [](const std::string& text) {
                      return text.size() == 64 && is_made_of(hexadecimal_digits, text);
                    }};
constexpr Form commit{"^[0-9a-f]{40,64}$", "a commit id", [](const std::string& text) {
                        return text.size() >= 40 && text.size() <= 64 &&
                               is_made_of(hexadecimal_digits, text);
                      }};
constexpr Form code{"^[a-z_]+$", "a code of lower-case letters and underscores",
                    [](const std::string& text) {
                      return !text.empty() && is_made_of("abcdefghijklmnopqrstuvwxyz_", text);
                    }};
constexpr Form readable_version{
    "^1\\.[0-9]+$", "1.x, the versions that this program reads", [](const std::string& text) {
      return text.starts_with("1.") && text.size() > 2 && is_made_of(digits, text.substr(2));
    }};
constexpr Form time_stamp{
    "^[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0["
    "1-9]|[12][0-9]))T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$",
    "a time such as 2026-01-31T12:00:00Z", is_time_stamp};

std::vector<std::string> Form::all_names() const {
  return {names.begin(), std::ranges::find(names, nullptr)};
}

bool Form::accepts(const std::string& text) const {
  if (matches != nullptr) return matches(text);
  if (pattern != nullptr) throw std::logic_error("nothing decides " + std::string(pattern));
  const auto end = std::ranges::find(names, nullptr);
  return names.front() == nullptr || std::find(names.begin(), end, text) != end;
}

std::string Form::must_be() const {
  if (names.front() == nullptr) return description;
  return alternatives(all_names());
}

std::string alternatives(std::vector<std::string> names) {
  const std::string last = names.back();
  names.pop_back();
  return names.empty() ? last : joined(names) + " or " + last;
}

std::string Place::pointer() const {
  if (parent == nullptr) return "";
  std::string text = parent->pointer() + "/";
  if (index) return text + std::to_string(*index);
  return text + replaced(replaced(std::string(key), "~", "~0"), "/", "~1");
}

void fail(const Place& place, const std::string& must_be) {
  const std::string pointer = place.pointer();
  throw InvalidReport((pointer.empty() ? "/" : pointer) + " must be " + must_be);
}

std::string line_of(const Object& object) { return line_of(Writer::json_of(object)); }
std::string lines_of(const Object& object) { return lines_of(Writer::json_of(object)); }

std::string schema_text_of(const Object& sample, const char* title) {
  return schema_text(SchemaWriter::document(sample, title));
}

void parse(const std::string& text, const char* not_json, const Object& into) {
  require_within_limits(text);
  try {
    const Document document = document_of(text);
    Reader reader(document, Place{});
    into.visit(reader, into.value);
  } catch (const Document::exception&) {
    throw InvalidReport(not_json);
  }
}

}  // namespace nearmetal::json
