// Command lines as absl (abseil.io) reads them, which parses the flags of tf_cnn_benchmarks.
#pragma once

#include <string>
#include <vector>

namespace nearmetal {

/// The words behind `nearmetal tf_cnn_benchmarks` as "--name=value", of no value "--name" and "":
/// absl takes one dash or two, "--name value", and of booleans --name, --noname and a value behind
/// "=" alone. What follows "--" stays as it is. They end with a flag that is not known, which the
/// parser refuses. Throws std::invalid_argument for a flag without its value, a boolean that is
/// neither true nor false, and a word that is no flag.
std::vector<std::string> spelled_out(const std::vector<std::string>& words);

}  // namespace nearmetal
