// Reads layout files: JSON with comments, as reports/schema/layout.schema.json says.
#pragma once

#include <filesystem>
#include <string_view>

#include "comm/layout/layout.h"

namespace nearmetal {

/// The JSON Schema (2020-12) of a layout file, as reports/schema/layout.schema.json.
std::string layout_schema();

/// The content of a small file; of one over 1 MiB a byte more than that, by which it is refused.
/// Throws std::invalid_argument for what cannot be read.
std::string text_of_file(const std::filesystem::path& path);

/// Strict: what is unknown, doubled, out of range or contradicts itself is refused. Throws
/// std::invalid_argument with the place as a JSON pointer and the reason.
LayoutFile layout_from_json(std::string_view text);

/// Messages begin with the path.
LayoutFile read_layout(const std::filesystem::path& path);

}  // namespace nearmetal
