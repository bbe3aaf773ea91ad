#include "bench/tf_cnn_benchmarks/absl_words.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <stdexcept>

#include "bench/tf_cnn_benchmarks/flags.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

struct AbslWord {
  std::string name;
  std::optional<std::string> value{};  // behind "="
};

std::optional<AbslWord> flag_in(const std::string& word) {
  const size_t dashes = std::min<size_t>(word.find_first_not_of('-'), 2);
  if (dashes == 0 || dashes >= word.size()) return std::nullopt;
  const size_t equals = word.find('=');
  AbslWord flag{.name = word.substr(dashes, equals - dashes)};
  if (equals != word.npos) flag.value = word.substr(equals + 1);
  return flag;
}

bool is_boolean(const TfFlag* flag) { return flag != nullptr && flag->kind == TfFlagKind::boolean; }

const char* truth_of(const AbslWord& flag) {
  const std::string text = lower_case(flag.value.value_or("true"));
  constexpr std::array yes = {"true", "t", "1"}, no = {"false", "f", "0"};
  if (std::ranges::find(yes, text) != yes.end()) return "true";
  if (std::ranges::find(no, text) != no.end()) return "false";
  throw std::invalid_argument("--" + flag.name + " is true or false, not '" + *flag.value + "'");
}

// The flag that --noname negates; none where there is no such boolean.
std::optional<std::string> negated(const AbslWord& flag) {
  const std::string name = flag.name.starts_with("no") ? flag.name.substr(2) : "";
  if (flag.value || !is_boolean(find_tf_flag(name))) return std::nullopt;
  return name;
}

[[noreturn]] void refuse_argument(const std::string& word, const std::string& before) {
  std::string text = "'" + word + "' is no flag";
  const auto flag = flag_in(before);
  if (flag && is_boolean(find_tf_flag(flag->name))) {
    text += "; a boolean has its value behind '=': --" + flag->name + "=" + word;
  }
  throw std::invalid_argument(text);
}

}  // namespace

std::vector<std::string> spelled_out(const std::vector<std::string>& words) {
  std::vector<std::string> spelled;
  const auto add = [&](const std::string& name, const std::string& value) {
    // An empty value would not be seen behind "=".
    if (value.empty()) return void(spelled.insert(spelled.end(), {"--" + name, value}));
    spelled.push_back("--" + name + "=" + value);
  };
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--") {
      spelled.insert(spelled.end(), words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
      break;
    }
    const auto flag = flag_in(words[i]);
    if (!flag) refuse_argument(words[i], i > 0 ? words[i - 1] : "");
    const TfFlag* known = find_tf_flag(flag->name);
    if (is_boolean(known)) {
      add(flag->name, truth_of(*flag));
    } else if (known != nullptr && flag->value) {
      add(flag->name, *flag->value);
    } else if (known != nullptr) {
      if (++i == words.size()) throw std::invalid_argument("--" + flag->name + " takes a value");
      add(flag->name, words[i]);
    } else if (const auto name = negated(*flag)) {
      add(*name, "false");
    } else {
      spelled.push_back(words[i]);
      break;
    }
  }
  return spelled;
}

}  // namespace nearmetal
