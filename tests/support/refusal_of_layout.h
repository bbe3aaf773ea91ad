// Why a layout file is refused.
#pragma once

#include <stdexcept>
#include <string>

#include "comm/layout/layout_json.h"

namespace nearmetal {

inline std::string refusal_of_layout(const std::string& text) {
  try {
    layout_from_json(text);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace nearmetal
