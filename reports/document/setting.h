// The declaration of a setting of `nearmetal run`, beside the member of RunConfig that holds it.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <variant>

#include "reports/document/allowed.h"
#include "reports/document/run_config.h"

namespace nearmetal {

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
  bool settled = false;      // documents do not hold an enum's first value, which is automatic
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

constexpr Setting setting(SettingMember member, const char* name, SettingGroup group,
                          Setting rest) {
  rest.member = member;
  rest.name = name;
  rest.group = group;
  return rest;
}

/// Its option: --image-size of image_size, and of a time that without the unit.
std::string flag_of(const Setting& setting);

/// Its name in layout files: that of the option, image_size.
std::string layout_name_of(const Setting& setting);

/// Whether it is a time, in seconds.
bool is_time(const Setting& setting);

/// Whether the jobs of a layout cannot differ in it: it says what is shown, kept or proven of the
/// run that they are together.
bool holds_for_all_jobs(const Setting& setting);

}  // namespace nearmetal
