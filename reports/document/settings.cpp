#include "reports/document/settings.h"

#include <algorithm>

namespace nearmetal {
bool same_work(const RunConfig& a, const RunConfig& b) {
  bool same = true;
  for_each_setting([&](const Setting& setting, auto member) {
    same = same && (setting.decides != Decides::work || a.*member == b.*member);
  });
  return same;
}

bool Workload::is_given(const std::string& name) const {
  return std::find(given.begin(), given.end(), name) != given.end();
}

Origins origins_of(const std::vector<std::string>& given) {
  Origins origins;
  for_each_setting([&](const Setting& setting, auto) { origins[setting.name] = Origin::standard; });
  for (const std::string& name : given) origins.at(name) = Origin::flag;
  return origins;
}

}  // namespace nearmetal
