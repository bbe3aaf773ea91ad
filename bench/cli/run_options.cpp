#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "bench/cli/setting_options.h"
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
void add_setting(RunOptions& options, const Setting& setting, T& member) {
  options.group(to_string(setting.group));
  if constexpr (std::is_same_v<T, bool>) {
    options.toggle(flag_of(setting), member, setting.help);
  } else {
    options.add(flag_of(setting), setting.name, value_shown(setting, member).c_str(),
                help_shown(setting, member), [&setting, &member](const std::string& text) {
                  parse_setting(setting, text, member);
                });
  }
}

// Those that a command takes, in the order of help.
void add_settings(RunOptions& options, RunConfig& run, unsigned command) {
  struct Entry {
    std::pair<SettingGroup, bool> place;
    std::function<void()> add;
  };
  std::vector<Entry> entries;
  visit_settings(
      [&](const Setting& setting, auto& member) {
        if ((setting.commands & command) == 0) return;
        entries.push_back({{setting.group, setting.last}, [&options, &setting, &member] {
                             add_setting(options, setting, member);
                           }});
      },
      run);
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.place < b.place; });
  for (const Entry& entry : entries) entry.add();
}

}  // namespace

void add_run_options(Options& options, RunRequest& request) {
  RunOptions settings(options, request);
  add_settings(settings, request.config, in_run);
  add_expect_options(options, request.expected);
  // Scripts of plan say it.
  options.toggle("--emulated", request.emulated, "on VMs that are pretended, as a plan says")
      .hidden = true;
  add_conducted_options(options, request);
}

void add_device_options(Options& options, RunRequest& request) {
  RunOptions settings(options, request);
  add_settings(settings, request.config, in_stress);
  settings.toggle("--quiet", request.config.quiet, "no remarks");
}

void add_workload_options(Options& options, RunRequest& request) {
  RunOptions settings(options, request);
  add_settings(settings, request.config, in_sweep);
}

void add_program_options(Options& options, RunRequest& request) {
  RunOptions settings(options, request);
  add_settings(settings, request.config, in_micro);
  settings.toggle("--quiet", request.config.quiet, "no remarks");
}

void add_export_options(Options& options, RunRequest& request) {
  RunConfig& run = request.config;
  RunOptions settings(options, request);
  add_settings(settings, run, in_export);
  settings.path("--output", run.output, "FILE", "to write [nearmetal-MODEL.safetensors]");
  settings.toggle("--force", run.force, "replace an existing file");
  settings.toggle("--quiet", run.quiet, "no remarks");
  settings.group(to_string(SettingGroup::work));
  settings.number("--steps", run.steps, {1, 1000},
                  "train so many on the first batch and write what they compute");
}

}  // namespace nearmetal
