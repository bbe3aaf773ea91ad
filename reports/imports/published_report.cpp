#include "reports/imports/published_report.h"

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "models/errors.h"
#include "reports/files/sha256.h"
#include "reports/imports/published_json.h"
#include "reports/json/report_files.h"

namespace nearmetal {
namespace {

std::vector<NamedResult> results_of(const PublishedLog& log, const ImportOptions& options) {
  switch (options.format) {
    case ImportFormat::mlperf:
      return results_of_mlperf(log);
    case ImportFormat::tf_cnn_benchmarks:
      return results_of_tf_cnn_benchmarks(log);
    case ImportFormat::nccl_tests:
      return results_of_nccl_tests(log);
    case ImportFormat::pairs:
      return results_of_pairs(log, options.side.value());
  }
  throw std::logic_error("unnamed ImportFormat");
}

Arm& arm_in(Report& report, const std::string& name) {
  const auto found = std::ranges::find(report.arms, name, &Arm::name);
  if (found != report.arms.end()) return *found;
  Arm& arm = report.arms.emplace_back();
  arm.name = name;
  arm.kind = Kind::imported;
  return arm;
}

void add_file(Report& report, const std::string& file, const ImportOptions& options) {
  const PublishedLog log{file, input_text(file)};
  const std::string hash = sha256(log.text);
  if (std::ranges::find(report.sources, hash, &ImportedSource::sha256) != report.sources.end()) {
    throw std::invalid_argument(file + " is given twice, under this or another name: its results " +
                                "would count twice");
  }
  const int64_t source = std::ssize(report.sources);
  report.sources.push_back({.file = std::filesystem::path(file).filename().string(),
                            .sha256 = hash,
                            .format = options.format,
                            .origin = options.origin});
  for (NamedResult& result : results_of(log, options)) {
    result.run.source = source;
    arm_in(report, options.arm.value_or(result.arm)).imported.push_back(std::move(result.run));
  }
}

}  // namespace

Report published_report(const ImportOptions& options) {
  Report report;
  report.kind = Kind::imported;
  for (const std::string& file : options.files) add_file(report, file, options);
  return report;
}

}  // namespace nearmetal
