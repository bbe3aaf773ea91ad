#include "bench/sweep/other_work.h"

#include <functional>
#include <optional>
#include <variant>
#include <vector>

#include "base/text.h"
#include "reports/document/settings.h"

namespace nearmetal {
namespace {

std::string shown(const Setting&, bool value) { return value ? "on" : "off"; }
std::string shown(const Setting& setting, const std::optional<LossScale>& scale) {
  if (!scale) return "none";
  return scale->dynamic ? "dynamic" : setting_text(setting, scale->initial);
}
template <class T>
std::string shown(const Setting& setting, const T& value) {
  return std::optional<std::string>(setting_text(setting, value)).value_or("none");
}

std::string differences(const RunConfig& before, const RunConfig& now,
                        const std::function<bool(const Setting& setting)>& counts) {
  std::vector<std::string> found;
  for_each_setting([&](const Setting& setting, auto member) {
    if (setting.decides == Decides::display || before.*member == now.*member) return;
    if (!counts(setting)) return;
    found.push_back(std::string(setting.name) + " " + shown(setting, now.*member) + " instead of " +
                    shown(setting, before.*member));
  });
  return joined(found);
}

template <class T>
bool is_known(const T&) {
  return true;
}
template <class T>
bool is_known(const std::optional<T>& value) {
  return value.has_value();
}

// Whether the value that is asked for says what a job must have done.
bool is_settled(const RunConfig& asked, const Setting& setting) {
  const auto is = [&](SettingMember member) { return setting.member == member; };
  if (is(&RunConfig::device) || is(&RunConfig::gpu) || is(&RunConfig::ranks)) return false;
  if (is(&RunConfig::batch) && asked.batch == largest_that_fits) return false;
  if (is(&RunConfig::all_reduce) && asked.all_reduce == AllReduceKind::automatic) return false;
  if (is(&RunConfig::threads) && asked.threads == 0) return false;
  return std::visit([&](auto member) { return is_known(asked.*member); }, setting.member);
}

}  // namespace

bool took_steps(const Run& run) {
  return !run.ranks.empty() && !run.ranks.front().step_seconds.empty();
}

std::string other_work(const RunConfig& before, const RunConfig& now) {
  return differences(before, now, [](const Setting&) { return true; });
}

std::string other_work(const Workload& asked, const Report& job) {
  if (!took_steps(job.arms.at(0).runs.at(0))) return "";
  return differences(asked.config, job.invocation.config, [&](const Setting& setting) {
    return is_settled(asked.config, setting) && asked.is_given(setting.name);
  });
}

}  // namespace nearmetal
