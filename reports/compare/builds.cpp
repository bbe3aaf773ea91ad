#include "reports/compare/builds.h"

#include <algorithm>
#include <set>

#include "reports/document/metric.h"
#include "reports/text/text.h"

namespace nearmetal {

std::vector<Tool> builds_of(const std::vector<const SetRun*>& runs) {
  std::vector<Tool> builds;
  for (const SetRun* run : runs) {
    if (std::ranges::find(builds, run->tool) == builds.end()) builds.push_back(run->tool);
  }
  return builds;
}

std::string builds_text(const std::vector<Tool>& builds, const std::vector<Tool>& others) {
  constexpr size_t shown_digits = 12;
  std::set<std::string> texts;
  for (const Tool& build : builds) {
    std::string text = build_text(build);
    const auto reads_the_same = [&](const Tool& other) {
      return other != build && build_text(other) == text;
    };
    if (std::ranges::any_of(builds, reads_the_same) ||
        std::ranges::any_of(others, reads_the_same)) {
      text += " by " + build.compiler + ", build ID " +
              build.build_id.value_or("not known").substr(0, shown_digits);
    }
    texts.insert(text);
  }
  return joined({texts.begin(), texts.end()}, " and ");
}

}  // namespace nearmetal
