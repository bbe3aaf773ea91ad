// What a fuzzer's bytes choose: a grammar makes texts of them that get further than any bytes
// would.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <iterator>
#include <span>
#include <string>
#include <utility>

namespace nearmetal {

class Choices {
 public:
  Choices(const uint8_t* data, size_t size) : left_(data, size) {}

  /// A number from 0; 0 once there are no bytes left.
  size_t below(size_t count) {
    size_t number = 0;
    for (size_t reach = 1; reach < count && !left_.empty(); reach *= 256) {
      number = number * 256 + left_.front();
      left_ = left_.subspan(1);
    }
    return number % count;
  }
  template <class Values>
  decltype(auto) one_of(const Values& values) {
    return values[below(std::size(values))];
  }
  /// Now and then.
  bool mistake() { return below(64) == 63; }
  /// Any bytes.
  std::string text() {
    const std::span<const uint8_t> taken = left_.first(std::min(below(32), left_.size()));
    left_ = left_.subspan(taken.size());
    return {taken.begin(), taken.end()};
  }

 private:
  std::span<const uint8_t> left_;
};

/// How many inputs were taken further than to their first line or flag, and how many as a whole.
struct Reach {
  int64_t inputs = 0, past_first = 0, taken = 0;

  double share_past_first() const {
    return static_cast<double>(past_first) / static_cast<double>(inputs);
  }
  double share_taken() const { return static_cast<double>(taken) / static_cast<double>(inputs); }
};

/// Of a fuzz target: what it made of bytes as they are, and by its grammar.
struct Reaches {
  Reach of_bytes, of_grammar;
};
extern Reaches reaches;

inline void print_reaches() {
  for (const auto& [name, reach] :
       {std::pair("bytes", reaches.of_bytes), {"grammar", reaches.of_grammar}}) {
    std::cerr << name << ": " << reach.inputs << " inputs, " << 100 * reach.share_past_first()
              << " % past their first line, " << 100 * reach.share_taken() << " % taken\n";
  }
}

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::cerr << "does not hold: " << what << '\n';
  std::abort();
}

/// Why something is refused is told in one short line.
inline void require_reason(const std::string& reason, size_t input_bytes) {
  require(reason.size() < input_bytes + 4096, "the reason is short");
  require(reason.find('\n') == reason.npos, "the reason is one line");
}

}  // namespace nearmetal

// libFuzzer calls it first.
extern "C" [[gnu::used]] inline int LLVMFuzzerInitialize(int*, char***) {
  std::set_terminate(std::abort);  // libFuzzer keeps the input of what aborts
  return std::atexit(nearmetal::print_reaches);
}
