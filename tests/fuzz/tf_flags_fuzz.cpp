// Feeds command lines to what takes those of tf_cnn_benchmarks: either std::invalid_argument with a
// short line, or the words of a command of nearmetal. Each input is taken as such a line, a word in
// each line, and as the choices of a grammar that makes one of the table of flags, with mistakes
// now and then. Runs under libFuzzer; the unit tests feed it random bytes.
#include <array>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "base/text_table.h"
#include "bench/cli/command_line.h"
#include "bench/commands/program.h"
#include "bench/tf_cnn_benchmarks/flags.h"
#include "bench/tf_cnn_benchmarks/translate.h"
#include "comm/layout/shell_text.h"
#include "tests/fuzz/choices.h"

namespace nearmetal {

Reaches reaches;

namespace tf_flags_fuzz {
namespace {

using Words = std::vector<std::string>;

constexpr std::array models = {"resnet50",          "resnet50_v1.5", "resnet101", "vgg16",
                               "official_resnet18", "trivial",       "alexnet"};
constexpr std::array integers = {"1", "2", "0", "64", "100", "1000000000", "-1", "08"};
constexpr std::array numbers = {"0.9", "0", "1e-4", "90", "1e9", "-0.5", "inf", "nan", "1e-320"};
constexpr std::array texts = {"nccl", "imagenet", "gpu", "0", "0,1", "", "cpu", "x y"};
constexpr std::array truths = {"=true", "", "=false", "=T", "=0", "=yes"};
constexpr std::array options = {"--output", "r.json", "--force", "--steps=5",
                                "--verify", "--",     "-1"};

// The first of the values are right.
template <class Values>
std::string mostly_right(Choices& choices, const Values& values, size_t right) {
  return values[choices.below(choices.mistake() ? values.size() : right)];
}

std::string value_for(Choices& choices, const TfFlag& flag) {
  if (choices.mistake()) return choices.text();
  if (flag.becomes == TfFlagClass::refused && !choices.mistake()) return flag.standard;
  if (flag.name == std::string_view("model")) return mostly_right(choices, models, 5);
  if (*flag.choices != '\0') return choices.one_of(split(flag.choices, "|"));
  if (flag.kind == TfFlagKind::integer) return mostly_right(choices, integers, 6);
  if (flag.kind == TfFlagKind::number) return mostly_right(choices, numbers, 5);
  return choices.one_of(texts);
}

void add_flag(Choices& choices, const TfFlag& flag, Words& words) {
  const std::string dashes = choices.below(2) == 0 ? "--" : "-";
  const size_t form = choices.below(4);
  if (flag.kind == TfFlagKind::boolean) {
    if (flag.becomes == TfFlagClass::refused && !choices.mistake()) return;
    words.push_back(form == 3 ? dashes + "no" + flag.name
                              : dashes + flag.name + mostly_right(choices, truths, 5));
  } else if (form == 3) {
    words.insert(words.end(), {dashes + flag.name, value_for(choices, flag)});
  } else {
    words.push_back(dashes + flag.name + "=" + value_for(choices, flag));
  }
}

Words command_line_of(Choices& choices) {
  Words words;
  if (!choices.mistake()) add_flag(choices, *find_tf_flag("model"), words);
  for (size_t left = choices.below(12); left > 0; --left) {
    const bool any = choices.below(3) == 2;  // else one that is mapped: the first of the table
    add_flag(choices, tf_flags()[choices.below(any ? tf_flags().size() : 26)], words);
    if (choices.mistake()) words.push_back(choices.text());
  }
  if (choices.below(4) == 3) {
    words.emplace_back("--");
    for (size_t left = choices.below(4); left > 0; --left) words.push_back(choices.one_of(options));
  }
  return words;
}

Words lines_of(const uint8_t* data, size_t size) {
  std::istringstream lines(std::string(data, data + size));
  Words words;
  for (std::string line; std::getline(lines, line);) words.push_back(line);
  return words;
}

struct Line {
  TfFlagValues flags;
  Words options;
};

// Of words as they are spelled out.
Line line_of(const Words& words) {
  Line line;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--") {
      line.options.assign(words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end());
      break;
    }
    if (!words[i].starts_with("--")) throw std::invalid_argument("unknown");  // as it was given
    const size_t equals = words[i].find('=');
    const TfFlag* flag = find_tf_flag(words[i].substr(2, equals - 2));
    if (flag == nullptr) throw std::invalid_argument("unknown");
    const std::string value =
        equals == std::string::npos ? words.at(++i) : words[i].substr(equals + 1);
    check_tf_value(*flag, value);
    line.flags.given[flag->name] = value;
  }
  return line;
}

bool takes_first_flag(const Words& words) {
  for (size_t count = 1; count <= std::min<size_t>(2, words.size()); ++count) {
    try {
      line_of(spelled_out({words.begin(), words.begin() + static_cast<std::ptrdiff_t>(count)}));
      return words.front() != "--";
    } catch (const std::invalid_argument&) {  // it may want the next word for its value
    }
  }
  return false;
}

void translate(const Words& words, Choices& choices) {
  const Words spelled = spelled_out(words);
  require(spelled_out(spelled) == spelled, "what is spelled out stays as it is");
  const Line line = line_of(spelled);
  const TfTranslation translation = translated(line.flags, line.options, choices.below(4) == 3);
  const std::string& command = translation.words.at(0);
  require(command == "run" || command == "sweep", "it becomes a run or a sweep");
  require(!shell_quoted(translation.words).empty(), "the command can be shown");
  for (const std::string& remark : translation.remarks) require_reason(remark, 8192);
  if (choices.below(256) != 255) return;  // the parser takes a hundred times as long
  try {
    Words whole = {"nearmetal"};
    whole.insert(whole.end(), translation.words.begin(), translation.words.end());
    parse_command_line(program(), whole);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(in_flags(translation, error.what()));
  }
}

void read(const Words& words, Choices choices, size_t bytes, Reach& reach) {
  ++reach.inputs;
  reach.past_first += takes_first_flag(words);
  try {
    translate(words, choices);
    ++reach.taken;
  } catch (const std::invalid_argument& error) {
    require_reason(printable(error.what()), 2 * bytes);  // as it is told
  }
}

}  // namespace
}  // namespace tf_flags_fuzz
}  // namespace nearmetal

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nearmetal;
  using namespace tf_flags_fuzz;
  Choices choices(data, size);
  read(lines_of(data, size), choices, size, reaches.of_bytes);
  const Words words = command_line_of(choices);
  read(words, choices, 65536, reaches.of_grammar);
  return 0;
}
