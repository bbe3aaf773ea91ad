#include "reports/document/settings.h"

#include <algorithm>

#include "reports/document/network_settings.h"
#include "reports/document/output_settings.h"
#include "reports/document/pipeline_settings.h"
#include "reports/document/work_settings.h"

namespace nearmetal {
namespace {

std::vector<Setting> table() {
  std::vector<Setting> all;
  const auto append = [&](const auto& part) { all.insert(all.end(), part.begin(), part.end()); };
  append(settings_of_work);
  append(settings_of_output);
  append(settings_of_pipeline);
  append(settings_of_networks);
  return all;
}

}  // namespace

const std::vector<Setting>& settings_of_run() {
  static const std::vector<Setting> all = table();
  return all;
}

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
  for (const Setting& setting : settings_of_run()) {
    origins[setting.name] = Origin::standard;
  }
  for (const std::string& name : given) origins.at(name) = Origin::flag;
  return origins;
}

}  // namespace nearmetal
