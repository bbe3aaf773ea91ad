// Every setting of `nearmetal run`, declared once. From this table come the option, the field of a
// report and its schema, the comparable key, the flags of a rerun, and the names in layout files.
#pragma once

#include <variant>
#include <vector>

#include "reports/document/setting.h"
#include "reports/document/workload.h"

namespace nearmetal {

/// All, in the order of documents.
const std::vector<Setting>& settings_of_run();

/// Calls visit(setting, member) for each, where `member` is a pointer to a member of RunConfig.
template <class Visitor>
void for_each_setting(Visitor&& visit) {
  for (const Setting& setting : settings_of_run()) {
    std::visit([&](auto member) { visit(setting, member); }, setting.member);
  }
}

/// Calls visit(setting, value) for each, where `value` is its value in `config`, const or not.
template <class Visitor, class Config>
void visit_settings(Visitor&& visit, Config& config) {
  for_each_setting([&](const Setting& setting, auto member) { visit(setting, config.*member); });
}

/// Whether they ask for the same work, whatever its length and means: what both do adds.
bool same_work(const RunConfig& a, const RunConfig& b);

}  // namespace nearmetal
