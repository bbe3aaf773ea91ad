// The settings of a run as fields of a document.
#pragma once

#include "reports/document/settings.h"
#include "reports/json/forms.h"

namespace nearmetal::json {

template <class Archive>
void fields(Archive& field, In<Archive, LossScale> scale) {
  field.type("loss_scale", "Factor of the loss before the backward pass");
  field("initial", scale.initial, above(0));
  field("dynamic", scale.dynamic);
}

template <class Check>
Check check_of(const Setting& setting) {
  if constexpr (std::is_same_v<Check, Range>) {
    return setting.range;
  } else if constexpr (std::is_same_v<Check, Names>) {
    return setting.settled ? Names{0} : setting.names;
  } else {
    return any_text;
  }
}

template <class Archive>
void fields(Archive& field, In<Archive, RunConfig> config) {
  field.type("config", "Every setting of a run");
  visit_settings(
      [&](const Setting& setting, auto& value) {
        const auto check = check_of<CheckOf<std::decay_t<decltype(value)>>>(setting);
        if (setting.added) {
          field.added(setting.name, value, check, setting.meaning);
        } else {
          field(setting.name, value, check, setting.meaning);
        }
      },
      config);
}

}  // namespace nearmetal::json
