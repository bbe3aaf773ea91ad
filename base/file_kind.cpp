#include "base/file_kind.h"

#include <algorithm>
#include <array>

namespace nearmetal {
namespace {

struct FileKind {
  std::string_view words;  // in such a file, and in no other but those of kinds that come earlier
  const char* what = "";
};

constexpr std::array kinds = {
    FileKind{"\"nearmetal/journal\"", "a journal, which nearmetal sweep --resume reads"},
    FileKind{"\"nearmetal/comparison\"",
             "a comparison as JSON; nearmetal compare reads the reports themselves"},
    FileKind{"\"nearmetal/baselines\"", "a list of baselines, which nearmetal gate takes by name"},
    FileKind{"\"nearmetal/plan\"", "a plan as JSON; nearmetal sweep reads its layouts themselves"},
    FileKind{"\"nearmetal/doctor\"", "what nearmetal doctor found, for people and scripts"},
    FileKind{"nearmetal/report", "a report, which nearmetal report and nearmetal compare read"},
    FileKind{":::MLLOG", "a log of MLPerf Training, which nearmetal import mlperf reads"},
    FileKind{":::MLPv0.5",
             "lines of MLPerf 0.5 (:::MLPv0.5.0); import reads MLLOG, of 0.7 and later"},
    FileKind{":::MLL ", "lines of MLPerf 0.6 (:::MLL); import reads MLLOG, of 0.7 and later"},
    FileKind{"\"accelerators_per_node\"",
             "a system of MLPerf (:::SYSJSON), which nearmetal import mlperf reads in its logs"},
    FileKind{"busbw", "a table of nccl-tests, which nearmetal import nccl-tests reads"},
    FileKind{"images/sec",
             "output of tf_cnn_benchmarks, which nearmetal import tf_cnn_benchmarks reads"},
    FileKind{"\"images_per_second\"", "a table of pairs, which nearmetal import pairs reads"},
    FileKind{"kind: ConfigMap",
             "a ConfigMap of Kubernetes; --mig-config reads configurations of mig-parted"},
    FileKind{"mig-configs:", "a configuration of mig-parted, which --mig-config reads"},
    FileKind{"\"layouts\"", "a layout file, which nearmetal plan and nearmetal sweep read"},
    FileKind{" slots=", "a hostfile, which --hosts reads"}};

}  // namespace

std::string other_kind(std::string_view words_of_asked, std::string_view text) {
  const auto has = [&](std::string_view words) { return text.find(words) != text.npos; };
  if (has(words_of_asked)) return "";
  const auto found = std::ranges::find_if(kinds, has, &FileKind::words);
  return found == kinds.end() ? "" : std::string("it holds ") + found->what;
}

}  // namespace nearmetal
