#include "base/file_kind.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/pattern.h"
#include "base/text.h"

namespace nearmetal {
namespace {

struct FileKind {
  std::string_view words;  // in such a file, and in no other but those of kinds that come earlier
  const char* what = "";
  const char* reader = "";  // empty: none
};

constexpr std::array kinds = {
    FileKind{"\"nearmetal/journal\"", "a journal", "sweep --resume"},
    FileKind{"\"nearmetal/comparison\"", "a comparison as JSON"},
    FileKind{"\"nearmetal/baselines\"", "a list of baselines"},
    FileKind{"\"nearmetal/plan\"", "a plan as JSON"},
    FileKind{"\"nearmetal/doctor\"", "findings of doctor"},
    FileKind{"nearmetal/report", "a report", "report or compare"},
    FileKind{":::MLLOG", "a log of MLPerf Training", "import mlperf"},
    FileKind{":::MLPv0.5",
             "lines of MLPerf 0.5 (:::MLPv0.5.0); import reads MLLOG, of 0.7 and later"},
    FileKind{":::MLL ", "lines of MLPerf 0.6 (:::MLL); import reads MLLOG, of 0.7 and later"},
    FileKind{"\"accelerators_per_node\"", "a system of MLPerf (:::SYSJSON) without its log"},
    FileKind{"busbw", "a table of nccl-tests", "import nccl-tests"},
    FileKind{"images/sec", "output of tf_cnn_benchmarks", "import tf_cnn_benchmarks"},
    FileKind{"\"pairs\"", "a table of pairs", "import pairs"},
    FileKind{"mig-configs:", "a configuration of mig-parted", "doctor --mig-config"},
    FileKind{"kind: ConfigMap", "a ConfigMap of Kubernetes without mig-configs"},
    FileKind{"\"layouts\"", "a layout file", "plan or sweep"},
    FileKind{" slots=", "a hostfile", "plan --hosts"}};

// What stands before a line is shorter; a regular expression would take long for all of it.
constexpr size_t longest_prefix = 250;

// One piece that is known, with the rank that it names, and the rest of the line.
Pattern known_prefix() {
  const std::string date = "[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}[.,0-9]*";
  const std::string c_time = "[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8} [0-9]{4}";
  const std::vector<std::string> forms = {
      // mpirun --tag-output, also with --timestamp-output (Open MPI 4: orte/mca/iof/base, 5:
      // src/common/pmix_iof.c of OpenPMIx), and horovodrun with Gloo.
      "(?:" + c_time + ")?\\[(?:[^\\],]*,)?([0-9]+)\\](?:\\[[^\\]]*\\])*<std[a-z]+>: ?",
      "\\[?" + c_time + "\\]?<std[a-z]+>: ?",
      " *([0-9]+): ",                                 // srun --label, of equal width
      "\\[([0-9]+)\\] ",                              // mpiexec -prepend-rank of Intel MPI
      "\\[pod/[^\\]]*\\] ",                           // kubectl logs --prefix
      "[A-Z]+\\|" + date + "\\|[^|]*\\|[0-9]+\\| ?",  // the launcher of Kubeflow's examples
      "\\[?" + date + "(?:Z|[+-][0-9]{2}:?[0-9]{2})?\\]?:? ?"};  // kubectl logs --timestamps
  return Pattern("(?:" + joined(forms, "|") + ")([\\s\\S]*)");
}

// Removes pieces that are known; the rank that one names.
std::string without_known(const std::string& line, std::string& rank) {
  static const Pattern known = known_prefix();
  size_t begin = 0;
  const auto may_begin = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '[' || c == ' ';
  };
  while (begin < line.size() && may_begin(line[begin])) {
    const std::string part = line.substr(begin, longest_prefix);
    const std::vector<std::string> found = known.groups_of(part);
    if (found.empty()) break;
    for (const size_t group : {1, 2, 3}) {
      if (!found[group].empty()) rank = found[group];
    }
    begin += part.size() - found.back().size();
  }
  return line.substr(begin);
}

// A regular expression of this text whose numbers may be others, of another width, too.
std::string form_of(const std::string& text) {
  static const Pattern number(" *[0-9]+");
  return number.replaced_in(pattern_of(text), " *[0-9]+");
}

// A regular expression of what stands before a line of interest; empty where one has nothing
// before it.
std::string common_prefix(const std::vector<std::string>& lines,
                          const std::vector<std::string>& beginnings) {
  std::string common;
  for (const std::string& line : lines) {
    for (const std::string& beginning : beginnings) {
      const size_t place = line.find(beginning);
      if (place == 0) return "";
      if (place > longest_prefix || !common.empty()) continue;  // npos is far, too
      const size_t blanks = line.substr(0, place).find_last_not_of(' ') + 1;
      common = blanks == 0 ? " {1," + std::to_string(place) + "}"
                           : form_of(line.substr(0, blanks)) + " ?";
    }
  }
  return common;
}

}  // namespace

std::string other_kind(std::string_view words_of_asked, std::string_view text) {
  const auto has = [&](std::string_view words) { return text.find(words) != text.npos; };
  const auto found = std::ranges::find_if(kinds, has, &FileKind::words);
  if (has(words_of_asked) || found == kinds.end()) return "";
  const std::string reader = found->reader;
  return std::string("it holds ") + found->what +
         (reader.empty() ? "" : ", which nearmetal " + reader + " reads");
}

std::string without_prefixes(const std::string& text, const std::vector<std::string>& beginnings) {
  std::vector<std::string> lines = split(text, "\n");
  for (std::string& line : lines) {
    line.erase(line.find_last_not_of(" \r") + 1);
    std::string rank = "0";
    line = without_known(line, rank);
    if (rank.find_first_not_of('0') != rank.npos) line.clear();
  }
  const std::string common = common_prefix(lines, beginnings);
  if (common.empty()) return joined(lines, "\n");
  const Pattern prefix("(?:" + common + ")([\\s\\S]*)");
  for (std::string& line : lines) {
    const auto found = prefix.groups_of(line.substr(0, longest_prefix));
    if (!found.empty()) line.erase(0, std::min(line.size(), longest_prefix) - found[1].size());
  }
  return joined(lines, "\n");
}

}  // namespace nearmetal
