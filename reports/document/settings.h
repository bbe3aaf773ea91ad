// Every setting of `nearmetal run`, declared once. From these tables come the option, the field of
// a report and its schema, config_sha256, the comparable key, the flags of a rerun, the names in
// layout files, and the messages for settings that a run has no use for.
#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "reports/document/job_settings.h"
#include "reports/document/training_settings.h"

namespace nearmetal {

/// In the order of documents.
inline constexpr auto settings_of_run = std::tuple_cat(training_settings, job_settings);

/// Calls visit(setting, member) for each, where `member` is a pointer to a member of RunConfig.
template <class Visitor>
void for_each_setting(Visitor&& visit) {
  std::apply([&](const auto&... each) { (visit(each.setting, each.member), ...); },
             settings_of_run);
}

/// Calls visit(setting, value) for each, where `value` is its value in `config`, const or not.
template <class Visitor, class Config>
void visit_settings(Visitor&& visit, Config& config) {
  for_each_setting([&](const Setting& setting, auto member) { visit(setting, config.*member); });
}

/// Its option: --image-size of image_size, and of a time that without the unit.
std::string flag_of(const Setting& setting);

/// Its name in layout files: that of the option, image_size.
std::string layout_name_of(const Setting& setting);

/// Whether it is a time, in seconds.
bool is_time(const Setting& setting);

/// A configuration, and which of its settings somebody chose, by name, in the order of the choices.
struct Workload {
  RunConfig config;
  std::vector<std::string> given{};

  bool is_given(const std::string& name) const;
};

/// Of every setting: `given` by a flag, the others as nobody chose them.
Origins origins_of(const std::vector<std::string>& given = {});

}  // namespace nearmetal
