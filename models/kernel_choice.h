// The kernels of a step: the implementation that was chosen for each operation, and their times.
#pragma once

#include <array>
#include <string>

#include "base/value.h"

namespace nearmetal {

/// The implementation chosen for one operation: part of the work that is compared.
struct KernelChoice {
  std::string key;             // operation, shape, precision
  std::string implementation;  // e.g. "cudnn eng62_k2=4_k13=0"
  double seconds = 0;          // as timed when it was chosen
  // Of its results against a reference, when it was chosen; or why it was not checked.
  Maybe<double> relative_error{};

  bool operator==(const KernelChoice&) const = default;
};
/// The implementation of a choice where a kernel was left out, as its result was wrong.
inline constexpr const char* refused_implementation = "refused";

/// The parts of a step, in its order.
enum class Phase { input, forward, backward, exchange, update };
constexpr auto names_of(Phase) {
  return std::array{"input", "forward", "backward", "exchange", "update"};
}

/// One kernel or primitive of the step, timed alone.
struct ProfileEntry {
  std::string name;  // node(s) of the graph it computes
  Phase phase{};
  std::string implementation;
  double seconds = 0;
  double flops = 0;  // of convolutions and products
  double bytes = 0;  // each operand once
};

}  // namespace nearmetal
