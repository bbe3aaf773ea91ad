#include "bench/environment/system_files.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

constexpr size_t longest_line = 64 << 10;

}  // namespace

Maybe<std::string> first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return Unknown{path.string() + " cannot be read"};
  line.resize(std::min(line.size(), longest_line));
  line.erase(line.find_last_not_of(" \t\r") + 1);
  return line;
}

Maybe<int64_t> number_in(const fs::path& path) {
  const Maybe<std::string> line = first_line(path);
  if (!line) return Unknown{line.reason};
  int64_t number = 0;
  const char* end = line->data() + line->size();
  if (std::from_chars(line->data(), end, number).ptr != end || line->empty()) {
    return Unknown{path.string() + " holds no number"};
  }
  return number;
}

Maybe<std::string> value_in(const fs::path& path, std::string_view key, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.find(separator);
    if (!line.starts_with(key) || at == line.npos) continue;
    if (line.substr(key.size(), at - key.size()).find_first_not_of(" \t") != line.npos) continue;
    std::string value = line.substr(at + 1);
    std::erase(value, '"');
    value.erase(0, value.find_first_not_of(" \t"));
    return value;
  }
  return Unknown{path.string() + " has no " + std::string(key)};
}

Maybe<int64_t> memory_line(const fs::path& root, const char* key, int64_t unit) {
  const Maybe<std::string> text = value_in(root / "proc/meminfo", key, ':');
  if (!text) return Unknown{text.reason};
  return unit * std::strtoll(text->c_str(), nullptr, 10);
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored)) {
    names.push_back(entry->path().filename());
  }
  std::ranges::sort(names);
  return names;
}

Maybe<std::string> link_name(const fs::path& link) {
  std::error_code error;
  const fs::path target = fs::read_symlink(link, error);
  if (error) return Unknown{link.string() + " is no link"};
  return target.filename().string();
}

}  // namespace nearmetal
