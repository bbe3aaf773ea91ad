#include "comm/layout/layout_document.h"

#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "reports/json/json_reader.h"

namespace nearmetal {
namespace {

using ParsedJson = nlohmann::json;

constexpr size_t largest_bytes = size_t{1} << 20;
constexpr size_t deepest = 16;

// Follows the parser from value to value: at any time, the levels from the root to where it is.
class Watch {
 public:
  bool operator()(int, ParsedJson::parse_event_t event, const ParsedJson& parsed) {
    using Event = ParsedJson::parse_event_t;
    if (event == Event::key) {
      enter_member(parsed.get_ref<const std::string&>());
    } else if (event == Event::object_end || event == Event::array_end) {
      levels_.pop_back();
    } else {
      if (!levels_.empty() && levels_.back().element) ++*levels_.back().element;
      if (event != Event::value) enter_level(event == Event::array_start);
    }
    return true;
  }

 private:
  struct Level {
    std::optional<int64_t> element;  // of a list: the latest
    std::string key;                 // of an object: the latest
    std::set<std::string> keys;
  };

  void enter_member(const std::string& key) {
    Level& level = levels_.back();
    level.key = key;
    if (!level.keys.insert(key).second) throw std::invalid_argument(pointer() + " is there twice");
  }
  void enter_level(bool list) {
    if (levels_.size() == deepest) throw std::invalid_argument(pointer() + " is nested too deeply");
    levels_.emplace_back();
    if (list) levels_.back().element = -1;
  }

  std::string pointer() const {
    ParsedJson::json_pointer pointer;
    for (const Level& level : levels_) {
      if (level.element) {
        pointer /= static_cast<size_t>(*level.element);
      } else {
        pointer /= level.key;
      }
    }
    return pointer.to_string();
  }

  std::vector<Level> levels_;
};

}  // namespace

ParsedJson parse_layout_document(std::string_view text) {
  if (text.size() > largest_bytes) throw std::invalid_argument("it is larger than 1 MiB");
  try {
    Watch watch;
    const ParsedJson::parser_callback_t follow = [&](int depth, ParsedJson::parse_event_t event,
                                                     ParsedJson& parsed) {
      return watch(depth, event, parsed);
    };
    return ParsedJson::parse(text, follow, true, true);
  } catch (const ParsedJson::exception& error) {
    throw std::invalid_argument("not JSON: " + parser_reason(error.what()));
  }
}

}  // namespace nearmetal
