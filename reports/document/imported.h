// The results in published logs of other programs. None of them was measured by this one.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace nearmetal {

/// How a published file is laid out.
enum class ImportFormat { mlperf, tf_cnn_benchmarks, nccl_tests, pairs };
constexpr auto names_of(ImportFormat) {
  return std::array{"mlperf", "tf_cnn_benchmarks", "nccl-tests", "pairs"};
}

struct ImportedSource {
  std::string file;    // its name, without folders
  std::string sha256;  // of the whole file
  ImportFormat format{};
  std::optional<std::string> origin{};  // where it was published, as --source says
};

/// One result. What the file does not say is not here.
struct ImportedRun {
  int64_t source = 0;                       // index into Report::sources
  std::optional<int64_t> line;              // where the result begins; empty: the file has no lines
  int64_t number = 0;                       // among the results of the file
  std::optional<std::string> started_at;    // RFC 3339, UTC
  std::optional<int64_t> world_size;        // number of GPUs
  std::optional<double> throughput;         // images per second
  std::optional<double> bus_bandwidth;      // bytes per second
  std::map<std::string, std::string> work;  // what must agree between runs that are compared
  std::map<std::string, std::string> facts;  // what else is said, by the names of the file
};

/// The names that `work` may have, beside settings of a run.
inline constexpr std::array imported_work = {
    "benchmark", "collective", "dataset", "global_batch_size", "message_bytes", "placement",
    "redop",     "round",      "type",    "variable_update"};

}  // namespace nearmetal
