// Reads the small files in which the kernel and the distribution describe a system.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "reports/document/maybe.h"

namespace nearmetal {

/// The first line without blanks at its end; at most 64 KiB of it.
Maybe<std::string> first_line(const std::filesystem::path& path);

/// The first line as a decimal number.
Maybe<int64_t> number_in(const std::filesystem::path& path);

/// The text after `key` and `separator` in the first line that starts with that key.
Maybe<std::string> value_in(const std::filesystem::path& path, std::string_view key,
                            char separator);

/// A line of /proc/meminfo below `root`, times `unit`.
Maybe<int64_t> memory_line(const std::filesystem::path& root, const char* key, int64_t unit);

/// The names in a folder, sorted; none where it cannot be read.
std::vector<std::string> names_in(const std::filesystem::path& folder);

/// The name of what a symbolic link points to.
Maybe<std::string> link_name(const std::filesystem::path& link);

}  // namespace nearmetal
