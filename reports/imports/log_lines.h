// Published logs as lines, and those of tf_cnn_benchmarks (github.com/tensorflow/benchmarks).
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

/// All lines of a log, which must outlive them, without what stands before them (file_kind.h).
std::vector<LogLine> lines_of(const PublishedLog& log, const std::vector<std::string>& beginnings);

/// Throws InvalidReport for what is missing where the text ends.
[[noreturn]] void stop_at_end(const PublishedLog& log, const std::string& why);

/// "resnet50, 8 GPUs, SYSTEM": of what the results say of their work.
std::string arm_of(const std::string& work, const ImportedRun& run);

/// Whether figures of one log that should be the same differ no more than those of genuine logs.
bool agree(double figure, double other);

std::vector<NamedResult> results_of_tf_cnn_benchmarks(const PublishedLog& log);

}  // namespace nearmetal
