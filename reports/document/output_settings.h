// The settings that say what a run shows, a part of the table in settings.cpp.
#pragma once

#include <array>

#include "reports/document/setting.h"

namespace nearmetal {

inline constexpr std::array settings_of_output{
    setting(&RunConfig::force, "force", SettingGroup::files,
            {.help = "replace an existing report",
             .decides = Decides::display,
             .commands = in_run,
             .repeated = false}),
    setting(&RunConfig::json, "json", SettingGroup::files,
            {.help = "print the report alone, on stdout",
             .decides = Decides::display,
             .commands = in_run,
             .repeated = false}),
    setting(&RunConfig::quiet, "quiet", SettingGroup::files,
            {.help = "print no remarks and no progress",
             .decides = Decides::display,
             .commands = in_run,
             .repeated = false}),
    setting(&RunConfig::no_progress, "no_progress", SettingGroup::files,
            {.help = "print no progress line",
             .decides = Decides::display,
             .commands = in_run,
             .repeated = false})};

}  // namespace nearmetal
