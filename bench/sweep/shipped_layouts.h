// The layout files that come with the program.
#pragma once

#include <string>
#include <vector>

namespace nearmetal {

/// Their names, without .json; none where they were not installed.
std::vector<std::string> shipped_layouts();

/// The file of the shipped layout of that name, whether or not it is there.
std::string shipped_layout_file(const std::string& name);

/// `word` where it is a path or standard input (-), else the file of the shipped layout of that
/// name, even where the current folder holds a file of that name. Throws std::invalid_argument that
/// names those there are, NotSupported where somebody else could have put the file there.
std::string layout_place(const std::string& word);

}  // namespace nearmetal
