#include "reports/imports/log_lines.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "models/errors.h"
#include "reports/text/pattern.h"
#include "reports/text/text.h"
#include "reports/text/text_table.h"

namespace nearmetal {
namespace {

// A line of this many bytes is no line of a log; a regular expression would take long for it.
constexpr size_t longest_prefix = 100;

// Removes what stands before the program's own words: the rank that mpirun --tag-output or srun
// --label names, and times.
std::string without_prefix(const std::string& line, std::string& rank) {
  static const Pattern prefix(
      "^(?:\\[[0-9]+,([0-9]+)\\]<std(?:out|err)>: ?|([0-9]+): "
      "|\\[?[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}[.,0-9]*Z?\\]?:? ?)");
  std::string rest = line;
  for (;;) {
    const std::vector<std::string> found = prefix.groups_in(rest.substr(0, longest_prefix));
    if (found.empty()) return rest;
    for (const size_t group : {1, 2}) {
      if (!found[group].empty()) rank = found[group];
    }
    rest.erase(0, found[0].size());
  }
}

}  // namespace

std::vector<LogLine> lines_of(const PublishedLog& log) {
  std::vector<LogLine> lines;
  int64_t number = 0;
  for (size_t begin = 0; begin < log.text.size();) {
    const size_t end = std::min(log.text.find('\n', begin), log.text.size());
    std::string line = log.text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find('\0') != line.npos) stop_at(log, number, "it holds a NUL byte, and is no text");
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    std::string rank = "0";
    std::string text = without_prefix(line, rank);
    if (rank.find_first_not_of('0') == rank.npos) lines.push_back({number, std::move(text)});
  }
  return lines;
}

void stop_at(const PublishedLog& log, int64_t line, const std::string& why) {
  throw InvalidReport(log.file + ":" + std::to_string(line) + ": " + printable(why));
}

void stop_at_end(const PublishedLog& log, const std::string& why) {
  const auto ends = std::ranges::count(log.text, '\n');
  const bool whole = log.text.empty() || log.text.ends_with('\n');
  stop_at(log, std::max<int64_t>(1, ends + (whole ? 0 : 1)), "it ends here: " + why);
}

double positive_number(const PublishedLog& log, int64_t line, const std::string& text,
                       const std::string& name) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool decimal = text.find_first_not_of("0123456789.eE+-") == text.npos;
  if (decimal && !text.empty() && *end == '\0' && std::isfinite(value) && value > 0) return value;
  stop_at(log, line, name + " must be a number above 0, not '" + text.substr(0, 40) + "'");
}

std::string arm_of(const std::string& work, const ImportedRun& run) {
  return work + (run.world_size ? ", " + counted(*run.world_size, "GPU") : "");
}

}  // namespace nearmetal
