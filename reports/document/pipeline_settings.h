// The settings of a pipeline, a part of the table in settings.cpp.
#pragma once

#include <array>

#include "reports/document/setting.h"

namespace nearmetal {

inline constexpr std::array settings_of_pipeline{
    setting(&RunConfig::pipeline, "pipeline", SettingGroup::several_ranks,
            {.help = "cut the network into N stages, each on a rank of its own",
             .meaning = "Stages into which the network is cut, each on a rank of its own; so many "
                        "ranks are one replica of the network",
             .range = at_least(1),
             .most = 1024,
             .decides = Decides::work,
             .key_place = 5,
             .commands = in_run | in_sweep | in_export,
             .needs = Needs::training,
             .added = true,
             .last = true}),
    setting(&RunConfig::micro_batches, "micro_batches", SettingGroup::several_ranks,
            {.help = "micro-batches of --batch samples in each update",
             .meaning = "Micro-batches of a step, each of `batch` samples, that go through the "
                        "stages one behind another; 1 with several stages: model parallel, of "
                        "which nothing overlaps",
             .range = at_least(1),
             .most = 1024,
             .decides = Decides::work,
             .key_place = 5,
             .needs = Needs::training,
             .added = true,
             .last = true}),
    setting(&RunConfig::schedule, "schedule", SettingGroup::several_ranks,
            {.help = "order of the stages' work; 1f1b holds fewer activations",
             .meaning = "Order of the stages' work: gpipe: all forward passes first, 1f1b: a "
                        "backward pass as soon as there is one",
             .decides = Decides::work,
             .key_place = 5,
             .needs = Needs::training,
             .added = true,
             .last = true}),
    setting(&RunConfig::cuts, "cuts", SettingGroup::several_ranks,
            {.help = "last layers of stages: layer2.3,layer3.2 [by measured times]",
             .value = "LAYERS",
             .meaning = "The layers behind which the network is cut, in their order; null: there "
                        "is one stage, or a run did not get as far as to balance them",
             .decides = Decides::work,
             .key_place = 5,
             .needs = Needs::training,
             .added = true,
             .last = true})};

}  // namespace nearmetal
