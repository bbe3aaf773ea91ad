// What a file is by its content, so that a command that is given another can say so.
#pragma once

#include <string>
#include <string_view>

namespace nearmetal {

/// What the text holds and who takes it, unless it has the words that a file of the kind that is
/// asked for has: "it holds a log of MLPerf Training, which nearmetal import mlperf reads". Empty,
/// too, where no kind is known.
std::string other_kind(std::string_view words_of_asked, std::string_view text);

}  // namespace nearmetal
