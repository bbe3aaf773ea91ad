// The settings of which each network has a default of its own, a part of the table in settings.cpp.
#pragma once

#include <array>

#include "reports/document/setting.h"

namespace nearmetal {

inline constexpr std::array settings_of_networks{
    setting(&RunConfig::sequence, "sequence", SettingGroup::work,
            {.help = "tokens per sequence, of networks that read sequences [384]",
             .meaning = "Tokens of a sequence; null: the network reads images",
             .range = within(8, 512),
             .most = 512,
             .decides = Decides::work,
             .commands = in_all_but_stress,
             .added = true,
             .last = true}),
    setting(&RunConfig::optimizer, "optimizer", SettingGroup::optimizer,
            {.help = "update rule [transformers: adamw, other networks: sgd]",
             .meaning = "Rule by which parameters are updated; null, as in earlier reports: sgd",
             .decides = Decides::work,
             .key_place = 4,
             .commands = in_run | in_sweep | in_export,
             .needs = Needs::training,
             .added = true,
             .last = true})};

}  // namespace nearmetal
