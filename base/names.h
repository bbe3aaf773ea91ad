// The names of closed sets of values. An enum takes part by a list that is found by
// argument-dependent look-up, in the order of its values, which count from 0:
//   enum class Bind { automatic, off };
//   constexpr auto names_of(Bind) { return std::array{"auto", "off"}; }
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>

namespace nearmetal {

template <class E>
concept Named = std::is_enum_v<E> && requires(E value) {
  names_of(value);
};

template <Named E>
constexpr const char* to_string(E value) {
  return names_of(value).at(static_cast<size_t>(value));
}

template <Named E>
constexpr std::optional<E> from_name(std::string_view name) {
  constexpr auto names = names_of(E{});
  for (size_t i = 0; i < names.size(); ++i) {
    if (name == names[i]) return static_cast<E>(i);
  }
  return std::nullopt;
}

}  // namespace nearmetal
