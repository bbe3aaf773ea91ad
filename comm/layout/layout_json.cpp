#include "comm/layout/layout_json.h"

#include <fstream>
#include <stdexcept>

#include "comm/layout/layout_document.h"
#include "comm/layout/layout_fields.h"
#include "models/errors.h"
#include "reports/json/json.h"
#include "reports/json/json_reader.h"

namespace nearmetal {
namespace {

std::string text_of(const std::filesystem::path& path) {
  constexpr size_t enough_to_refuse = (size_t{1} << 20) + 1;
  std::error_code ignored;
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path, ignored)) {
    throw std::invalid_argument("it cannot be read: " + why_unreadable(path));
  }
  std::string text(enough_to_refuse, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(file.gcount());
  return text;
}

}  // namespace

LayoutFile layout_from_json(std::string_view text) {
  const json::Document document = parse_layout_document(text);
  LayoutFile file;
  try {
    json::StrictReader reader(document, json::Place{});
    json::fields(reader, file);
    reader.require_all_known();
  } catch (const InvalidReport& error) {  // what readers throw
    throw std::invalid_argument(error.what());
  }
  if (file.layouts.empty()) throw std::invalid_argument("/layouts: at least one is needed");
  for (size_t i = 0; i < file.layouts.size(); ++i) {
    file.layouts[i].source = "/layouts/" + std::to_string(i);
  }
  check(file);
  return file;
}

LayoutFile read_layout(const std::filesystem::path& path) {
  try {
    return layout_from_json(text_of(path));
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(path.string() + ": " + error.what());
  }
}

}  // namespace nearmetal
