#include "reports/imports/log_lines.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <utility>

#include "base/errors.h"
#include "base/pattern.h"
#include "base/text.h"
#include "base/text_table.h"

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

// tf_cnn_benchmarks (github.com/tensorflow/benchmarks): a header of "Name:  value" lines, then
// steps and "total images/sec: N".

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
  const auto is_it = [&](const auto& known) { return name == known.first; };
  return std::ranges::any_of(work_names, is_it) || std::ranges::count(fact_names, name) > 0;
}

void take_value(const LogLine& line, const std::string& name, const std::string& value,
                Header& header) {
  if (header.values.contains(name)) {
    line.refuse("'" + name + ":' comes again, and the run of line " + std::to_string(header.line) +
                " has no '" + total_words + "' yet: keep the output of one rank");
  }
  if (header.line == 0) header.line = line.number;
  header.values[name] = value;
}

// "128 global", or on the next line "64.0 per device".
void take_batch(const LogLine& line, const std::string& text, Header& header) {
  const size_t end = text.find(' ');
  const std::string of = end == text.npos ? "" : text.substr(end + 1);
  std::optional<double>& batch = of == "global" ? header.global_batch : header.batch;
  if (of != "global" && of != "per device") {
    line.refuse("'Batch size:' must be followed by 'N global' and 'N per device'");
  }
  batch = line.positive_number(text.substr(0, end), "the batch size");
}

// Each device computes a batch of its own.
int64_t devices_of(const LogLine& line, const Header& header) {
  const double devices = *header.global_batch / *header.batch;
  if (devices >= 1 && devices < 1e6 && devices == std::floor(devices)) {
    return static_cast<int64_t>(devices);
  }
  line.refuse("the global batch size of the run that began on line " + std::to_string(header.line) +
              " is no multiple of that of each device");
}

void require_whole(const LogLine& line, const Header& header) {
  if (header.line == 0) {
    line.refuse(std::string("'") + total_words + "' without a header before it ('Model:')");
  }
  const char* const lacking = !header.values.contains("Model") ? "Model:"
                              : !header.global_batch           ? "Batch size: N global"
                              : !header.batch                  ? "N per device"
                                                               : nullptr;
  if (lacking == nullptr) return;
  line.refuse("the run that began on line " + std::to_string(header.line) + " lacks '" + lacking +
              "'");
}

NamedResult result_of(const LogLine& line, const Header& header) {
  require_whole(line, header);
  ImportedRun result;
  result.line = header.line;
  result.world_size = devices_of(line, header);
  result.throughput =
      line.positive_number(trimmed(line.text.substr(std::string(total_words).size())), total_words);
  result.work["batch"] = shortest(*header.batch, 9);
  for (const auto& [name, field] : work_names) {
    if (header.values.contains(name)) result.work[field] = header.values.at(name);
  }
  for (const char* name : fact_names) {
    if (header.values.contains(name)) result.facts[name] = header.values.at(name);
  }
  if (result.facts.contains("Mode")) {
    const std::string& mode = result.facts.at("Mode");
    if (mode != "training" && mode != "forward-only") {
      LogPlace{line.log, header.line}.refuse("Mode is " + mode + ": import reads training");
    }
    result.work["forward_only"] = "no";  // the forward pass of training, which it does not have
    if (mode != "training") result.work["inference"] = "yes";
  }
  return {arm_of(result.work["model"], result), result};
}

// nccl-tests (github.com/NVIDIA/nccl-tests): a table of message sizes, out of place and in place.

constexpr double bytes_per_gb = 1e9;
constexpr const char* average_words = "# Avg bus bandwidth";
const std::vector<std::string> columns = {"size",  "count", "type",  "redop",  "root",
                                          "time",  "algbw", "busbw", "#wrong", "time",
                                          "algbw", "busbw", "#wrong"};

struct Table {
  int64_t line = 0;  // of the first that is of this run; 0: none is
  std::string collective;
  int64_t ranks = 0;
  std::string device;
  bool has_columns = false;
  std::vector<NamedResult> results;
};

std::vector<std::string> words_in(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

void begin(const LogLine& line, Table& table) {
  if (table.line == 0) table.line = line.number;
  if (!table.has_columns) return;
  line.refuse("another table begins, and that of the run of line " + std::to_string(table.line) +
              " has no '" + average_words + "'");
}

// "#  Rank  0 Group  0 Pid  12 on  host device  0 [0x07] NVIDIA A100": they count from 0.
void take_rank(const LogLine& line, const std::vector<std::string>& found, Table& table) {
  begin(line, table);
  if (found[1] != std::to_string(table.ranks)) {
    line.refuse("rank " + std::to_string(table.ranks) + " must come next");
  }
  ++table.ranks;
  table.device = found[2];
}

// The result of one placement: its time, algbw, busbw and #wrong begin at this column.
ImportedRun result_of(const LogLine& line, const std::vector<std::string>& cells, size_t column,
                      const Table& table) {
  ImportedRun run;
  run.line = line.number;
  if (table.ranks > 0) run.world_size = table.ranks;
  if (!table.collective.empty()) run.work["collective"] = table.collective;
  run.work["message_bytes"] = cells[0];
  run.work["type"] = cells[2];
  run.work["redop"] = cells[3];
  run.work["placement"] = column == 5 ? "out of place" : "in place";
  if (!table.device.empty()) run.facts["system"] = table.device;
  line.positive_number(cells[column], "time");
  run.facts["time_us"] = cells[column];
  const std::string& wrong = cells[column + 3];
  if (wrong != "0" && wrong != "N/A") {
    line.refuse("#wrong is " + wrong + ": the sums are not right");
  }
  const std::string& bandwidth = cells[column + 2];
  if (bandwidth.find_first_not_of("0.") == bandwidth.npos) return run;
  run.bus_bandwidth = bytes_per_gb * line.positive_number(bandwidth, "busbw");
  return run;
}

void take_row(const LogLine& line, Table& table) {
  const std::vector<std::string> cells = words_in(line.text);
  if (!table.has_columns) line.refuse("a row comes before the names of its columns");
  if (cells.size() != columns.size()) {
    line.refuse("a row has " + counted(std::ssize(cells), "value") + ", and not " +
                std::to_string(columns.size()));
  }
  if (cells[0] == "0") return;  // nothing was sent
  line.positive_number(cells[0], "size");
  for (const size_t column : {5, 9}) {
    ImportedRun run = result_of(line, cells, column, table);
    if (!run.bus_bandwidth) continue;  // too small for the digits that are printed
    const std::string name = (table.collective.empty() ? "" : table.collective + " ") + cells[0] +
                             " bytes, " + run.work["placement"];
    table.results.push_back({name, std::move(run)});
  }
}

void take_comment(const LogLine& line, Table& table) {
  static const Pattern rank("^#\\s+Rank\\s+([0-9]+) .* device\\s+[0-9]+ \\[[^\\]]*\\] (.*)$");
  static const Pattern test("^# Collective test starting: ([a-z_]+)_perf$");
  constexpr size_t longest = 500;
  if (line.text.size() > longest) return;
  if (const auto found = rank.groups_of(line.text); !found.empty()) {
    return take_rank(line, found, table);
  }
  if (const auto found = test.groups_of(line.text); !found.empty()) {
    begin(line, table);
    table.collective = found[1];
    return;
  }
  std::vector<std::string> words = words_in(line.text.substr(1));
  if (words.empty() || words.front() != "size") return;
  begin(line, table);
  if (words != columns) {
    line.refuse("the columns must be " + joined(columns, " "));
  }
  table.has_columns = true;
}

void end_table(const LogLine& line, Table& table, std::vector<NamedResult>& results) {
  if (table.results.empty()) line.refuse("there is no row with a busbw above 0");
  for (NamedResult& result : table.results) {
    result.run.number = std::ssize(results);
    results.push_back(std::move(result));
  }
  table = {};
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
    if (line.find('\0') != line.npos)
      LogPlace{&log, number}.refuse("it holds a NUL byte, and is no text");
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    std::string rank = "0";
    std::string text = without_prefix(line, rank);
    if (rank.find_first_not_of('0') == rank.npos)
      lines.push_back({{&log, number}, std::move(text)});
  }
  return lines;
}

void LogPlace::refuse(const std::string& why) const {
  throw InvalidReport(log->file + ":" + std::to_string(number) + ": " + printable(why));
}

void stop_at_end(const PublishedLog& log, const std::string& why) {
  const auto ends = std::ranges::count(log.text, '\n');
  const bool whole = log.text.empty() || log.text.ends_with('\n');
  LogPlace{&log, std::max<int64_t>(1, ends + (whole ? 0 : 1))}.refuse("it ends here: " + why);
}

double LogPlace::positive_number(const std::string& text, const std::string& name) const {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool decimal = text.find_first_not_of("0123456789.eE+-") == text.npos;
  if (decimal && !text.empty() && *end == '\0' && std::isfinite(value) && value > 0) return value;
  refuse(name + " must be a number above 0, not '" + text.substr(0, 40) + "'");
}

std::string arm_of(const std::string& work, const ImportedRun& run) {
  return work + (run.world_size ? ", " + counted(*run.world_size, "GPU") : "");
}

std::vector<NamedResult> results_of_tf_cnn_benchmarks(const PublishedLog& log) {
  static const Pattern value("^([A-Z][A-Za-z ]{1,20}): +(.*)$");
  static const Pattern per_device("^ +([0-9.]+ per device)$");
  constexpr size_t longest = 500;  // of lines in a header
  std::vector<NamedResult> results;
  Header header;
  for (const LogLine& line : lines_of(log)) {
    if (line.text.starts_with(total_words)) {
      results.push_back(result_of(line, header));
      results.back().run.number = std::ssize(results) - 1;
      header = {};
      continue;
    }
    if (line.text.size() > longest) continue;
    if (const auto batch = per_device.groups_of(line.text); !batch.empty()) {
      take_batch(line, batch[1], header);
    }
    const std::vector<std::string> found = value.groups_of(line.text);
    if (found.empty()) continue;
    if (found[1] == "Batch size") {
      take_batch(line, trimmed(found[2]), header);
    } else if (is_of_header(found[1])) {
      take_value(line, found[1], trimmed(found[2]), header);
    }
  }
  if (header.line != 0) {
    stop_at_end(log, "the run that began on line " + std::to_string(header.line) + " has no '" +
                         total_words + "'");
  }
  if (results.empty()) stop_at_end(log, std::string("there is no '") + total_words + "'");
  return results;
}

std::vector<NamedResult> results_of_nccl_tests(const PublishedLog& log) {
  std::vector<NamedResult> results;
  Table table;
  for (const LogLine& line : lines_of(log)) {
    const size_t first = line.text.find_first_not_of(' ');
    if (line.text.starts_with(average_words)) {
      end_table(line, table, results);
    } else if (line.text.starts_with("#")) {
      take_comment(line, table);
    } else if (table.has_columns && first != line.text.npos &&
               std::isdigit(line.text[first]) != 0) {
      take_row(line, table);
    }
  }
  if (table.has_columns) {
    stop_at_end(
        log, "the run of line " + std::to_string(table.line) + " has no '" + average_words + "'");
  }
  if (results.empty()) stop_at_end(log, "there is no table of nccl-tests");
  return results;
}

}  // namespace nearmetal
