#pragma once

#include <unistd.h>

#include <utility>

namespace nearmetal {

/// A file descriptor that is closed with this object.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { close(); }
  /// What close() tells; 0 where there is none.
  int close() { return number_ >= 0 ? ::close(std::exchange(number_, -1)) : 0; }
  int number() const { return number_; }
  bool is_open() const { return number_ >= 0; }

 private:
  int number_;  // -1: none
};

}  // namespace nearmetal
