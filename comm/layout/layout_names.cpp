#include "comm/layout/layout_names.h"

#include <arpa/inet.h>

#include <algorithm>

namespace nearmetal {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alphanumeric(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

}  // namespace

bool is_host_name(const std::string& text) {
  return !text.empty() && text.size() <= 253 && is_alphanumeric(text.front()) &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return is_alphanumeric(c) || c == '.' || c == '-' || c == '_'; });
}

bool is_variable_name(const std::string& text) {
  return !text.empty() && text.size() <= 200 && !is_digit(text.front()) &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return is_alphanumeric(c) || c == '_'; });
}

bool is_plain_text(const std::string& text) {
  return !text.empty() && text.size() <= 1000 && text.front() != '-' &&
         std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

bool is_network(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return false;
  const std::string length = text.substr(slash + 1);
  in_addr address{};
  return inet_pton(AF_INET, text.substr(0, slash).c_str(), &address) == 1 && !length.empty() &&
         length.size() <= 2 && std::all_of(length.begin(), length.end(), is_digit) &&
         (length.size() == 1 || length.front() != '0') && std::stoi(length) <= 32;
}

}  // namespace nearmetal
