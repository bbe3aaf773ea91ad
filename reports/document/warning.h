// What a reader of the numbers should know, and the figures by which something is judged.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace nearmetal {

enum class FigureUnit { share, count, cpus, seconds, times };
constexpr auto names_of(FigureUnit) {
  return std::array{"share", "count", "cpus", "seconds", "times"};
}

struct Figure {
  double value = 0;
  double limit = 0;  // the largest that is acceptable, whatever its sign
  FigureUnit unit = FigureUnit::share;

  bool operator==(const Figure&) const = default;
};

/// Whether `a` is further above its limit than `b` above its own, each in times of it; above a
/// limit of 0 anything is infinitely far.
inline bool is_worse(const Figure& a, const Figure& b) {
  const auto excess = [](const Figure& figure) {
    const double size = std::abs(figure.value);
    return std::pair(size > 0 ? size / figure.limit : 0, size);
  };
  return excess(a) > excess(b);
}

struct Warning {
  std::string code;                // stable, for scripts: lower case with underscores
  std::string text;                // for people, without who gave it
  std::optional<Figure> figure{};  // how bad it is; none: it has no degrees
  // Who gave it, of several; none of these: all.
  std::optional<int64_t> job{};       // index into the run's jobs
  std::optional<int64_t> rank{};      // of the job
  std::optional<int64_t> stage{};     // of the rank, where there are several
  std::optional<std::string> host{};  // of the rank

  bool operator==(const Warning&) const = default;
};

/// ok: looked at and fine. note: not looked at, or good to know. warning: costs speed or trust.
/// blocker: runs of the kind that it names will not start, or not be what they seem.
enum class Urgency { ok, note, warning, blocker };
constexpr auto names_of(Urgency) { return std::array{"ok", "note", "warning", "blocker"}; }

struct Finding {
  Urgency severity = Urgency::ok;
  std::string code;  // stable, for scripts: lower case with underscores
  std::string seen;
  std::string why;  // it matters for the number; empty where all is well
  std::string fix;
};

}  // namespace nearmetal
