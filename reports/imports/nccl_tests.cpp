// nccl-tests (github.com/NVIDIA/nccl-tests): a table of message sizes, out of place and in place.
#include <array>
#include <optional>
#include <sstream>
#include <utility>

#include "reports/imports/log_lines.h"
#include "reports/text/pattern.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

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

void begin(const PublishedLog& log, const LogLine& line, Table& table) {
  if (table.line == 0) table.line = line.number;
  if (!table.has_columns) return;
  stop_at(log, line.number,
          "another table begins, and that of the run of line " + std::to_string(table.line) +
              " has no '" + average_words + "'");
}

// "#  Rank  0 Group  0 Pid  12 on  host device  0 [0x07] NVIDIA A100": they count from 0.
void take_rank(const PublishedLog& log, const LogLine& line, const std::vector<std::string>& found,
               Table& table) {
  begin(log, line, table);
  if (found[1] != std::to_string(table.ranks)) {
    stop_at(log, line.number, "rank " + std::to_string(table.ranks) + " must come next");
  }
  ++table.ranks;
  table.device = found[2];
}

// The result of one placement: its time, algbw, busbw and #wrong begin at this column.
ImportedRun result_of(const PublishedLog& log, const LogLine& line,
                      const std::vector<std::string>& cells, size_t column, const Table& table) {
  ImportedRun run;
  run.line = line.number;
  if (table.ranks > 0) run.world_size = table.ranks;
  if (!table.collective.empty()) run.work["collective"] = table.collective;
  run.work["message_bytes"] = cells[0];
  run.work["type"] = cells[2];
  run.work["redop"] = cells[3];
  run.work["placement"] = column == 5 ? "out of place" : "in place";
  if (!table.device.empty()) run.facts["system"] = table.device;
  positive_number(log, line.number, cells[column], "time");
  run.facts["time_us"] = cells[column];
  const std::string& wrong = cells[column + 3];
  if (wrong != "0" && wrong != "N/A") {
    stop_at(log, line.number, "#wrong is " + wrong + ": the sums are not right");
  }
  const std::string& bandwidth = cells[column + 2];
  if (bandwidth.find_first_not_of("0.") == bandwidth.npos) return run;
  run.bus_bandwidth = bytes_per_gb * positive_number(log, line.number, bandwidth, "busbw");
  return run;
}

void take_row(const PublishedLog& log, const LogLine& line, Table& table) {
  const std::vector<std::string> cells = words_in(line.text);
  if (!table.has_columns) stop_at(log, line.number, "a row comes before the names of its columns");
  if (cells.size() != columns.size()) {
    stop_at(log, line.number,
            "a row has " + counted(std::ssize(cells), "value") + ", and not " +
                std::to_string(columns.size()));
  }
  if (cells[0] == "0") return;  // nothing was sent
  positive_number(log, line.number, cells[0], "size");
  for (const size_t column : {5, 9}) {
    ImportedRun run = result_of(log, line, cells, column, table);
    if (!run.bus_bandwidth) continue;  // too small for the digits that are printed
    const std::string name = (table.collective.empty() ? "" : table.collective + " ") + cells[0] +
                             " bytes, " + run.work["placement"];
    table.results.push_back({name, std::move(run)});
  }
}

void take_comment(const PublishedLog& log, const LogLine& line, Table& table) {
  static const Pattern rank("^#\\s+Rank\\s+([0-9]+) .* device\\s+[0-9]+ \\[[^\\]]*\\] (.*)$");
  static const Pattern test("^# Collective test starting: ([a-z_]+)_perf$");
  constexpr size_t longest = 500;
  if (line.text.size() > longest) return;
  if (const auto found = rank.groups_of(line.text); !found.empty()) {
    return take_rank(log, line, found, table);
  }
  if (const auto found = test.groups_of(line.text); !found.empty()) {
    begin(log, line, table);
    table.collective = found[1];
    return;
  }
  std::vector<std::string> words = words_in(line.text.substr(1));
  if (words.empty() || words.front() != "size") return;
  begin(log, line, table);
  if (words != columns) {
    stop_at(log, line.number, "the columns must be " + joined(columns, " "));
  }
  table.has_columns = true;
}

void end_table(const PublishedLog& log, const LogLine& line, Table& table,
               std::vector<NamedResult>& results) {
  if (table.results.empty()) stop_at(log, line.number, "there is no row with a busbw above 0");
  for (NamedResult& result : table.results) {
    result.run.number = std::ssize(results);
    results.push_back(std::move(result));
  }
  table = {};
}

}  // namespace

std::vector<NamedResult> results_of_nccl_tests(const PublishedLog& log) {
  std::vector<NamedResult> results;
  Table table;
  for (const LogLine& line : lines_of(log)) {
    const size_t first = line.text.find_first_not_of(' ');
    if (line.text.starts_with(average_words)) {
      end_table(log, line, table, results);
    } else if (line.text.starts_with("#")) {
      take_comment(log, line, table);
    } else if (table.has_columns && first != line.text.npos &&
               std::isdigit(line.text[first]) != 0) {
      take_row(log, line, table);
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
