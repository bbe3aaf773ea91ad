// The flags of tf_cnn_benchmarks (github.com/tensorflow/benchmarks), and what becomes of each here.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "bench/cli/parse_value.h"

namespace nearmetal {

enum class TfFlagKind { boolean, integer, number, text };
constexpr auto names_of(TfFlagKind) { return std::array{"boolean", "integer", "number", "text"}; }

/// Mapped: it means something here. Without effect: it is taken, and changes nothing. Refused: it
/// is taken where it is neutral there. Own: tf_cnn_benchmarks does not have it.
enum class TfFlagClass { mapped, without_effect, refused, own };
constexpr auto names_of(TfFlagClass) {
  return std::array{"mapped", "without effect", "refused", "nearmetal's own"};
}

struct TfFlag {
  const char* name;
  TfFlagKind kind;
  TfFlagClass becomes;
  const char* standard;      // its default; empty: none
  const char* meaning;       // here, or why it has none
  const char* choices = "";  // "gpu|cpu": all that it takes; empty: any
};

/// The flags by class, then by name.
std::span<const TfFlag> tf_flags();
/// Prints a table of Markdown for each class.
void print_tf_flags(std::ostream& out);
/// Null where there is none of that name.
const TfFlag* find_tf_flag(const std::string& name);

/// Throws std::invalid_argument for a value that the flag does not take.
void check_tf_value(const TfFlag& flag, const std::string& value);

/// The words behind `nearmetal tf_cnn_benchmarks`, which are read as absl (abseil.io) does, as
/// "--name=value", of no value "--name" and "": absl takes one dash or two, "--name value", and of
/// booleans --name, --noname and a value behind "=" alone. What follows "--" stays as it is. They
/// end with a flag that is not known, which the parser refuses. Throws std::invalid_argument for a
/// flag without its value, a boolean that is neither true nor false, and a word that is no flag.
std::vector<std::string> spelled_out(const std::vector<std::string>& words);

/// The values of a command line, over the defaults. Each name must be in the table.
struct TfFlagValues {
  std::map<std::string, std::string> given{};

  bool is_given(const std::string& name) const { return given.contains(name); }
  std::string text(const std::string& name) const;
  bool is_true(const std::string& name) const { return text(name) == "true"; }
  // Numbers that are counts or times: none is negative.
  int64_t whole(const std::string& name) const {
    return parse_number<int64_t>("--" + name, text(name), within(0, 1e9));
  }
  double value(const std::string& name) const {
    return parse_number<double>("--" + name, text(name), within(0, 1e9));
  }
  /// Its default however it is written, or what asks for no more.
  bool is_neutral(const TfFlag& flag) const;
};

}  // namespace nearmetal
