// A build of the program.
#pragma once

#include <optional>
#include <string>

#include "reports/document/maybe.h"

namespace nearmetal {

struct Tool {
  std::string version;
  Maybe<std::string> git_commit;
  Maybe<bool> dirty;  // built from sources that differ from the commit
  std::string build_type;
  std::string compiler;
  std::optional<std::string> build_id{};  // of executable and modules; none: not known

  bool operator==(const Tool&) const = default;
};

}  // namespace nearmetal
