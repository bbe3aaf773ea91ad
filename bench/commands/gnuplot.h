// Draws charts with gnuplot, an outside program.
#pragma once

#include <string>

namespace nearmetal {

/// What gnuplot writes to its standard output for this script. Throws NotSupported where
/// there is no gnuplot, std::runtime_error where it fails.
std::string draw(const std::string& script);

}  // namespace nearmetal
