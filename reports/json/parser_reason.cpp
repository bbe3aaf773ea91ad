#include "reports/json/parser_reason.h"

namespace nearmetal {

std::string parser_reason(const std::string& what) {
  constexpr size_t longest = 200;
  const size_t number_end = what.find("] ");
  const std::string reason = number_end == what.npos ? what : what.substr(number_end + 2);
  if (reason.size() <= longest) return reason;
  size_t end = longest;
  const auto inside_character = [&] { return (reason[end] & 0xC0) == 0x80; };  // of UTF-8
  while (end > 0 && inside_character()) --end;
  return reason.substr(0, end) + "...";
}

}  // namespace nearmetal
