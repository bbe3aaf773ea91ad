// What names and paths in layouts may look like: they go into command lines and scripts.
#pragma once

#include <string>

namespace nearmetal {

/// Of a host: letters, digits, '.', '-' and '_', at most 253, the first a letter or digit. A
/// numeric address of version 6 is none, as launchers read what follows ':' as slots.
bool is_host_name(const std::string& text);

/// Of an environment variable: letters, digits and '_', the first no digit, at most 200.
bool is_variable_name(const std::string& text);

/// Words to show, or a value: UTF-8 without control characters, 1 to 1000 bytes, the first no '-'.
bool is_plain_text(const std::string& text);

/// Addresses of version 4 and the length of their common prefix: 10.0.0.0/24.
bool is_network(const std::string& text);

}  // namespace nearmetal
