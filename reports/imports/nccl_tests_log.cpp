#include "reports/imports/nccl_tests_log.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/pattern.h"
#include "base/text.h"

namespace nearmetal {
namespace {

constexpr double bytes_per_gb = 1e9;
constexpr const char* average_words = "# Avg bus bandwidth";

struct Columns {
  size_t count = 0;  // 0: they are not named yet
  std::optional<size_t> type, redop;
  std::vector<size_t> times;  // out of place, in place; algbw, busbw and #wrong or error follow
  bool counts_wrong = false;  // else there is the error of sums
  bool dated = false;         // a time stamp, which may have a blank, ends the rows
};

struct Table {
  int64_t line = 0;  // of the first that is of this run; 0: none is
  std::string collective;
  std::vector<std::string> commands;  // collectives of the programs that lines before it name
  int64_t ranks = 0;
  std::vector<std::string> devices;  // each kind once
  Columns columns;
  std::vector<ImportedRun> results;
};

constexpr const char* each_its_own =
    "; built without MPI=1, nccl-tests prints a table for each process";

void begin(const LogLine& line, Table& table) {
  if (table.line == 0) table.line = line.number;
  if (table.columns.count == 0) return;
  line.refuse("another table begins, and that of the run of line " + std::to_string(table.line) +
              " has no '" + average_words + "'" + (table.ranks == 1 ? each_its_own : ""));
}

// "#  Rank  0 Group  0 Pid  12 on  host device  0 [0x07] NVIDIA A100": they count from 0.
void take_rank(const LogLine& line, const std::vector<std::string>& found, Table& table) {
  begin(line, table);
  if (found[1] != std::to_string(table.ranks)) {
    line.refuse("rank " + std::to_string(table.ranks) + " must come next" +
                (found[1] == "0" ? each_its_own : ""));
  }
  ++table.ranks;
  add_new(table.devices, found[2]);
}

Columns columns_of(const LogLine& line, const std::vector<std::string>& names) {
  Columns columns;
  columns.dated = names.back() == "timestamp";
  columns.count = names.size() - (columns.dated ? 1 : 0);
  for (size_t i = 0; i < columns.count; ++i) {
    if (names[i] == "type") columns.type = i;
    if (names[i] == "redop") columns.redop = i;
    if (names[i] == "#wrong") columns.counts_wrong = true;
    const bool is_time = names[i] == "time" || names[i] == "cputime";
    if (is_time && i + 3 < columns.count && names[i + 1] == "algbw" && names[i + 2] == "busbw") {
      columns.times.push_back(i);
    }
  }
  // Since the sums are counted, in 2022, all columns are there.
  const bool whole =
      !columns.counts_wrong || (columns.redop && std::ranges::count(names, "root") == 1);
  if (columns.times.size() == 2 && columns.type && whole) return columns;
  line.refuse("the columns must be size, count, type and twice time, algbw, busbw; they are " +
              joined(names, " "));
}

// Bytes on a link for each byte of the message, by the GetBw functions of its source; where it is
// not known which, the range of all.
std::pair<double, double> bus_factors(const std::string& collective, int64_t ranks) {
  const double n = static_cast<double>(ranks);
  const auto is = [&](std::initializer_list<const char*> names) {
    return ranks > 0 && std::ranges::find(names, collective) != names.end();
  };
  if (is({"all_reduce"})) return {2 * (n - 1) / n, 2 * (n - 1) / n};
  if (is({"broadcast", "reduce", "sendrecv"})) return {1, 1};
  if (is({"all_gather", "alltoall", "gather", "hypercube", "reduce_scatter", "scatter"})) {
    return {(n - 1) / n, (n - 1) / n};
  }
  return {collective == "alltoallv" ? 0 : 0.5, 2};  // its message is not the same for all ranks
}

// In GB/s; per_time is size / time.
void require_bandwidth(const LogLine& line, double bandwidth, double per_time, const Table& table) {
  constexpr double rounding = 0.01;
  constexpr double tolerance = 0.02;
  const auto [least, most] = bus_factors(table.collective, table.ranks);
  const bool agrees = bandwidth > least * per_time * (1 - tolerance) - rounding &&
                      bandwidth < most * per_time * (1 + tolerance) + rounding;
  if (agrees) return;
  line.refuse("busbw is " + shortest(bandwidth, 6) + " GB/s, but by size / time it is " +
              shortest(least * per_time, 6) +
              (least == most ? "" : " to " + shortest(most * per_time, 6)));
}

// The result of one placement, whose time, algbw and busbw begin at this column; none for one that
// is too small for the digits that are printed.
std::optional<ImportedRun> result_of(const LogLine& line, const std::vector<std::string>& cells,
                                     size_t time, const Table& table) {
  ImportedRun run;
  run.line = line.number;
  if (table.ranks > 0) run.world_size = table.ranks;
  if (!table.collective.empty()) run.work["collective"] = table.collective;
  run.work["message_bytes"] = cells[0];
  run.work["type"] = cells[*table.columns.type];
  if (table.columns.redop) run.work["redop"] = cells[*table.columns.redop];
  run.work["placement"] = time == table.columns.times[0] ? "out of place" : "in place";
  if (!table.devices.empty()) run.facts["system"] = run.work["system"] = joined(table.devices);
  const double microseconds = line.positive_number(cells[time], "time");
  run.facts["time_us"] = cells[time];
  const std::string& wrong = cells[time + 3];
  if (table.columns.counts_wrong && wrong != "0" && wrong != "N/A") {
    line.refuse("#wrong is " + wrong + ": the sums are not right");
  }
  const std::string& bandwidth = cells[time + 2];
  if (bandwidth.find_first_not_of("0.") == bandwidth.npos) return std::nullopt;
  const double busbw = line.positive_number(bandwidth, "busbw");
  const double bytes = line.positive_number(cells[0], "size");
  require_bandwidth(line, busbw, bytes / microseconds * 1e6 / bytes_per_gb, table);
  run.bus_bandwidth = bytes_per_gb * busbw;
  return run;
}

bool is_count(const std::string& cell) {
  return cell.find_first_not_of("0123456789") == cell.npos && !cell.empty();
}

void take_row(const LogLine& line, Table& table) {
  const Columns& columns = table.columns;
  std::vector<std::string> cells = words_in(line.text);
  if (cells.empty() || !is_count(cells[0])) return;  // of another program
  if (columns.dated && cells.size() > columns.count) cells.resize(columns.count);
  const size_t redop = columns.redop.value_or(cells.size());
  if (redop < cells.size() && std::isdigit(static_cast<unsigned char>(cells[redop][0])) != 0) {
    cells.insert(cells.begin() + static_cast<ptrdiff_t>(redop), "none");  // before 2022 a blank
  }
  if (cells.size() != columns.count) {
    if (cells.size() < 2 || !is_count(cells[1])) return;
    line.refuse("a row has " + counted(std::ssize(cells), "value") + ", and not " +
                std::to_string(columns.count));
  }
  if (cells[0] == "0") return;  // nothing was sent
  for (const size_t time : columns.times) {
    if (auto run = result_of(line, cells, time, table)) table.results.push_back(std::move(*run));
  }
}

void take_comment(const LogLine& line, Table& table) {
  static const Pattern rank("^#\\s+Rank\\s+([0-9]+) .* device\\s+[0-9]+ \\[[^\\]]*\\] (.*)$");
  static const Pattern test("^# Collective test starting: (?:.*/)?([a-z_]+)_perf.*$");
  if (const auto found = rank.groups_of(line.text); !found.empty()) {
    return take_rank(line, found, table);
  }
  if (const auto found = test.groups_of(line.text); !found.empty()) {
    begin(line, table);
    table.collective = found[1];
    return;
  }
  if (line.text.starts_with("# Out of bounds values") && line.text.ends_with("FAILED")) {
    line.refuse("the sums are not right");
  }
  const std::vector<std::string> words = words_in(line.text.substr(1));
  if (words.empty() || words.front() != "size") return;
  begin(line, table);
  table.columns = columns_of(line, words);
  if (table.collective.empty() && table.commands.size() == 1) table.collective = table.commands[0];
}

// The program that a script says it starts: "+ mpirun ./build/all_reduce_perf_mpi -b 1G".
void take_command(const LogLine& line, Table& table) {
  static const Pattern program(
      "(?:^|[ /'\"])(all_gather|all_reduce|alltoallv?|broadcast|gather|hypercube|reduce|"
      "reduce_scatter|scatter|sendrecv)_perf(?:_mpi)?(?:$|[ '\"])");
  if (line.text.find("_perf") == std::string::npos) return;
  if (const auto found = program.groups_in(line.text); !found.empty()) {
    add_new(table.commands, found[1]);
  }
}

// Results of a table that names no collective are of that table alone.
void end_table(const LogLine& line, Table& table, int64_t number,
               std::vector<NamedResult>& results) {
  if (table.ranks == 1) {
    line.refuse("the table is of one GPU, which has no bus bandwidth" + std::string(each_its_own));
  }
  if (table.results.empty()) line.refuse("there is no row with a busbw above 0");
  std::string name = table.collective;
  if (name.empty()) {
    name = std::filesystem::path(line.log->file).filename().string() + " table " +
           std::to_string(number);
  }
  for (ImportedRun& run : table.results) {
    if (table.collective.empty()) run.work["table"] = name;
    run.number = std::ssize(results);
    const std::string arm =
        arm_of(name + " " + run.work["message_bytes"] + " bytes, " + run.work["placement"], run);
    results.push_back({arm, std::move(run)});
  }
  table = {};
}

}  // namespace

std::vector<NamedResult> results_of_nccl_tests(const PublishedLog& log) {
  constexpr size_t longest = 500;  // of lines in a table
  std::vector<NamedResult> results;
  Table table;
  int64_t tables = 0;
  for (const LogLine& line :
       lines_of(log, {"# nThread ", "#  Rank ", "#   Rank ", average_words})) {
    const bool is_comment = line.text.starts_with("#") && line.text.size() <= longest;
    if (line.text.starts_with(average_words)) {
      end_table(line, table, ++tables, results);
    } else if (is_comment) {
      take_comment(line, table);
    } else if (table.columns.count > 0) {
      take_row(line, table);
    } else {
      take_command(line, table);
    }
  }
  if (table.columns.count > 0) {
    stop_at_end(
        log, "the run of line " + std::to_string(table.line) + " has no '" + average_words + "'");
  }
  if (!results.empty()) return results;
  const bool of_another_rank = log.text.find(" NCCL INFO ") != std::string::npos;
  stop_at_end(log, of_another_rank ? "there are lines of NCCL_DEBUG alone: rank 0 prints the table"
                                   : "there is no table of nccl-tests");
}

}  // namespace nearmetal
