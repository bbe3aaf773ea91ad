#include "comm/layout/yaml_value.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <stdexcept>

#include "reports/text/text_table.h"

namespace nearmetal {
namespace {

constexpr size_t largest_yaml_bytes = size_t{1} << 20;
constexpr size_t deepest_yaml = 8;
constexpr const char* tag_of_plain = "?";   // the parser's, of texts without quotes
constexpr const char* tag_of_quoted = "!";  // and with

[[noreturn]] void refuse_at(int64_t line, const std::string& why) {
  throw std::invalid_argument("line " + std::to_string(line) + ": " + why);
}

int64_t line_of(const YAML::Mark& mark) { return std::max(0, mark.line) + 1; }

// Builds the value while the parser goes through the text, so that what is refused ends it there.
class Builder : public YAML::EventHandler {
 public:
  YamlValue take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (seen_) refuse_at(line_of(mark), "there is a second document");
    seen_ = true;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    require_plain(mark, "", anchor);
    YamlValue nothing;
    nothing.line = line_of(mark);
    add(std::move(nothing));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse_at(line_of(mark), "aliases are not taken");
  }
  void OnAnchor(const YAML::Mark& mark, const std::string&) override {
    refuse_at(line_of(mark), "anchors are not taken");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    require_plain(mark, tag, anchor);
    if (wants_key()) {
      enter_member(mark, value);
    } else {
      YamlValue text;
      text.kind = YamlValue::Kind::text;
      text.line = line_of(mark);
      text.quoted = tag == tag_of_quoted;
      text.text = value;
      add(std::move(text));
    }
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    enter(mark, tag, anchor, YamlValue::Kind::list);
  }
  void OnSequenceEnd() override { leave(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    enter(mark, tag, anchor, YamlValue::Kind::object);
  }
  void OnMapEnd() override { leave(); }

 private:
  struct Level {
    YamlValue value;
    std::string key;  // of the member that comes
    bool has_key = false;
    std::set<std::string> keys;
  };

  static void require_plain(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != 0) refuse_at(line_of(mark), "anchors are not taken");
    if (tag.empty() || tag == tag_of_plain || tag == tag_of_quoted) return;
    refuse_at(line_of(mark), "tags are not taken");
  }
  bool wants_key() const {
    return !levels_.empty() && levels_.back().value.kind == YamlValue::Kind::object &&
           !levels_.back().has_key;
  }
  void enter_member(const YAML::Mark& mark, const std::string& key) {
    Level& level = levels_.back();
    if (!level.keys.insert(key).second) {
      refuse_at(line_of(mark), "'" + printable(key) + "' is there twice");
    }
    level.key = key;
    level.has_key = true;
  }
  void enter(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
             YamlValue::Kind kind) {
    require_plain(mark, tag, anchor);
    if (levels_.size() == deepest_yaml) refuse_at(line_of(mark), "it is nested too deeply");
    levels_.emplace_back();
    levels_.back().value.kind = kind;
    levels_.back().value.line = line_of(mark);
  }
  void leave() {
    YamlValue done = std::move(levels_.back().value);
    levels_.pop_back();
    add(std::move(done));
  }
  void add(YamlValue value) {
    if (levels_.empty()) {
      root_ = std::move(value);
      return;
    }
    Level& level = levels_.back();
    if (level.value.kind == YamlValue::Kind::object) {
      if (!level.has_key) refuse_at(value.line, "a key must be a text");
      value.key = std::move(level.key);
      level.has_key = false;
    }
    level.value.items.push_back(std::move(value));
  }

  YamlValue root_;
  std::vector<Level> levels_;
  bool seen_ = false;
};

}  // namespace

YamlValue parse_yaml(std::string_view text) {
  if (text.size() > largest_yaml_bytes) throw std::invalid_argument("it is larger than 1 MiB");
  std::istringstream stream{std::string(text)};
  Builder builder;
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    refuse_at(line_of(error.mark), "no YAML: " + printable(error.msg));
  }
  return builder.take();
}

}  // namespace nearmetal
