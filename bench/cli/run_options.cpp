#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "bench/cli/run_request.h"
#include "bench/cli/setting_value.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

// What the option takes, as help shows it.
template <class T>
std::string value_shown(const Setting& setting, const T&) {
  if (*setting.value != '\0') return setting.value;
  if constexpr (Named<T>) {
    return joined(choices_of<T>(setting), "|");
  } else {
    return is_time(setting) ? "TIME" : setting.takes_auto ? "N|auto" : "N";
  }
}
template <class T>
std::string value_shown(const Setting& setting, const std::optional<T>&) {
  return value_shown(setting, T{});
}

template <class T>
std::string help_shown(const Setting& setting, const T& member) {
  return with_default(setting.help, member);
}
template <class T>
std::string help_shown(const Setting& setting, const std::optional<T>& member) {
  if constexpr (std::is_arithmetic_v<T>) {
    if (member) return with_default(setting.help, *member);
  }
  return setting.help;
}

template <class T>
OptionSpec& add_option(Options& options, const Setting& setting, T& member) {
  const std::string flag = flag_of(setting);
  if constexpr (std::is_same_v<T, bool>) {
    return options.toggle(flag, member, setting.help);
  } else {
    return options.value(flag, value_shown(setting, member), help_shown(setting, member),
                         [&](const std::string& text) { parse_setting(setting, text, member); });
  }
}

// Those that a command takes, in the order of help. `request` keeps which were given.
void add_settings(Options& options, RunRequest& request, unsigned command) {
  struct Entry {
    std::pair<SettingGroup, bool> place;
    std::function<void()> add;
  };
  std::vector<Entry> entries;
  visit_settings(
      [&](const Setting& setting, auto& member) {
        if ((setting.commands & command) == 0) return;
        entries.push_back({{setting.group, setting.last}, [&] {
                             OptionSpec& option = add_option(options, setting, member);
                             option.group = to_string(setting.group);
                             option.set = [&, set = option.set](const Options::Texts& texts) {
                               set(texts);
                               request.given.emplace_back(setting.name);
                             };
                           }});
      },
      request.config);
  std::ranges::stable_sort(entries, {}, &Entry::place);
  for (const Entry& entry : entries) entry.add();
}

void add_quiet(Options& options, RunConfig& run, SettingGroup group) {
  options.toggle("--quiet", run.quiet, "no remarks").group = to_string(group);
}

}  // namespace

void add_run_options(Options& options, RunRequest& request) {
  add_settings(options, request, in_run);
  add_expect_options(options, request.expected);
  // Scripts of plan say it.
  options.toggle("--emulated", request.emulated, "on VMs that are pretended, as a plan says")
      .hidden = true;
  add_conducted_options(options, request);
}

void add_device_options(Options& options, RunRequest& request) {
  add_settings(options, request, in_stress);
  add_quiet(options, request.config, SettingGroup::place);
}

void add_workload_options(Options& options, RunRequest& request) {
  add_settings(options, request, in_sweep);
}

void add_program_options(Options& options, RunRequest& request) {
  add_settings(options, request, in_micro);
  add_quiet(options, request.config, SettingGroup::files);
}

void add_export_options(Options& options, RunRequest& request) {
  RunConfig& run = request.config;
  add_settings(options, request, in_export);
  const char* files = to_string(SettingGroup::files);
  options.path("--output", "FILE", run.output, "to write [nearmetal-MODEL.safetensors]").group =
      files;
  options.toggle("--force", run.force, "replace an existing file").group = files;
  add_quiet(options, run, SettingGroup::files);
  options
      .number("--steps", "N", run.steps, {1, 1000},
              "train so many on the first batch and write what they compute")
      .group = to_string(SettingGroup::work);
}

}  // namespace nearmetal
