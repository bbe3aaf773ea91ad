// Files that appear whole or not at all.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace nearmetal {

/// Throws OutputError where a symbolic link on the way to the file belongs neither to root nor to
/// this user: who made it chooses which file is meant.
void require_own_links(const std::filesystem::path& path);

/// Writes through a temporary file in the same folder, with fsync before it takes its name, and of
/// the folder after. An existing file stays as it was unless `replace`; then a symbolic link stays,
/// and what it names is replaced, by require_own_links(). A character device such as /dev/null just
/// takes it. Throws OutputError; then nothing new is left behind.
void write_file_atomically(const std::filesystem::path& path, std::string_view content,
                           bool replace);
/// The parts behind one another: content that need not be in one piece.
void write_file_atomically(const std::filesystem::path& path,
                           std::span<const std::string_view> parts, bool replace);

/// Tries what write_file_atomically() will need, so that a long run is not lost to a mistyped path:
/// the folder takes a new file, and the path is free or may be replaced. Throws OutputError.
void require_writable(const std::filesystem::path& path, bool replace);

/// Throws std::invalid_argument where the output is one of the files that are read, by whatever
/// name: to replace it would destroy it.
void require_no_input(const std::filesystem::path& output, std::span<const std::string> inputs);

}  // namespace nearmetal
