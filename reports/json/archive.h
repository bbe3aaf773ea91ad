// How structs take part in documents: by one list of their fields, which archives follow that write
// and describe them (json_writer.h) and read them (json_reader.h).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/names.h"
#include "base/value.h"
#include "models/sample_unit.h"
#include "reports/document/run_config.h"
#include "reports/document/settings.h"

// A struct takes part by a function that is found by argument-dependent look-up:
//   void fields(Archive& field, TimedWindow& window) {
//     field.type("window", "What was timed");
//     field("steps", window.steps, at_least(1));
//     field("seconds", window.seconds, above(0), "Time of the slowest rank");
//     field.added("clock", window.clock);  // later than 1.0
//   }
// Numbers are checked against a Range, texts by a Form, enums by their Names; of lists, each
// element. The name of the type and the descriptions are those in the JSON Schema. The struct is
// const where it is never read.
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
/// Of a time in the calendar, but for leap years.
extern const Form hash, commit, code, readable_version, time_stamp;

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

class Archive;

/// How archives reach a value whose C++ type they do not know, so that no archive is compiled for
/// each struct.
struct Type {
  enum class Kind { truth, integer, number, text, texts, name, optional, maybe, list, object };

  Kind kind{};
  // An integer, or the index of a name.
  int64_t (*get)(void* value) = nullptr;
  void (*set)(void* value, int64_t to) = nullptr;
  std::span<const char* const> names{};
  // What an optional value or a list holds. A list grows as it is read, so that what is wrong early
  // takes no room for all. A Maybe has an optional within, and a reason.
  const Type* element = nullptr;
  size_t (*size)(void* holder) = nullptr;
  void* (*at)(void* holder, size_t index) = nullptr;
  void (*clear)(void* holder, size_t expected) = nullptr;
  void* (*append)(void* holder) = nullptr;
  void* (*within)(void* maybe) = nullptr;
  std::string& (*reason)(void* maybe) = nullptr;
  // Follows the fields of an object: of this one, or of one as it begins.
  void (*visit)(Archive& archive, void* object) = nullptr;
  void (*describe)(Archive& archive) = nullptr;
};

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <class T>
inline constexpr bool is_list = false;
template <class T>
inline constexpr bool is_list<std::vector<T>> = true;
template <class T>
inline constexpr bool is_maybe = false;
template <class T>
inline constexpr bool is_maybe<Maybe<T>> = true;

template <class T>
constexpr Type make_type();
template <class T>
inline constexpr Type type_of = make_type<T>();
template <Named E>
inline constexpr auto names_list = names_of(E{});

template <class T>
T& as(void* value) {
  return *static_cast<T*>(value);
}
template <class T>
void visit_fields(Archive& archive, void* object) {
  fields(archive, as<T>(object));
}
template <class T>
void describe_fields(Archive& archive) {
  T sample{};
  fields(archive, sample);
}

template <class T>
constexpr Type make_type() {
  using Kind = Type::Kind;
  if constexpr (std::is_same_v<T, bool>) {
    return {.kind = Kind::truth};
  } else if constexpr (std::is_integral_v<T> || Named<T>) {
    Type type{.kind = Kind::integer,
              .get = [](void* value) { return static_cast<int64_t>(as<T>(value)); },
              .set = [](void* value, int64_t to) { as<T>(value) = static_cast<T>(to); }};
    if constexpr (Named<T>) {
      type.kind = Kind::name;
      type.names = names_list<T>;
    }
    return type;
  } else if constexpr (std::is_same_v<T, double>) {
    return {.kind = Kind::number};
  } else if constexpr (std::is_same_v<T, std::string>) {
    return {.kind = Kind::text};
  } else if constexpr (std::is_same_v<T, std::map<std::string, std::string>>) {
    return {.kind = Kind::texts};
  } else if constexpr (is_optional<T>) {
    return {.kind = Kind::optional,
            .element = &type_of<typename T::value_type>,
            .size = [](void* holder) -> size_t { return as<T>(holder).has_value() ? 1 : 0; },
            .at = [](void* holder, size_t) -> void* { return &*as<T>(holder); },
            .clear = [](void* holder, size_t) { as<T>(holder).reset(); },
            .append = [](void* holder) -> void* { return &as<T>(holder).emplace(); }};
  } else if constexpr (is_list<T>) {
    return {.kind = Kind::list,
            .element = &type_of<typename T::value_type>,
            .size = [](void* holder) { return as<T>(holder).size(); },
            .at = [](void* holder, size_t index) -> void* { return &as<T>(holder)[index]; },
            .clear =
                [](void* holder, size_t expected) {
                  as<T>(holder).clear();
                  constexpr bool is_small = sizeof(typename T::value_type) <= sizeof(std::string);
                  if (is_small) as<T>(holder).reserve(expected);
                },
            .append = [](void* holder) -> void* { return &as<T>(holder).emplace_back(); }};
  } else if constexpr (is_maybe<T>) {
    return {.kind = Kind::maybe,
            .element = &type_of<decltype(T::value)>,
            .within = [](void* maybe) -> void* { return &as<T>(maybe).value; },
            .reason = [](void* maybe) -> std::string& { return as<T>(maybe).reason; }};
  } else {
    return {.kind = Kind::object, .visit = visit_fields<T>, .describe = describe_fields<T>};
  }
}

/// What must hold of a value, or of each that it holds: of a number, a name or a text.
struct Check {
  Check(const Range& numbers) : range(numbers) {}
  Check(Names allowed) : names(allowed) {}
  Check(const Form& texts) : form(&texts) {}

  Range range{};
  Names names{};
  const Form* form = &any_text;
};

template <class T>
constexpr auto no_check() {
  if constexpr (is_maybe<T>) {
    return no_check<decltype(T::value)>();
  } else if constexpr (is_optional<T> || is_list<T>) {
    return no_check<typename T::value_type>();
  } else {
    constexpr bool is_number = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;
    return std::conditional_t<is_number, Range, std::conditional_t<Named<T>, Names, Form>>{};
  }
}
/// The check that a field of type T takes.
template <class T>
using CheckOf = decltype(no_check<std::remove_cvref_t<T>>());

enum class Presence { required, once_known, added, optional };
constexpr bool may_be_missing(Presence presence) {
  return presence == Presence::added || presence == Presence::optional;
}

struct Field {
  const char* key;
  const Type& type;
  void* value;    // which writers do not change
  bool is_const;  // nor readers
  Check check;
  const char* about;
  Presence presence;
};

class Archive {
 public:
  /// Whether fields get their values from the archive.
  virtual bool reads() const { return false; }

  virtual void type(const char* /*name*/, const char* /*about*/ = "") {}
  /// `rest`: the check, what the field is about, or both.
  template <class T, class... Rest>
  void operator()(const char* key, T&& value, const Rest&... rest) {
    take(field_of(Presence::required, key, value, rest...));
  }
  /// A field that earlier documents always know: theirs may lack `unknown`.
  template <class T, class... Rest>
  void once_known(const char* key, T&& value, const Rest&... rest) {
    take(field_of(Presence::once_known, key, value, rest...));
  }
  /// A field that a minor version added: where an earlier document lacks it, `value` stays.
  template <class T, class... Rest>
  void added(const char* key, T&& value, const Rest&... rest) {
    take(field_of(Presence::added, key, value, rest...));
  }
  /// A field that may be left out: then `value` stays. An optional without a value is.
  template <class T, class... Rest>
  void optional(const char* key, T&& value, const Rest&... rest) {
    take(field_of(Presence::optional, key, value, rest...));
  }
  /// The unit that the object and those in it count. It is written where it is not that of the
  /// object around; at first that is images, which were all there was.
  virtual void unit(const char* key, SampleUnit& value) = 0;
  /// The keys of counts and rates in that unit.
  const UnitWords& words() const { return words_of(unit_); }
  /// Each field as {value, origin}; null where there are no origins.
  template <class T>
  void settings(const char* key, T& values, Origins& origins, const char* about) {
    take_settings(key, type_of<T>, &values, origins, about);
  }

  // For what people write, which is read alone:
  /// Throws InvalidReport where there is no such field.
  virtual void require(const char* /*key*/) {}
  /// Every member of the object, numbers and truth values as their text.
  virtual void scalars(std::map<std::string, std::string>& /*values*/) {}
  /// The same of an object whose members are lists of such values.
  virtual void scalar_lists(std::map<std::string, std::vector<std::string>>& /*values*/) {}

 protected:
  explicit Archive(SampleUnit unit) : unit_(unit) {}
  ~Archive() = default;

  virtual void take(const Field& field) = 0;
  virtual void take_settings(const char* key, const Type& type, void* values, Origins& origins,
                             const char* about) = 0;

  SampleUnit unit_;

 private:
  template <class T>
  static Field field_of(Presence presence, const char* key, T& value, const CheckOf<T>& check,
                        const char* about = "") {
    using Plain = std::remove_const_t<T>;
    return {key,   type_of<Plain>, const_cast<Plain*>(&value), std::is_const_v<T>, check,
            about, presence};
  }
  template <class T>
  static Field field_of(Presence presence, const char* key, T& value, const char* about = "") {
    static constexpr CheckOf<T> none{};  // to which the field refers
    return field_of(presence, key, value, none, about);
  }
};

// Structs as JSON text, for those who need no JSON library, which costs each file seconds to
// compile.

/// A struct that has fields().
struct Object {
  template <class T>
  Object(const T& value)  // which writers do not change
      : visit(visit_fields<T>), value(const_cast<T*>(&value)) {}

  void (*visit)(Archive& archive, void* object);
  void* value;
};

/// Strict JSON on one line, UTF-8 (bytes that are not are replaced), doubles so that they read back
/// unchanged. Throws std::logic_error for a number that is not finite.
std::string line_of(const Object& object);
/// The same on many lines, with the end of the last.
std::string lines_of(const Object& object);

/// The JSON Schema of a document, an instance of which is given.
std::string schema_text_of(const Object& sample, const char* title);

void parse(const std::string& text, const char* not_json, const Object& into);
/// Reads a document. Throws InvalidReport, for what is no JSON with these words.
template <class T>
T parsed(const std::string& text, const char* not_json = "not JSON") {
  T value;
  parse(text, not_json, value);
  return value;
}

}  // namespace nearmetal::json
