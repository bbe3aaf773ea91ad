// Published logs as lines, and the readers of those that are text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reports/document/types.h"

namespace nearmetal {

struct PublishedLog {
  std::string file;  // for messages
  std::string text;
};

/// A line of a log, for messages.
struct LogPlace {
  const PublishedLog* log = nullptr;
  int64_t number = 1;

  /// Throws InvalidReport that names the place.
  [[noreturn]] void refuse(const std::string& why) const;
  /// A finite number above 0 and nothing else, or refuse().
  double positive_number(const std::string& text, const std::string& name) const;
};

struct LogLine : LogPlace {
  std::string text;  // without its end, and what a scheduler or launcher put before it
};

struct NamedResult {
  std::string arm;
  ImportedRun run;
};

/// All lines of a log, which must outlive them, but those that mpirun or srun marked as of other
/// ranks than the first.
std::vector<LogLine> lines_of(const PublishedLog& log);

/// Throws InvalidReport for what is missing where the text ends.
[[noreturn]] void stop_at_end(const PublishedLog& log, const std::string& why);

/// "resnet50, 8 GPUs": of what the results say of their work.
std::string arm_of(const std::string& work, const ImportedRun& run);

/// The readers of logs that are text.
std::vector<NamedResult> results_of_tf_cnn_benchmarks(const PublishedLog& log);
std::vector<NamedResult> results_of_nccl_tests(const PublishedLog& log);

}  // namespace nearmetal
