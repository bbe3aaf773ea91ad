// tf_cnn_benchmarks (github.com/tensorflow/benchmarks): a header of "Name:  value" lines, then
// steps and "total images/sec: N".
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "reports/imports/log_lines.h"
#include "reports/text/pattern.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

constexpr const char* total_words = "total images/sec:";

struct Header {
  int64_t line = 0;  // of its first; 0: none is open
  std::map<std::string, std::string> values;
  std::optional<double> global_batch;
  std::optional<double> batch;  // of each device
};

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Names of the header that say what was computed, as the comparable key calls them.
constexpr std::array work_names = {std::pair("Model", "model"), std::pair("Dataset", "dataset"),
                                   std::pair("Optimizer", "optimizer"),
                                   std::pair("Variables", "variable_update")};
constexpr std::array fact_names = {"TensorFlow", "Mode",        "Num batches", "Num epochs",
                                   "Devices",    "Data format", "NUMA bind",   "AllReduce"};

bool is_of_header(const std::string& name) {
  for (const auto& [known, field] : work_names) {
    if (name == known) return true;
  }
  return std::ranges::find(fact_names, name) != fact_names.end();
}

void take_value(const PublishedLog& log, const LogLine& line, const std::string& name,
                const std::string& value, Header& header) {
  if (header.values.contains(name)) {
    stop_at(log, line.number,
            "'" + name + ":' comes again, and the run of line " + std::to_string(header.line) +
                " has no '" + total_words + "' yet: keep the output of one rank");
  }
  if (header.line == 0) header.line = line.number;
  header.values[name] = value;
}

// "128 global", or on the next line "64.0 per device".
void take_batch(const PublishedLog& log, const LogLine& line, const std::string& text,
                Header& header) {
  const size_t end = text.find(' ');
  const std::string of = end == text.npos ? "" : text.substr(end + 1);
  std::optional<double>& batch = of == "global" ? header.global_batch : header.batch;
  if (of != "global" && of != "per device") {
    stop_at(log, line.number, "'Batch size:' must be followed by 'N global' and 'N per device'");
  }
  batch = positive_number(log, line.number, text.substr(0, end), "the batch size");
}

// Each device computes a batch of its own.
int64_t devices_of(const PublishedLog& log, int64_t line, const Header& header) {
  const double devices = *header.global_batch / *header.batch;
  if (devices >= 1 && devices < 1e6 && devices == std::floor(devices)) {
    return static_cast<int64_t>(devices);
  }
  stop_at(log, line,
          "the global batch size of the run that began on line " + std::to_string(header.line) +
              " is no multiple of that of each device");
}

void require_whole(const PublishedLog& log, int64_t line, const Header& header) {
  if (header.line == 0) {
    stop_at(log, line, std::string("'") + total_words + "' without a header before it ('Model:')");
  }
  const auto require = [&](bool there, const char* name) {
    if (there) return;
    stop_at(log, line,
            "the run that began on line " + std::to_string(header.line) + " lacks '" + name + "'");
  };
  require(header.values.contains("Model"), "Model:");
  require(header.global_batch.has_value(), "Batch size: N global");
  require(header.batch.has_value(), "N per device");
}

NamedResult result_of(const PublishedLog& log, const LogLine& line, const Header& header) {
  require_whole(log, line.number, header);
  ImportedRun result;
  result.line = header.line;
  result.world_size = devices_of(log, line.number, header);
  result.throughput = positive_number(
      log, line.number, trimmed(line.text.substr(std::string(total_words).size())), total_words);
  result.work["batch"] = shortest(*header.batch, 9);
  for (const auto& [name, field] : work_names) {
    const auto found = header.values.find(name);
    if (found != header.values.end()) result.work[field] = found->second;
  }
  const auto mode = header.values.find("Mode");
  if (mode != header.values.end()) {
    if (mode->second != "training" && mode->second != "forward-only") {
      stop_at(log, header.line, "Mode is " + mode->second + ": import reads training");
    }
    result.work["forward_only"] = "no";  // the forward pass of training, which it does not have
    if (mode->second != "training") result.work["inference"] = "yes";
  }
  for (const char* name : fact_names) {
    const auto found = header.values.find(name);
    if (found != header.values.end()) result.facts[name] = found->second;
  }
  return {arm_of(result.work["model"], result), result};
}

}  // namespace

std::vector<NamedResult> results_of_tf_cnn_benchmarks(const PublishedLog& log) {
  static const Pattern value("^([A-Z][A-Za-z ]{1,20}): +(.*)$");
  static const Pattern per_device("^ +([0-9.]+ per device)$");
  constexpr size_t longest = 500;  // of lines in a header
  std::vector<NamedResult> results;
  Header header;
  for (const LogLine& line : lines_of(log)) {
    if (line.text.starts_with(total_words)) {
      results.push_back(result_of(log, line, header));
      results.back().run.number = std::ssize(results) - 1;
      header = {};
      continue;
    }
    if (line.text.size() > longest) continue;
    if (const auto batch = per_device.groups_of(line.text); !batch.empty()) {
      take_batch(log, line, batch[1], header);
    }
    const std::vector<std::string> found = value.groups_of(line.text);
    if (found.empty()) continue;
    if (found[1] == "Batch size") {
      take_batch(log, line, trimmed(found[2]), header);
    } else if (is_of_header(found[1])) {
      take_value(log, line, found[1], trimmed(found[2]), header);
    }
  }
  if (header.line != 0) {
    stop_at_end(log, "the run that began on line " + std::to_string(header.line) + " has no '" +
                         total_words + "'");
  }
  if (results.empty()) stop_at_end(log, std::string("there is no '") + total_words + "'");
  return results;
}

}  // namespace nearmetal
