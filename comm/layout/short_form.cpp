#include "comm/layout/short_form.h"

#include <charconv>
#include <stdexcept>
#include <string_view>

#include "comm/layout/layout.h"

namespace nearmetal {
namespace {

constexpr int64_t most_jobs = 4096;

class Parser {
 public:
  explicit Parser(const std::string& text) : text_(text) {}

  std::vector<JobShape> parse() {
    do {
      add_term();
    } while (take('+'));
    if (position_ < text_.size()) fail("'+' or the end");
    return std::move(jobs_);
  }

 private:
  [[noreturn]] void fail(const std::string& expected) const {
    throw std::invalid_argument("'" + text_ + "' is no layout: " + expected +
                                " is expected after '" + text_.substr(0, position_) +
                                "' (nodes x VMs x GPUs: 1x1x2, 2*(1x1x2), 1x1x2+1x1x1)");
  }

  bool take(char c) {
    if (position_ == text_.size() || text_[position_] != c) return false;
    ++position_;
    return true;
  }
  void require(char c) {
    if (!take(c)) fail(std::string("'") + c + "'");
  }

  int64_t number(int64_t most) {
    int64_t value = 0;
    const char* start = text_.data() + position_;
    const auto [stop, error] = std::from_chars(start, text_.data() + text_.size(), value);
    if (error != std::errc() || value < 1 || value > most) {
      fail("a number from 1 to " + std::to_string(most));
    }
    position_ += stop - start;
    return value;
  }

  // 2x1x4; `nodes` is read already.
  JobShape shape_from(int64_t nodes) {
    JobShape shape{.nodes = nodes};
    require('x');
    shape.vms = number(most_ranks);
    require('x');
    shape.gpus = number(most_ranks);
    // Each factor is small enough that the product of two does not overflow.
    if (nodes * shape.vms > most_ranks || shape.ranks() > most_ranks) {
      fail("a job of at most " + std::to_string(most_ranks) + " ranks");
    }
    return shape;
  }

  JobShape shape() {
    if (!take('(')) return shape_from(number(most_ranks));
    const JobShape shape = shape_from(number(most_ranks));
    require(')');
    return shape;
  }

  void add_term() {
    int64_t count = 1;
    JobShape job;
    if (position_ < text_.size() && text_[position_] == '(') {
      job = shape();
    } else {
      const int64_t first = number(most_ranks);
      if (take('*')) {
        count = first;
        job = shape();
      } else {
        job = shape_from(first);
      }
    }
    if (static_cast<int64_t>(jobs_.size()) + count > most_jobs) {
      fail("a layout of at most " + std::to_string(most_jobs) + " jobs");
    }
    jobs_.insert(jobs_.end(), count, job);
  }

  const std::string& text_;
  size_t position_ = 0;
  std::vector<JobShape> jobs_;
};

}  // namespace

std::vector<JobShape> parse_short_form(const std::string& text) { return Parser(text).parse(); }

bool looks_like_short_form(const std::string& text) {
  return text.find_first_not_of("0123456789x*()+") == std::string::npos;
}

}  // namespace nearmetal
