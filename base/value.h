// A value that may not be known, with the reason, and the bounds of an estimate.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace nearmetal {

/// Why a value is not known.
struct Unknown {
  std::string reason;
};

/// A value, or why there is none. In JSON: null, with the reason under the same name in the
/// object's `unknown`. A plain std::optional is null where the thing does not apply or was not
/// asked for.
template <class T>
struct Maybe {
  std::optional<T> value;
  std::string reason = "not determined";

  Maybe() = default;
  Maybe(T known) : value(std::move(known)) {}
  Maybe(Unknown unknown) : reason(std::move(unknown.reason)) {}

  explicit operator bool() const { return value.has_value(); }
  const T& operator*() const { return *value; }
  const T* operator->() const { return &*value; }
  bool operator==(const Maybe& other) const {
    return value == other.value && (value || reason == other.reason);
  }
};

struct Interval {
  double lower = 0;
  double upper = 0;

  bool operator==(const Interval&) const = default;
};

/// The lower and the upper one.
inline std::pair<Maybe<double>, Maybe<double>> bounds_of(const Maybe<Interval>& interval) {
  if (!interval) return {Unknown{interval.reason}, Unknown{interval.reason}};
  return {interval->lower, interval->upper};
}

/// A figure, and how far the spread of runs leaves it open.
struct Estimate {
  double value = 1;
  Maybe<Interval> interval{};  // 95 %
};

inline Estimate operator*(double factor, const Estimate& of) {
  if (!of.interval) return {factor * of.value, of.interval};
  return {factor * of.value, Interval{factor * of.interval->lower, factor * of.interval->upper}};
}

}  // namespace nearmetal
