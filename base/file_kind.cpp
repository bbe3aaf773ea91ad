#include "base/file_kind.h"

#include <algorithm>
#include <array>

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

}  // namespace

std::string other_kind(std::string_view words_of_asked, std::string_view text) {
  const auto has = [&](std::string_view words) { return text.find(words) != text.npos; };
  const auto found = std::ranges::find_if(kinds, has, &FileKind::words);
  if (has(words_of_asked) || found == kinds.end()) return "";
  const std::string reader = found->reader;
  return std::string("it holds ") + found->what +
         (reader.empty() ? "" : ", which nearmetal " + reader + " reads");
}

}  // namespace nearmetal
