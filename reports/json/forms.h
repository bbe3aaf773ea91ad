// What the texts of documents must look like.
#pragma once

#include "reports/json/json_archive.h"

namespace nearmetal::json {

inline constexpr Form hash{.pattern = "^[0-9a-f]{64}$", .description = "64 hexadecimal digits"};
inline constexpr Form commit{.pattern = "^[0-9a-f]{40,64}$", .description = "a commit id"};
inline constexpr Form time_stamp{
    .pattern = "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$",
    .description = "a time such as 2026-01-31T12:00:00Z"};
inline constexpr Form code{.pattern = "^[a-z_]+$",
                           .description = "a code of lower-case letters and underscores"};
inline constexpr Form readable_version{.pattern = "^1\\.[0-9]+$",
                                       .description = "1.x, the versions that this program reads"};

}  // namespace nearmetal::json
