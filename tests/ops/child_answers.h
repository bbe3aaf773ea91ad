// Questions to a library that may take the process down or hang.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace nearmetal {

/// Answers 0 ... questions - 1 in a child process; where the library takes that down or takes more
/// than a minute, the answer says so, and another child goes on behind it.
std::vector<std::string> answers_of_children(size_t questions,
                                             const std::function<std::string(size_t)>& answer);

}  // namespace nearmetal
