// Why a layout file is refused.
#pragma once

#include <string>

#include "comm/layout/layout_json.h"
#include "tests/support/refusal.h"

namespace nearmetal {

inline std::string refusal_of_layout(const std::string& text) {
  return refusal_of([&] { layout_from_json(text); });
}

}  // namespace nearmetal
