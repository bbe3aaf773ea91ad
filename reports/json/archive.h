// How structs take part in documents: by one list of their fields, which archives follow that write
// them (json_writer.h), read them (json_reader.h) and describe them (schema_writer.h).
#pragma once

#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "models/sample_unit.h"
#include "reports/document/run_config.h"
#include "reports/document/settings.h"
#include "reports/json/form.h"
#include "reports/json/type.h"

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

}  // namespace nearmetal::json
