// What the operator of a host says of it, from JSON.
#pragma once

#include <map>
#include <string>

namespace nearmetal {

/// One object of texts, numbers and truth values, at most 64 KiB and 256 entries of 1000
/// characters. Throws InvalidReport for any other text.
std::map<std::string, std::string> host_facts_from_json(const std::string& text);

}  // namespace nearmetal
