// What a reader of the numbers should know.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "reports/document/figure.h"

namespace nearmetal {

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

}  // namespace nearmetal
