// Every setting of `nearmetal run`, declared once. From this table come the option, the field of a
// report and its schema, the comparable key, the flags of a rerun, and the names in layout files.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/names.h"
#include "reports/document/run_config.h"

namespace nearmetal {

struct Range {
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  bool above_minimum = false;  // the minimum itself is not allowed
};
constexpr Range at_least(double minimum) { return {.minimum = minimum}; }
constexpr Range above(double minimum) { return {.minimum = minimum, .above_minimum = true}; }
constexpr Range within(double minimum, double maximum) { return {minimum, maximum}; }
inline constexpr Range any_number{};

/// The allowed names of an enum: all, all but one, or those before one.
struct Names {
  size_t without = std::numeric_limits<size_t>::max();
  size_t end = std::numeric_limits<size_t>::max();

  bool allow(size_t index) const { return index != without && index < end; }
};
template <Named E>
constexpr Names without(E value) {
  return {.without = static_cast<size_t>(value)};
}
template <Named E>
constexpr Names before(E value) {
  return {.end = static_cast<size_t>(value)};
}

/// The headings of the help, in its order.
enum class SettingGroup { work, place, several_ranks, length, evidence, optimizer, files };
constexpr auto names_of(SettingGroup) {
  return std::array{"What to train",        "Where",     "Several ranks",   "Duration and checks",
                    "Evidence and monitor", "Optimizer", "Files and output"};
}

/// The things that a setting decides, from little to much: what is shown, looked up and kept; how a
/// run goes, which config_sha256 shows; how ranks divide the work and what is computed, which are
/// in the comparable key, too.
enum class Decides { display, run, layout, work };

/// The condition under which a setting has an effect.
enum class Needs { nothing, training, exchange };

/// The commands that take a setting, as a set of bits. Layout files and `plan` take those of
/// sweeps.
constexpr unsigned in_run = 1, in_sweep = 2, in_export = 4, in_micro = 8, in_stress = 16;
constexpr unsigned in_all_but_stress = in_run | in_sweep | in_export | in_micro;

/// The member of RunConfig that holds a setting.
using SettingMember = std::variant<
    bool RunConfig::*, int64_t RunConfig::*, double RunConfig::*, std::string RunConfig::*,
    std::optional<int64_t> RunConfig::*, std::optional<double> RunConfig::*,
    std::optional<std::string> RunConfig::*, Device RunConfig::*, Input RunConfig::*,
    HostWait RunConfig::*, Kernels RunConfig::*, Bind RunConfig::*, Update RunConfig::*,
    GradientType RunConfig::*, NcclAlgorithm RunConfig::*, Schedule RunConfig::*,
    std::optional<Precision> RunConfig::*, std::optional<LaunchMode> RunConfig::*,
    std::optional<Optimizer> RunConfig::*, std::optional<LossScale> RunConfig::*,
    std::optional<AllReduceKind> RunConfig::*, std::optional<MachineKind> RunConfig::*>;

struct Setting {
  const char* help = "";     // of the option
  const char* value = "";    // what the option takes, where the type does not say it
  const char* meaning = "";  // in the schema
  Range range{};             // in documents
  double most = 0;           // of numbers: the largest that the option takes
  Names names{};             // of enums
  bool resolved = false;     // documents do not hold an enum's first value, which is automatic
  bool takes_auto = false;   // the option takes "auto", too: then the member is `automatic`
  std::optional<int64_t> automatic{};
  Decides decides = Decides::run;
  int key_place = 0;  // in the comparable key, whose hash is the name of a baseline's folder
  unsigned commands = in_run | in_sweep;
  std::optional<Device> only_for{};
  Needs needs = Needs::nothing;
  bool repeated = true;   // by a rerun
  bool added = false;     // to documents after version 1.0
  bool last = false;      // in the help, after the others of its group
  bool proves = false;    // or looks into a run as a whole, with all its jobs
  const char* name = "";  // in documents; in time settings with the unit: duration_seconds
  SettingGroup group{};
  SettingMember member{};
};

/// Its option: --image-size of image_size, and of a time that without the unit.
std::string flag_of(const Setting& setting);

/// Its name in layout files: that of the option, image_size.
std::string layout_name_of(const Setting& setting);

/// Whether it is a time, in seconds.
bool is_time(const Setting& setting);

/// Whether the jobs of a layout cannot differ in it: it says what is shown, kept or proven of the
/// run that they are together.
bool holds_for_all_jobs(const Setting& setting);

/// All, in the order of documents.
std::span<const Setting> settings_of_run();

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

/// A configuration, and which of its settings somebody chose, by name, in the order of the choices.
struct Workload {
  RunConfig config;
  std::vector<std::string> given{};

  bool is_given(const std::string& name) const;
};

/// The settings on which the operations of a step depend, and so the keys of its kernels.
inline const std::vector<std::string> settings_of_operations = {
    "device",  "model",    "precision",    "batch",     "image_size",
    "classes", "sequence", "forward_only", "inference", "kernels"};

inline bool decides_operations(const std::string& setting) {
  return std::ranges::find(settings_of_operations, setting) != settings_of_operations.end();
}

/// The origin of every setting: those `given` came by a flag, nobody chose the others.
Origins origins_of(const std::vector<std::string>& given = {});

/// The initial value of a dynamic loss scale.
inline constexpr double initial_of_dynamic = 65536;

// The text that a command line and a layout file write for this value. Throws std::invalid_argument
// where there is none.
std::string setting_text(const Setting& setting, const std::string& value);
std::string setting_text(const Setting& setting, int64_t value);
std::string setting_text(const Setting& setting, double value);
std::string setting_text(const Setting& setting, const LossScale& value);
template <Named E>
std::string setting_text(const Setting&, E value) {
  return to_string(value);
}
/// None where nothing was chosen.
template <class T>
std::optional<std::string> setting_text(const Setting& setting, const std::optional<T>& member) {
  if constexpr (std::is_same_v<T, int64_t>) {
    if (setting.takes_auto && member == setting.automatic) return "auto";
  }
  if (!member) return std::nullopt;
  return setting_text(setting, *member);
}

/// The value in a message, whatever it is.
inline std::string shown_value(const Setting&, bool value) { return value ? "on" : "off"; }
inline std::string shown_value(const Setting& setting, const std::optional<LossScale>& scale) {
  if (!scale) return "none";
  return scale->dynamic ? "dynamic" : setting_text(setting, scale->initial);
}
template <class T>
std::string shown_value(const Setting& setting, const T& value) {
  return std::optional<std::string>(setting_text(setting, value)).value_or("none");
}

/// The options of what a run will choose by measuring: "--batch", "--cuts".
std::vector<std::string> options_left_open(const RunConfig& config);

/// The workload to be asked for to do the work of `config` again: every setting that decides what
/// is computed and proven, and none of output, display or plan cache, as paths of another machine
/// have no meaning here.
Workload repeated_workload(const RunConfig& config);

/// "run" and a flag for each setting that was asked for, in that order. Throws
/// std::invalid_argument for what no command line asks for.
std::vector<std::string> run_arguments(const Workload& workload);

}  // namespace nearmetal
