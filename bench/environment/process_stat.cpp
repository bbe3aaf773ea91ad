#include "bench/environment/process_stat.h"

#include <fstream>
#include <iterator>
#include <sstream>

namespace nearmetal {

// Fields by their numbers in proc(5): 1 pid, 2 (name), which may hold anything, 3 state, 4 parent,
// 14 and 15 ticks of user and system, 22 start.
std::optional<ProcessStat> process_stat(const std::filesystem::path& file) {
  std::ifstream stream(file);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return std::nullopt;
  ProcessStat found;
  found.name = text.substr(open + 1, close - open - 1);
  std::istringstream fields(text.substr(close + 1));
  std::string skipped;
  double user = 0, system = 0;
  fields >> skipped >> found.parent;
  for (int field = 5; field < 14; ++field) fields >> skipped;
  fields >> user >> system;
  for (int field = 16; field < 22; ++field) fields >> skipped;
  if (!(fields >> found.start_ticks)) return std::nullopt;
  found.cpu_ticks = user + system;
  return found;
}

}  // namespace nearmetal
