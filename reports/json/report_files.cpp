#include "reports/json/report_files.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <stdexcept>

#include "base/errors.h"
#include "base/file_kind.h"
#include "base/text.h"
#include "reports/json/json.h"

namespace nearmetal {
namespace {

// Whether a document begins there: one within another, whose indentation may be lost, has no
// schema.
bool begins_document(std::string_view text) {
  const size_t key = text.find_first_not_of(" \t\r\n", 1);
  return text.starts_with('{') && key != text.npos && text.substr(key).starts_with("\"schema\"");
}

// Up to where its outermost brace closes, with the end of that line; of one cut off up to the next
// line that begins one, or all.
size_t end_of_document(std::string_view text, size_t begin) {
  int64_t depth = 0;
  bool in_string = false;
  for (size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\' && in_string) {
      ++i;
    } else if (c == '"') {
      in_string = !in_string;
    } else if (c == '\n' && begins_document(text.substr(i + 1))) {
      return i;  // not in a string stands such a line
    } else if (!in_string && (c == '{' || c == '}')) {
      depth += c == '{' ? 1 : -1;
      if (depth == 0) return i + (text.substr(i + 1).starts_with('\n') ? 2 : 1);
    }
  }
  return text.size();
}

// The next brace that opens a line, or stands behind a document.
size_t start_of_document(std::string_view text, size_t from) {
  const size_t next = text.find_first_not_of(" \t\r\n", from);
  if (next == text.npos || text[next] == '{') return next;
  const size_t line = text.find("\n{", from);
  return line == text.npos ? line : line + 1;
}

// Begin and end of each.
std::vector<std::pair<size_t, size_t>> reports_within(std::string_view text) {
  std::vector<std::pair<size_t, size_t>> reports;
  if (text.find('\0') != text.npos) return reports;  // no text: refused as a whole
  for (size_t begin = start_of_document(text, 0); begin < text.size();) {
    const size_t end = end_of_document(text, begin);
    if (claims_to_be_report(text.substr(begin, end - begin))) reports.emplace_back(begin, end);
    begin = start_of_document(text, end);
  }
  return reports;
}

}  // namespace

std::string why_unreadable(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return "it is a folder";
  return access(path.c_str(), R_OK) == 0 ? "it does not open" : std::strerror(errno);
}

std::string file_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::error_code ignored;
  if (!file || std::filesystem::is_directory(path, ignored)) {  // a folder reads as empty
    throw InvalidReport(path.string() + " cannot be read: " + why_unreadable(path));
  }
  file.seekg(0, std::ios::end);
  const std::streamoff size = file.tellg();
  if (size < 0) {  // a pipe
    file.clear();
    TextStream text;
    text << file.rdbuf();
    return text.str();
  }
  std::string text(size, '\0');
  file.seekg(0);
  file.read(text.data(), size);
  text.resize(file.gcount());
  return text;
}

std::string standard_input() {
  TextStream text;
  text << std::cin.rdbuf();
  return text.str();
}

std::string input_text(const std::filesystem::path& path) {
  if (path != "-") return file_text(path);
  static std::atomic_flag taken;
  if (taken.test_and_set()) {
    throw std::invalid_argument("- is standard input, which can be read once: name it once");
  }
  return standard_input();
}

bool claims_to_be_report(std::string_view text) {
  return text.find("nearmetal/report") != text.npos;
}

std::vector<ReportText> report_texts(const std::filesystem::path& path) {
  std::string text = input_text(path);
  if (text.starts_with(R"({"schema":"nearmetal/journal")")) {  // whose entries hold reports
    const std::string other = other_kind("nearmetal/report", text.substr(0, text.find('\n')));
    throw InvalidReport(path.string() + " is not a valid report: " + other);
  }
  auto extents = reports_within(text);
  if (extents.empty() && claims_to_be_report(text)) {
    std::string plain = without_prefixes(
        text, {"  \"schema\": \"nearmetal/report\"", "{\"schema\":\"nearmetal/report\""});
    extents = reports_within(plain);
    if (!extents.empty()) text = std::move(plain);
  }
  if (extents.size() <= 1) {
    if (!extents.empty()) text.erase(extents[0].second).erase(0, extents[0].first);
    return {{path.string(), std::move(text)}};
  }
  std::vector<ReportText> reports;
  int64_t line = 1;
  size_t counted = 0;
  for (const auto& [begin, end] : extents) {
    line += std::ranges::count(std::string_view(text).substr(counted, begin - counted), '\n');
    counted = begin;
    reports.push_back(
        {path.string() + ":" + std::to_string(line), text.substr(begin, end - begin)});
  }
  return reports;
}

Report read_report(ReportText report) {
  const std::string other = other_kind("nearmetal/report", report.text);
  if (!other.empty()) throw InvalidReport(report.source + " is not a valid report: " + other);
  try {
    return consistent_report_from_json(std::move(report.text));
  } catch (const InvalidReport& error) {
    throw InvalidReport(report.source + " is not a valid report: " + error.what());
  }
}

Report read_report(const std::filesystem::path& path) {
  std::vector<ReportText> reports = report_texts(path);
  if (reports.size() == 1) return read_report(std::move(reports.front()));
  throw InvalidReport(path.string() + " holds " + std::to_string(reports.size()) +
                      " reports where one is asked for");
}

}  // namespace nearmetal
