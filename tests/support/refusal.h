// The message with which a call is refused.
#pragma once

#include <stdexcept>
#include <string>

namespace nearmetal {

/// Empty: it is accepted. Another error than this fails the test.
template <class Error = std::invalid_argument, class Call>
std::string refusal_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace nearmetal
