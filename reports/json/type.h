// How archives reach values whose C++ types they do not know, so that no archive is compiled for
// each struct.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/names.h"
#include "base/value.h"

namespace nearmetal::json {

class Archive;

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

}  // namespace nearmetal::json
