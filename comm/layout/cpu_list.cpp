#include "comm/layout/cpu_list.h"

#include <algorithm>
#include <charconv>
#include <stdexcept>

namespace nearmetal {
namespace {

constexpr int64_t largest_cpu = 65535;

[[noreturn]] void refuse(const std::string& text) {
  throw std::invalid_argument("a list of CPUs such as 0-3,8, each once, not '" + text + "'");
}

// One number at the start of `rest`, which moves on behind it.
int64_t take_number(const std::string& text, std::string_view& rest) {
  int64_t number = -1;
  const auto [stop, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (error != std::errc() || number < 0 || number > largest_cpu || rest.front() == '-') {
    refuse(text);
  }
  rest.remove_prefix(stop - rest.data());
  return number;
}

}  // namespace

std::vector<int64_t> parse_cpu_list(const std::string& text) {
  std::vector<int64_t> cpus;
  std::string_view rest = text;
  do {
    if (!cpus.empty()) rest.remove_prefix(1);  // the comma
    if (rest.empty()) refuse(text);
    const int64_t first = take_number(text, rest);
    int64_t last = first;
    if (rest.starts_with('-')) {
      rest.remove_prefix(1);
      if (rest.empty()) refuse(text);
      last = take_number(text, rest);
    }
    if (last < first) refuse(text);
    for (int64_t cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (static_cast<int64_t>(cpus.size()) > largest_cpu + 1) refuse(text);  // before it grows
  } while (rest.starts_with(','));
  std::ranges::sort(cpus);
  if (!rest.empty() || std::ranges::adjacent_find(cpus) != cpus.end()) refuse(text);
  return cpus;
}

std::string to_cpu_list(const std::vector<int64_t>& cpus) {
  std::string text;
  for (size_t first = 0, last = 0; first < cpus.size(); first = last + 1) {
    last = first;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(cpus[first]);
    if (last > first) text += '-' + std::to_string(cpus[last]);
  }
  return text;
}

std::vector<int64_t> part_of(const std::vector<int64_t>& cpus, int64_t index, int64_t parts) {
  const auto size = static_cast<int64_t>(cpus.size());
  const auto start = [&](int64_t part) {
    return cpus.begin() + part * (size / parts) + std::min(part, size % parts);
  };
  return {start(index), start(index + 1)};
}

}  // namespace nearmetal
