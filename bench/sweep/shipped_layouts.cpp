#include "bench/sweep/shipped_layouts.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "base/text.h"
#include "bench/cli/parse_value.h"
#include "comm/layout/short_form.h"
#include "models/load_module.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

// The folder beside the program as it is installed, and as it is built.
fs::path layouts_folder() {
  const fs::path above = program_path().parent_path().parent_path();
  const fs::path installed = above / "share/nearmetal/layouts";
  std::error_code ignored;
  return fs::is_directory(installed, ignored) ? installed : above / "layouts";
}

bool is_misspelt_short_form(const std::string& word) {
  const size_t first_number_end = word.find_first_not_of("0123456789");
  return first_number_end > 0 && first_number_end < word.size() && word[first_number_end] == 'x' &&
         word.find('.') == word.npos;
}

}  // namespace

std::vector<std::string> shipped_layouts() {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(layouts_folder(), none)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

std::string shipped_layout_file(const std::string& name) {
  return (layouts_folder() / (name + ".json")).string();
}

std::string layout_place(const std::string& word) {
  std::error_code ignored;
  const bool in_folder = is_path(word) && fs::exists(word, ignored);
  if (word == "-" || word.find('/') != word.npos || in_folder) return word;
  const std::string name = word.ends_with(".json") ? fs::path(word).stem().string() : word;
  const std::vector<std::string> names = shipped_layouts();
  if (std::ranges::find(names, name) != names.end()) {
    std::string file = shipped_layout_file(name);
    require_trusted(file);
    return file;
  }
  if (is_misspelt_short_form(word)) parse_short_form(word);  // which says what it lacks
  const std::string hint = file_of_that_name(word);
  const std::string unread =
      hint.empty() ? std::string("it cannot be read: ") + std::strerror(ENOENT) + ", and " : "";
  throw std::invalid_argument(word + ": " + unread + "no layout of that name comes with nearmetal" +
                              did_you_mean(name, names) + " (" + joined(names) +
                              "); layouts in short are written as 1x1x2" + hint);
}

}  // namespace nearmetal
